// Package compound has the operations that are made of several requests, each
// of which may fail: a marked multi that takes effect once, and writes and
// deletes that depend on what was read.
//
// # State, and who owns it
//
// None but that of a call.
//
// # What callers may rely on
//
// All requests of a call share one budget of retries, and its error is a
// zkerr.Op, which says whether any of them may have been executed. DeleteTree
// has a budget for each request, and returns how much it has deleted.
//
// # In which order to read
//
// put.go shows how a loop goes on. Then once.go and update.go, which writes
// what was computed, also once. delete_created.go and delete_tree.go stand
// alone.
package compound
