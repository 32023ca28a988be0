// Package sim tests the recipes under random faults in virtual time, and checks
// everything that a lock library must guarantee.
//
// A [Plan] is drawn from one seed. It says which recipe is used, how many
// clients and goroutines there are, what each of them does when, and what fails
// meanwhile. [Run] runs a plan in its own bubble, over the embedded ensemble
// and the real wire client, in about ten milliseconds. The same seed always
// gives the same plan. Three things still differ between runs of it: the order
// that Go's scheduler chooses for events of the same instant, the random ids,
// and the random pauses of the library. So a seed that has failed may have to
// be run several times to fail again.
//
// In two fifths of the plans the workers contend for nothing. Some change a
// tree that caches follow, or keep presence nodes and members of groups. Others
// count, write once with a marker, meet at barriers, or register instances of
// services.
//
// In half of the plans each client sees the ensemble through a view: a chroot,
// a namespace, both, or neither. All views lead to the same locks under
// different paths. The checks use the paths of the ensemble.
//
// In a third of the plans with locks the goroutines of a client have a value
// each, in views and with options that differ: lingering, handoffs, the longest
// hold, releases that do not wait, data and ACL. They are still one lock. What
// is acquired under a lease may be of another value, and the goroutines of a
// client may share one candidate, which runs beside their acquisitions. Session
// timeouts are mostly some seconds, and otherwise from half a second to a
// minute.
//
// # What fails
//
//   - Members: they are stopped (leaders first), paused, cut off from the
//     others, slowed down, made deaf, or made to answer nothing but pings.
//     Their clocks run faster or slower than the clients', by up to a tenth:
//     the stop margin.
//   - Clients: they are cut off in one direction or both, disconnected, sent
//     everything late, killed or closed, and an operator ends their sessions.
//   - Processes: they are killed, and what they had told a guardian is closed
//     soon, later, not, or in part. See guardians.go.
//   - Single requests: they are refused, executed late, not executed, or
//     executed without an answer; or the leader stops while they are in flight.
//   - Callers: they cancel at any instant, also when another goroutine of their
//     client releases and may have chosen them. They give up writes, or release
//     while a write is in flight. They keep working under a lease that they
//     have lost, and send a write that its guard must refuse.
//   - Servers and options at their limits: members that differ in their ticks
//     and in what session timeouts they grant, a member behind another one,
//     late reports, round trips of up to a quarter of the session timeout, stop
//     margins and server ticks up to what is allowed. See limits.go for which
//     of them leases must survive; for all others only safety is judged.
//   - Connects: they are answered late, or not, or reach the leader late, and
//     what the client sends after them is lost.
//   - Events, on their way to a client with caches or presence nodes.
//   - The ensemble, where caches, presence nodes and registrations follow it:
//     another one takes its place, restored from a copy with all sessions, or
//     rebuilt by the same script. See replace.go.
//   - The servers: clients are given other lists, and move. Members are
//     replaced by others at other addresses, which clients that track their
//     ensemble follow. That happens in plans without other faults, too: no
//     lease may be lost for it, and nobody is at a member that stops. See
//     moves.go.
//   - Sessions that have room for few ephemeral znodes: see full.go.
//   - Observers: they panic, block, or call back into the library.
//   - A round of a barrier has crashed before, and perhaps a neighbor stands
//     there since. A barrier has a child that is no member.
//   - Directories: an empty directory is removed, and created again with a
//     counter near the old one. That happens at any time, just after a
//     contender has left, or while a contender returns. It also happens in
//     plans without other faults. With all contenders, it happens while a read
//     of the line is in flight.
//
// Some faults wait until a client is sent an event about a write, and then
// strike that client, because its knowledge is newest at that moment. At most
// one member at a time is in trouble. With framework.ProofSync it is never a
// leader that stays in office: what these guarantees do not cover is said in
// their documentation.
//
// # Staged plans
//
// A staged plan is written by hand, for package faults. It is the same each
// time it runs: its clients have latencies of their own, and package random
// draws no lots. The run records its moments, in moment.go: each message as it
// leaves the client, as a member executes it and as the answer arrives, and
// what the callers do. Each [Fault] of a staged plan happens at one of them,
// and those of drawn plans at a time. Once something has happened, holders keep
// what they hold for longer, so that what it does can show. Moments are in this
// package, and not in package faults, since the world has to be at each of
// them, and a fault may do what it does at any.
//
// # What is checked
//
// After each event, and directly after each instant at which sessions expire:
//
//   - No two conflicting holders exist at once, by what any client can know:
//     Lost, Held, and the Deadline before which no one else may be granted.
//   - Every client that believes it holds a lock has a znode in a live session.
//   - Tokens are in order. A nested lease has the token of the outer lease.
//   - No guarded write was applied after a later holder's grant, whatever the
//     writer was told.
//   - A holder reads no data of before its grant.
//   - A waiter that can be granted is granted soon. So a lost wakeup cannot
//     hide behind the next event.
//
// At the end:
//
//   - Every waiter with a live client was granted.
//   - No znode, watch, session or goroutine is left, and no znode stands
//     outside of the views. That holds for watches also while a client keeps a
//     cache above everything else.
//   - No guarded write that succeeded was applied after a later holder's grant,
//     by the ensemble's own transaction ids.
//   - A lease whose release succeeded was never lost.
//   - A rush of clients has not caused a thundering herd of requests.
//   - The history of grants, ends, guarded writes and limits is linearizable,
//     as judged by porcupine: see model.go.
//
// What caches and presence nodes say is compared with the log of what the
// ensemble has committed:
//
//   - Each view shows each znode in a state that it had at the view's Zxid or
//     later, and never in an earlier one than the view before. The batches of a
//     listener add up to its view.
//   - Fresh and Reach return what was committed when they were called. A cache
//     of a client without a connection does not say that it is synced.
//   - A presence node changes no znode of another session. What it says was
//     true. Its znode is gone when Close returns, and never comes back.
//   - When all is quiet, and again soon after all sessions have expired once
//     more, the caches show what is, the nodes stand, and the groups have the
//     members that there are.
//
// The same log says what counters and barriers have done:
//
//   - Each call that adds to a number has a binary digit of its own, and each
//     that sets it a value of its own. So each state of the znode says which
//     calls were executed, how often and when. A call that has returned nil was
//     executed once, in between, and its value is right; one that has failed
//     never was, unless framework.MaybeApplied says so; an id or a marker
//     counts once; blocks of numbers do not overlap.
//   - Each round of a double barrier was opened while n members stood. Who has
//     entered belonged to a round, and who has left was left by the others. A
//     ready is not removed while its round goes on. No member misses a round
//     that was opened with its znode. An Enter does not fail while n members
//     stand, unless it is canceled, and leaves nothing.
//     Whatever has happened, another round can follow, and leaves nothing.
//   - No instance of a service is deleted and made again while its session
//     lives. For the rest an instance is judged as a presence node. Who follows
//     a service sees only instances that were, with Fresh those that are, and
//     when all is quiet the same as the ensemble has.
//
// No clock helps against a session that an operator has ended. What its client
// believes until it learns of that is not checked; its token and its guard are.
//
// # How to know that it finds anything
//
// testdata/mutants has edits that each break one thing in the library, and
// TestMutantsAreFound checks that the simulator finds each of them. If the
// library can be broken in a way that is not found, improve the simulator.
//
// # How the code is organized
//
//   - plan.go draws plans, limits.go what servers and options allow, wide.go
//     what goes beyond most plans, view.go the clients' views, value.go what
//     the goroutines of a client differ in, recreate.go what happens to
//     directories.
//   - fault.go has what can fail, and its text. strike.go says when it happens,
//     and deed.go does it: member.go to members, request.go to single requests.
//   - moves.go changes the clients' lists of servers, and the members.
//   - guardians.go closes what killed clients have left, and process.go that of
//     two clients which are one process.
//   - replace.go replaces the ensemble, and says what is judged across that.
//   - full.go draws full sessions, and judges what they refuse.
//   - moment.go names the moments of staged plans, and tap.go sees them.
//   - mutant.go compiles the tests with one thing broken.
//   - world.go builds a run, runs it and cleans up. observers.go has observers
//     that disturb it.
//   - worker.go has the goroutines that contend, nest.go what they do under a
//     lease.
//   - watched.go draws what has caches and presence nodes. follow.go and
//     stand.go run and judge them, truth.go knows what was committed, and
//     quiet.go compares when all is quiet.
//   - counted.go draws what has numbers, barriers and registrations. count.go
//     and round.go run and judge them, stand.go the registrations, and
//     consumer.go those who follow these.
//   - ledger.go records the history of the holdings in holding.go. While it is
//     recorded, check_holders.go, check_waiters.go and check_fencing.go check
//     it. model.go has it judged in the end.
//
// To cover a new option of a recipe that changes how it works but not what it
// promises, draw it in value.go, where the options of constructors are made.
package sim
