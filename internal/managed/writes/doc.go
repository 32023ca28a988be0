// Package writes has the writes of contenders and presences: they share
// requests, and nothing that they create is left behind.
//
// # State, and who owns it
//
// A Writes belongs to one session, and ends with it. It has four parts, each
// with a mutex: the queue of contenders' creates and deletes, the creates of
// ephemeral znodes at fixed paths, the searches for znodes whose answers were
// lost, and the strays, which are being removed or may still appear. With the
// mutex of the queue held only the session is asked whether it is ready.
//
// # What callers may rely on
//
// A create that was sent returns its znode, or the znode is removed in the
// background, at the latest when the session ends. No create overtakes a delete
// that was asked for before, but for the exceptions that groupcommit.go names.
// An error says whether the write may have been executed. Other lists of the
// session reveal strays, too: the client passes them by Listed.
//
// # In which order to read
//
// First groupcommit.go: how writes share requests, and which goroutine sends
// them; readbehind.go for the list that every contender needs, and replace.go
// for the one that needs none. Then protected.go and protected_batch.go for
// creates, leave.go for deletes. search.go and strays.go run when an answer is
// lost. plaincreate.go is for znodes at fixed paths. writes.go has what these
// share, and Observer, which groupcommit.go and plaincreate.go tell of each
// batch.
package writes
