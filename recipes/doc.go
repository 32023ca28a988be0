// Package recipes has what all recipes share: a [Lease] on what was acquired, the
// fencing [Token] that it carries, [Do] for work under a lease, and the ways in
// which an acquisition re-enters what its caller holds already.
//
// # What a lease promises
//
// Grants exclude each other by ZooKeeper: a lease is given out only to the one
// whose znode has its turn. Knowledge excludes by a deadline: a lease is declared
// lost (Lost, Context, Held) a stop margin before the ensemble could let somebody
// else in, whether or not any server can be reached by then. The deadline moves on
// while heartbeats that make a round trip to the leader are answered. A short
// disconnect costs no lease.
//
// What remains is yours: a process that is paused beyond its deadline and acts
// late, and work that does not stop within the margin. Against these a resource
// must look at the lease's [Token], or the write must carry the lease's Guard.
//
// # Re-entry
//
// Go has no thread to key by. The context carries a chain of live leases instead:
// acquiring with a context that carries a lease on the very same lock gives
// another lease on it at once. **Goroutines that share one lease's context share
// that lease**: to exclude each other they must acquire with a context from
// outside of it. Where the context cannot be passed on there is [WithOwner].
package recipes
