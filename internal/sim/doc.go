// Package sim plays the recipes against faults, in virtual time, and looks for
// anything that a lock library must not do.
//
// A [Plan] is drawn from one seed: which recipe, how many clients with how many
// goroutines, what each of them does when, and what goes wrong meanwhile. Run plays
// it in a bubble of its own, over the embedded ensemble and the real wire client,
// in some ten milliseconds. The same seed plays the same plan; what Go's scheduler
// decides among things that happen at one instant, and the ids and pauses that the
// library draws, differ, so a seed that has failed may have to be played again a few
// times.
//
// In half of all plans each client has a view of the ensemble: a chroot, a namespace,
// both, or neither. All of them lead to the same lines, under different paths; what is
// believed and what is left is looked at by the ensemble's.
//
// # What goes wrong
//
// Members are stopped, leaders first, and paused, cut off from the others, made to
// lag, to be deaf, or to answer nothing but pings. Clients are cut off, one way or
// both, disconnected, told everything late, killed, closed, and their sessions ended
// by an operator. Single requests are refused, executed late, not executed, executed
// and not answered; or the leader stops while they are under way. The members' clocks
// run faster or slower than the clients', by up to a tenth: the stop margin. Callers
// leave at any instant, give their writes up, or release while one is under way; and
// they work on under a lease that they have lost, up to a write that its guard must
// refuse. The directory is removed while it is empty, in quiet weathers too, and remade
// with a counter near the old one: at any time, when somebody has just left, or while
// he comes back. Some faults wait until a client has been told that something was written, and
// are that client's: what it believes is newest then. One member at a time is in
// trouble, and under framework.ProofSync never a leader that stays in office: what these
// cover no further is said in their documents.
//
// # What is looked for
//
// At each event, and directly after each instant at which sessions expire:
//
//   - Nobody holds beside another, by anybody's knowledge: what Lost and Held say, and
//     the Deadline until which a lease has promised that nobody else is granted.
//   - Whoever believes to hold has a znode, in a session that lives.
//   - Tokens are in order; a nested lease has that of the outer one.
//   - What guarded writes are made to was not written by somebody after a later holder's
//     grant, whatever the writer was told.
//   - A waiter that could be granted is granted soon. A lost wake-up cannot hide behind
//     the next event.
//
// In the end:
//
//   - Everybody whose client lives was granted.
//   - No znode, watch, session or goroutine is left, and no znode where no view leads.
//   - No guarded write that has succeeded was applied after a later holder's grant, by
//     the ensemble's own transaction numbers.
//   - A release that succeeded was one of a lease that was never lost.
//   - A rush of clients has not made a herd of requests.
//   - The history of grants, ends, guarded writes and limits is linearizable, as
//     porcupine judges it: see model.go.
//
// Against a session that an operator has ended no clock helps: what its client
// believes until it knows is excepted, its token and its guard are not.
//
// # How to know that it finds anything
//
// testdata/mutants has sources with one thing broken, and TestMutantsAreFound looks
// for each of them. What breaks the library in a new way, and is not found, wants a
// better simulator.
//
// # How it is put together
//
// plan.go draws, view.go the clients' views, remake.go what happens to directories;
// world.go builds, plays and cleans up; weather.go is the faults, worker.go
// the goroutines that contend, nest.go what they do under a lease; ledger.go writes the history of the tenures
// in tenure.go, and has it checked while it is written: belief.go who holds, waiting.go
// who waits, fencing.go the tokens; model.go has it judged. An option of a recipe that
// changes how and not what, such as handing over at home, is one more thing to draw and
// to give to its constructor in newWorker.
package sim
