// Package counter has numbers that the clients of an ensemble share: counts
// that are exact, ids in blocks, and additions that are made once, whatever
// happens.
//
//	orders, err := counter.New(client, "/ids/order")
//	after, err := orders.Add(ctx, 1)
//	first, err := orders.Reserve(ctx, 1000)            // first to first+999
//	r, err := orders.AddOnce(ctx, "invoice-4711", 1)   // once for this id
//
// # What is promised
//
//   - If Add, Reserve, CompareAndSet or Set return nil, they were executed
//     once, also if connections broke and answers were lost meanwhile. If the
//     error is one for which [framework.MaybeApplied] is true, they were
//     executed once or not at all, or will be. After any other error they were
//     not executed, nor will be.
//   - Add is MaybeApplied only if the request was open when ctx ended, when the
//     session was lost, or when no server had answered for the time of the
//     client's retry policy. Where that must not be, [Counter.AddOnce] has an
//     id that outlives all of these, and the process: the same call can be made
//     again until it succeeds.
//   - All of them, and Get, take effect one after the other, each between its
//     call and its return: as if there were one number in one process. For Get,
//     and a CompareAndSet that returns false, that is as exact as a sync: a
//     sync at a server that is the leader itself may be answered before writes
//     that were committed a moment before.
//   - A sum that does not fit into the layout's bits, and data that are no
//     number in it, are errors that show the data. Nothing is written then. Set
//     replaces any data.
//
// # Cost
//
// Goroutines of a process add together: while a write is under way, the next
// additions collect, and go out as one write of their sum. Each gets its own
// value. So a process has one write under way for each counter, and a write is
// one request: a multi that sets the counter and the receipt, which is an
// ephemeral znode of this session in <path>-receipts. It says which write was
// executed last, and is how a lost answer is made up for. The file write.go has
// the argument.
//
// Processes compete by versions. After some conflicts in a row, a process takes
// the mutex <path>-lock. One that writes without a pause looks every 100 ms
// whether others are in line for it, which is a request, and joins them if so:
// otherwise one that is nearer to the ensemble would always be quicker.
//
// A process that has not used a counter for a minute removes its receipt, and
// the next write makes another one.
//
// # Neighbors
//
// The counter's znode is as Apache Curator and Kazoo write it: see [Layout].
// Their additions and ours can be mixed, and ours stay exact. Theirs count
// twice if an answer is lost. The following is no longer counted:
//
//   - An addition of ours is overwritten by somebody who writes without a
//     version, such as SharedCount's setCount.
//   - If somebody deletes the znode, the count begins at [WithInitial] again.
//     If it is made again within a second, and has the version that this
//     process knows by then, the old count goes on: versions begin at 0 each
//     time.
//   - If somebody deletes a receipt, an addition that is under way is
//     MaybeApplied. If somebody deletes the markers in <path>-once, their ids
//     are forgotten.
package counter
