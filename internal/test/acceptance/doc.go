// Package acceptance holds the test suites that cover all recipes at once. It
// has no code of its own, only tests:
//
//   - Scenarios of each recipe that run on both kinds of ensemble: the embedded
//     one (ring 2), and real Apache ZooKeeper (ring 3, with ZKR_REAL=1).
//     leader_test.go, rwlock_test.go, semaphore_test.go and several_test.go
//     cover one recipe each, every_recipe_test.go what all recipes promise;
//     stage_test.go runs them.
//   - Processes that contend for the same locks: ours, Apache Curator's in Java
//     (testdata/Neighbor.java) and Kazoo's in Python (testdata/neighbor.py).
//     See neighbor_test.go for the protocol that drives them.
//   - Processes that are killed or frozen (process_signal_test.go), and members
//     that fail under load (members_fail_test.go, soak_test.go). Holders append
//     to a ledger, which package load judges. The tests that cut the network
//     are in module cutnet.
//   - What went wrong in other systems (track_record_test.go), what grows over
//     days (growth_test.go), and user callbacks that block or panic
//     (blocked_callbacks_test.go, observed_test.go), in virtual time.
//
// Tests of one source file of package recipes stand next to it, in recipes.
package acceptance
