// Package directories knows which directories a client has made and used, and
// decides which of them are deleted: those in which nothing was ever created,
// and those that have stayed empty. It asks nobody: package ops makes the
// requests.
//
// # State, and who owns it
//
// A Known belongs to one client. Its halves, unused and swept, have a mutex
// each, with which nothing is called.
//
// # What callers may rely on
//
// No method waits, but Look.Make for the functions that it gets. The operations
// of EmptyDelete delete a directory only if nothing was created in it since the
// look, however late they arrive. What was noted during a look is not forgotten
// by it.
//
// # In which order to read
//
// empty.go has the delete. Then swept.go and unused.go, each for its half, and
// known.go, which has what callers tell both of them.
package directories
