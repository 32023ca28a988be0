// Package session is the life of one session: how it connects, until when it is
// proven to be alive, who holds it, and its end.
//
// # State
//
// [Session.Run] is the goroutine that owns a session. It is told of connections
// and of their ends in the order in which these happen, and checks the clock.
// life.mu guards what other goroutines see of that: the reason of the end,
// the evidence, the holds. What is known of the connections belongs to package
// link, and which server is called to package servers. Each has a mutex, which
// may be taken while life.mu is held.
//
// # What callers may rely on
//
//   - [New] makes a session, [Session.Start] lets it connect, and Run follows
//     it. Nothing is told before Start.
//   - A session ends once. Over is closed before any hold is told, and each
//     hold is told once, the oldest first.
//   - [Watcher] and [Told] are called without a mutex of this package. A caller
//     may hold its own mutex when it calls a method that does not wait.
//   - Only Prove, Run, Close and CloseLost wait.
//   - Nothing that the user has supplied runs on the goroutine of Run.
//
// # In which order to read it
//
//   - told.go: what a session must know, and what it tells.
//   - life.go: what is known of it, and who holds it.
//   - session.go: what it is made of, and its end.
//   - run.go: from New on, in the order in which it happens.
//   - dial.go, authenticate.go, history.go: a connection begins, or does not.
//   - connections.go: what a session is told of its connections.
//   - heartbeat.go: the clock and heartbeats.
//   - move.go: the session moves to another server by the client's own wish.
//   - prove.go: a proof that somebody waits for.
//   - close.go: what is done after the end.
package session
