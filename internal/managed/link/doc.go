// Package link is the connections of one session, one after the other: all
// bytes in both directions, and what continues from one connection to the next.
//
// A [Chain] is all connections of a session, a [Link] one of them. The wire
// client dials through [Chain.Dial] and gets a Link as its net.Conn. It knows
// nothing of what a Link does with its bytes.
//
// # State
//
// Chain.mu guards who the session is, what it has seen, and what is not sent
// yet. Most of a Link belongs to the two goroutines of the wire client that
// write to it and read from it; the rest has small mutexes of its own. The
// channel Link.sending is held while a frame is noted and sent.
//
// # What callers may rely on
//
//   - No request of the session is sent once the chain is severed. Before that,
//     each connection has the session that was confirmed first, or none.
//   - No answer reaches the wire client that it cannot decode, or that answers
//     another request than the next one. Such a connection is closed.
//   - No read goes back behind what the session has seen, be it an answer or an
//     event.
//   - No method waits but [Chain.Ask], [Chain.AskTogether], [Link.Await], and
//     what the wire client calls, Read and Write.
//   - [Told] is called without any mutex of this package. A caller may hold its
//     own mutex when it calls a method that does not wait.
//   - Told.Sent comes before the bytes leave, with a time that was taken before
//     that. What it calls must not write to the connection: it may use
//     [Link.SendBehind].
//
// # In which order to read it
//
//   - told.go: what the session is told.
//   - chain.go, link.go: the two types.
//   - connect.go: a connection before the session is confirmed on it.
//   - write.go: requests on their way out.
//   - read.go, inbound.go, answer.go: answers on their way in.
//   - own_requests.go, asked.go: requests that the wire client does
//     not know.
//   - catch_up.go: the sync behind an event, or behind the opening.
//   - frame.go, wire_buffers.go: where fields are in a frame; memory.
package link
