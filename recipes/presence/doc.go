// Package presence keeps an ephemeral znode in place for as long as its owner
// wants it: over reconnects, expired sessions, lost answers, and removals by
// somebody else. Services announce themselves with it.
//
//	node, err := presence.Announce(ctx, client, "/services/billing/10.0.0.7", data)
//	if err != nil { ... }
//	defer node.Close(ctx)
//
// A [Group] is a directory of them. [Group.Members] says who is there, and
// [Group.Follow] tells of every change.
//
// # What is promised
//
//   - A [Node] never deletes the znode of another session, and never writes to
//     it. A name that another session has is [Taken], and becomes ours within a
//     round trip of that session's end. A znode that an earlier session of this
//     client has left, also by a create whose answer was lost, is removed by
//     closing that session by its id and password, which removes exactly its
//     znodes. If no server confirms that, the Node waits until it has expired.
//   - While the session lives, a reconnect costs no request for a Node that
//     stands.
//   - When Close has returned nil, the znode is gone, and no request of this
//     Node that was under way brings it back for good: see Close.
//   - [Standing] is what is known, and no lease: the ensemble may have expired
//     the session meanwhile. For exclusion use a lock.
//
// A window remains, because ZooKeeper checks no czxid. The Node deletes and
// writes its znode at the version that it has read there on the same
// connection, with its session as the owner, or under a watch that has not
// fired. If somebody deletes the znode while that request is on its way,
// another session creates it, and the new one has the same version, then that
// one is deleted or written. [WithTakeover] has the same window.
//
// # Costs
//
// In each session a Node costs a create and a read. Creates that are due
// together share transactions, up to 256 each: a thousand Nodes of a client
// need about five after an expiry. In a session that is not the client's first
// they begin after a random pause of up to a tenth of the session timeout, the
// same for all Nodes of a client, so that many clients do not come at once. A
// Node that stands has a watch at the server, and looks once per session
// timeout in case an event was lost; the looks of more than sixteen Nodes of a
// client are that much rarer, so that they cost about sixteen small reads per
// session timeout together. Set costs a write and a read. Close costs a read
// and a delete.
package presence
