// Package faults tries every single fault at every step of small runs of each
// recipe, and as many pairs of faults as time allows, on the real code in
// virtual time.
//
// A [Scenario] is a run of two or three clients. Without faults it is the same
// each time: no two clients do something at the same instant, the library draws
// no lots, and there is one processor. Its steps are the messages of the
// clients, as they leave, as a member executes them and as their answers and
// events arrive, and what the callers do. A fault happens at a step or directly
// after it. See deeds.go for the faults, and for the steps at which each is
// tried: a fault between two steps that it has nothing to do with is the same
// fault as at the first of them.
//
// A step has a name: the client, the operation, and how often that client has
// done it. So the second fault of a pair finds its step in the run that the
// first fault has changed.
//
// Package sim runs a schedule and judges it, as it judges those that it draws.
// A schedule that fails is written to a file in testdata/failures, with no more
// faults than it needs. testdata/schedules has some that have failed, in the
// library or in a mutant of it. All tests run them again.
//
// What still differs between two runs of one schedule: which of several ready
// channels a select takes, the order of a map, the pauses before a client tries
// all servers again, and what Go's scheduler does when it interrupts a
// goroutine or collects garbage. -faults.vary makes goroutines let others go
// first, in another way for each number.
package faults
