// Package ops executes one operation: it chooses the session, tries again
// within a budget, knows what a failure means for the caller, and does not let
// an operation be executed twice that must be executed once.
//
// # State, and who owns it
//
// A Client is what all operations of a client share, and a Session what those
// in one session share. Both belong to the client that makes them. The Client
// knows which chroots exist, the Session how large answers are. Each of these
// has a mutex, with which nothing is called that waits. What else is remembered
// is in packages below: the account of ephemeral znodes, the directories that
// were made or used, and what the servers have (package offers).
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
// createOnce of sent_once.go claims its bytes in ephemerals.go. retry.go
// chooses the session, and call.go makes the call. It is never repeated:
// sent_once.go waits in retry.go for a connection, syncs and reads, and then
// recognizes its znode or returns an error with MaybeApplied. The creates of
// contenders and presences go through package writes instead.
//
// # In which order to read
//
// No file uses a later one: observed.go, answer_sizes.go and client.go have
// what all operations share. retry.go and call.go say how one is tried. root.go
// explains znodes that are missing. one_request.go has what may be repeated, or
// has a version. sweep.go deletes directories, make_path.go makes them.
// ephemerals.go makes room for ephemeral znodes. sent_once.go has writes that
// must not be repeated. read_all.go does many reads in few requests. new.go
// makes a client. Operations that are made of several are in package compound.
package ops
