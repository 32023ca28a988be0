// Package framework is a ZooKeeper client with managed sessions. It reconnects,
// opens a new session after a loss, retries operations, and keeps watches
// alive. It wraps github.com/go-zookeeper/zk. The recipes are built on it.
//
//	client, err := framework.New("zk1:2181,zk2:2181,zk3:2181")
//	if err != nil { ... }
//	defer client.Close()
//	data, stat, err := client.Get(ctx, "/app/config")
//
// A [Client] has the operations, its states ([Client.Listen]), and watches that
// survive reconnects and sessions ([Client.WatchData]). A [Session] is for what
// must be done in one ZooKeeper session or not at all, such as recipes, with
// one-time watches and protected creates.
//
// # Operations and failures
//
// An operation waits for a connection, and is retried after a loss of the
// connection. Its context bounds it, and one budget of the retry policy
// ([WithRetry]) for all its requests.
//
// An error names the operation and the path. It wraps the wire client's error,
// such as zk.ErrNoNode, or [ErrClosed], [ErrSessionLost], or the error and the
// cause of the context. If a write has failed, [MaybeApplied] reports whether
// the ensemble may have executed it.
//
// Members lag behind each other. But within a session no read shows a state of
// before an answer or an event that the session has had, whatever it is
// connected to. So a holder sees all that the holders before it have written.
// The exception behind an event is a leader that has lost its quorum and has
// not noticed yet: see [ProofSync].
//
// # States
//
// A session begins, may be suspended and resume, and ends once, for good. After
// its end the client opens another one. Each has its own wire connection: a
// request that was queued in a dead session is never executed in the next.
//
//	Connecting              a session is connected              -> Connected
//	Connected               the connection is lost              -> Suspended
//	Suspended               the same session is connected again -> Connected
//	Connected, Suspended    session expired, or, if something
//	                        is held, the deadline passed        -> Lost
//	Lost                    a new session is connected          -> Connected
//
// Close leads to Closed from every state, and Closed is final.
//
// While the state is Connected you may work. While it is Suspended you may go
// on with what you hold until one stop margin before the deadline, but nothing
// new is granted: requests wait, and watches report nothing. After Lost nothing
// that you held is yours: its znodes and watches are gone, or will be.
//
// # Deadlines
//
// The holder of a lock must know until when the lock is certainly held.
// [Session.Deadline] is the instant before which the ensemble cannot have
// expired the session, as far as the client can prove:
//
//	deadline   = when the latest proven contact was sent + T
//	lost       = deadline - M
//	heartbeats   every (G + r) / n, n = 2 to 8, each of two round trips to the leader;
//	             every T/4 if that is as good, with a short F, r and M
//
//	T  the least session timeout that any member has granted in the session
//	M  the stop margin: WithStopMargin, by default T/10
//	F  T/3; shorter or longer by WithServerTick
//	G  F, or T/3 if F is less
//	r  the time of a round trip to the leader
//
// A heartbeat proves a contact if it begins at least F after the contact was
// answered, once both of its round trips are answered. An answered ping proves
// nothing: a member answers pings and reads for a while after it was cut off
// from its leader. In a quick network the deadline is at least T/2 ahead, so a
// lease survives an outage of T/2 - M. If the client was idle before the grant,
// that is T/3 - M during the first T/3.
//
// Only a session that holds something has heartbeats and an enforced deadline:
// see [Session.Hold]. Any other one is Suspended for as long as an outage
// takes, and resumes if the ensemble still knows it. It is Lost when the
// ensemble says so, or when a connection of the user hangs for T.
//
// # Costs
//
// A session that holds something sends 10 to 12 syncs in T while a round trip
// takes at most T/50, and up to 40 in slower ensembles, however much it holds.
// [WithServerTick] can make that 8. Any other one costs a ping each T/3, which
// any member answers. An operation costs one request, unless its comment says
// otherwise. A reconnect right behind an event costs a sync.
package framework
