// Package recipes has what all recipes share: the [Lease] on what was acquired,
// the fencing [Token] that it carries, [Do] for work under a lease, the
// options, and [Line], which locks of your own are built on. Packages locks,
// rwlock, semaphore and leader use Line; the others do not.
//
// # What a lease promises
//
// ZooKeeper decides who is granted: a lease is granted only if no conflicting
// znode is ahead of its own. The client decides when to stop: it declares a
// lease lost (Lost, Context, Held) one stop margin before another client could
// be granted the lock, even if no server can be reached. The stop margin is
// framework.WithStopMargin, a tenth of the session timeout by default. The
// deadline moves on while heartbeats that make a round trip to the leader are
// answered. A short disconnect costs no lease.
//
// It cannot help if a process is paused beyond its deadline and acts late, if
// work does not stop within the margin, or if a person deletes the znode or
// closes the session on a server. Against these, check the lease's [Token] at
// the resource, or write with its Guard.
//
// # Re-entry
//
// Go has no thread to key by. The context carries a chain of live leases
// instead: an Acquire with a context that carries a lease on the very same lock
// returns another lease on it at once. **Goroutines that share one lease's
// context share that lease**: to exclude each other they must acquire with a
// context that does not carry it. Where the context cannot be passed on there
// is [WithOwner]; [WithoutReentry] turns re-entry off.
//
// # Building your own recipe
//
// A [Line] is the algorithm of all locks and elections here. You give it three
// things: a kind, a name and a rule.
//
//   - The kind says which rule it is, with its version: "range.v1". Contenders
//     of two kinds refuse each other's path with [ErrLayout], so that an old
//     release with another rule can never stand in the line unseen.
//   - The name is the contender's: "w=15,30". It stands in the znode's name, so
//     that one list of the directory shows the names of all contenders.
//   - The rule is a pure function of two names: does the one conflict with the
//     other?
//
// This is all of a lock of ranges, in which readers of a range share it
// (examples/rangelock has the rest, with its tests):
//
//	func conflicts(mine, theirs string) bool {
//		a, okA := parse(mine)
//		b, okB := parse(theirs)
//		if !okA || !okB {
//			return true // a name that it cannot read conflicts with every other
//		}
//		return a.from < b.to && b.from < a.to && (a.writes || b.writes)
//	}
//
//	func (l *Lock) Write(from, to uint64) (recipes.Acquirer, error) {
//		name := fmt.Sprintf("w=%d,%d", from, to)
//		return recipes.NewLine(l.client, l.path, "range.v1", name, conflicts)
//	}
//
// Guaranteed: the order of arrival, in which no contender overtakes another;
// up to three watches for each that waits, and no thundering herd: see [Line];
// leases that tell of their loss in time; tokens and guards; re-entry; handoffs
// between goroutines; sharing, where a name does not conflict with itself;
// nothing left behind, whatever the network or the caller does.
//
// Check these:
//
//   - Is the rule the same in all processes? Change the kind with the rule.
//   - Does the rule only look at the two names? Not at the time, a
//     configuration, or who holds: those may differ between two processes that
//     ask.
//   - Must a resource tell two holders apart? Tokens order the leases that
//     conflict. Where holders stand side by side it must compare tokens per
//     conflict: a range, for example, with the greatest token among those that
//     overlap it.
//   - May one caller hold two names? Acquire fails with [ErrDeadlock] where
//     they conflict and the context carries the first. It misses a deadlock
//     through a third contender that waits for the first name while the second
//     waits for it. Acquire all names together, by locks.All, which never
//     waits for one name while it holds another, or with a timeout.
//
// What you need not worry about: two contenders that conflict are never granted
// together, since the later one always waits; nobody starves, since no
// contender overtakes; a rule that panics fails the call and grants nothing. Do
// not build what overtakes, such as priorities, into a rule: the names do not
// say who holds and who waits. Use a line to decide who may try, and a mutex
// that is tried: examples/prioritylock.
package recipes
