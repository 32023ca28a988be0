// Package counter provides numbers that the clients of an ensemble share. It
// counts exactly, reserves ids in blocks, and makes an addition once for an id,
// even if the process is restarted.
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
//     client's retry policy. If you cannot accept that, use [Counter.AddOnce].
//     The ensemble stores its id and amount for a day ([WithMarkerAge]), or
//     less if a leader's clock was slow. So you can repeat the same call until
//     it succeeds, even in another process.
//   - All of them, and Get, take effect one after the other, each between its
//     call and its return: as if there were one number in one process. For Get,
//     and a CompareAndSet that returns false, that is as exact as a sync: a
//     sync at a server that is the leader itself may be answered before writes
//     that were committed a moment before.
//   - If a sum needs more bits than the layout has, the call fails with
//     [ErrOverflow]. If the znode's data are not a number, it fails with
//     [ErrData]. Nothing is written then. Set replaces any data.
//
// # Cost
//
// Goroutines of a process add together: while a write is under way, the next
// additions collect, and go out as one write of their sum. Each gets its own
// value. So a process has one write under way for each counter. A write is one
// multi. It sets the counter and a receipt, an ephemeral znode of this session
// in <path>-receipts. The receipt names the last write that was executed: if
// the answer is lost, the process reads it there. The file write.go has the
// argument.
//
// Processes compete by versions. After some conflicts in a row, a process takes
// the mutex <path>-lock. A process that writes without a pause checks every 100
// ms, by one request, whether others wait for the mutex. If so it waits in line
// with them. Otherwise the process nearest to the ensemble would always win.
//
// A process that has not used a counter for a minute removes its receipt, and
// the next write makes another one.
//
// # Neighbors
//
// The counter's znode is as Apache Curator and Kazoo write it: see [Layout].
// Their additions and ours can be mixed, and ours stay exact. Theirs may count
// twice if an answer is lost. The count can be wrong in these cases:
//
//   - Somebody writes without a version, as SharedCount's setCount does. That
//     overwrites additions of ours.
//   - If somebody deletes the znode, the count begins at [WithInitial] again.
//     Versions also begin at 0 again. If the new znode reaches the version
//     that this process knows within a second, the old count goes on. That time
//     is longer while the server of this process lags, a write waits for a
//     connection, or an AddOnce is repeated.
//   - If somebody deletes a receipt, an addition that is under way is
//     MaybeApplied. If somebody deletes the markers in <path>-once, their ids
//     are forgotten. If somebody deletes <path>-once, the age in its data is
//     lost until a counter with WithMarkerAge writes it again.
package counter
