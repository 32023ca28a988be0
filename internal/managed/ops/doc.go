// Package ops executes one operation: it chooses the session, tries again
// within a budget, knows what a failure means for the caller, and does not let
// an operation be executed twice that must be executed once.
//
// # State, and who owns it
//
// A Client is what all operations of a client share, and a Session what those
// in one session share. Both belong to the client that makes them. The Client
// knows which chroots exist, and which directories it has made and nobody has
// used. The Session knows how large answers are. Each of these has a mutex,
// with which nothing is called that waits. Package ephemerals has the account
// of ephemeral znodes, and package offers knows what the servers have.
//
// # What callers may rely on
//
// An operation returns when it is answered, its context ends, its session is
// over, the client closes or its budget is used up. Its error is a zkerr.Op,
// which says whether it may have been executed. A request that its caller has
// left ends with its connection. What is above this package is told by
// interfaces that are given at construction: see Above and Observer.
//
// # A create whose connection ends
//
// scope.go calls createOnce of sent_once.go. ephemerals.go claims its bytes,
// retry.go chooses the session, call.go and observed.go make the call. It is
// never repeated: sent_once.go waits in retry.go for a connection, syncs and
// reads, and then recognizes its znode or returns an error with MaybeApplied.
// The creates of contenders and presences go through package writes instead.
//
// # In which order to read
//
// First scope.go, retry.go and call.go: how an operation is tried. Then
// sent_once.go and once.go, for writes that must not be repeated; multi.go,
// put.go, update.go, delete_created.go and delete_tree.go use these. Then
// read_all.go, with answer_sizes.go, for many reads in few requests. root.go
// explains znodes that are missing. unused.go and sweep.go are about
// directories. ephemerals.go makes room for ephemeral znodes. client.go,
// session.go and observed.go have what all of these share.
package ops
