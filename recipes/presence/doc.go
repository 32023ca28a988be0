// Package presence keeps an ephemeral znode in place for as long as its owner
// wants it: over reconnects, expired sessions, lost answers, and removals by
// somebody else. Services announce themselves with it.
//
//	node, err := presence.Announce(ctx, client, "/services/billing/10.0.0.7", data)
//	if err != nil { ... }
//	defer node.Close(ctx)
//
// A [Group] is a directory of them. [Group.Members] says who is there, and
// [Group.Follow] tells of every change: [Roster.Changes] is a loop.
//
// # What is promised
//
//   - A [Node] never deletes or writes the znode of another client, except with
//     [WithTakeover], and in the window below. If another session has the name,
//     the Node is [Taken]. It gets the name within a round trip of that
//     session's end.
//   - An earlier session of this client may have left a znode, for example
//     because the answer to a create was lost. The Node then closes that
//     session by its id and password, which removes exactly its znodes. If no
//     server confirms that, the Node waits until the session has expired.
//   - While the session lives, a reconnect costs no request for a Node that
//     stands.
//   - When Close has returned nil, the znode is gone, and no request of this
//     Node that was under way brings it back for good: see Close.
//   - [Standing] is the last known state. It is no lease: the ensemble may have
//     expired the session since. For exclusion use a lock.
//
// One window remains, because ZooKeeper cannot check a czxid. Before a delete
// or a write the Node syncs, and reads its znode on the same connection. It
// goes on only if its session owns the znode, at that version. The request hits
// the znode of another session only if all of this happens between the sync and
// the request: somebody deletes the Node's znode, another session creates one
// with the same name, and that one has the same version. Set does not take that
// for a success. [WithTakeover] has the same window. In theory a server can
// also execute a request long after its connection has ended, which makes the
// window longer.
//
// # Costs
//
//   - announced: 2 requests, 1 transaction, 1 watch
//   - set: 4 requests, 1 transaction
//   - closed: 3 requests, 1 transaction
//
// Each later session costs the same as the first. Creates that are due together
// share transactions, up to 256 each. Reads of 16 or more share requests, with
// servers since 3.6. A thousand Nodes of a client need about twenty requests
// after an expiry, of which five are transactions. After a lost session, a
// client waits for a random time of up to a tenth of the session timeout before
// it creates its Nodes, so that many clients do not come at once.
//
// A Node that stands has a watch at the server. In case an event is lost it
// also reads its znode about once per session timeout. All Nodes of a client
// together make at most about sixteen such reads per session timeout. A
// takeover costs a sync, a read and a transaction.
package presence
