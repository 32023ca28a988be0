// Package inspect shows who holds a lock and who waits for it, and finds
// deadlocks. It only reads znodes, so the processes that use the locks do not
// notice. They may use this module, Apache Curator, Kazoo or go-zookeeper.
//
//   - [Read] reads one path: the recipe, its holders, its waiters in order.
//   - [Tree] finds every line below a path.
//   - [FindDeadlocks] finds sessions that wait for each other.
//
// A contender is a holder or a waiter. A line is one lock, election or
// semaphore, with its contenders in order. The recipe is recognized by the
// names of the znodes. Each znode is read separately, so a result may mix the
// states before and after a change. A znode that is deleted meanwhile is left
// out, without an error.
//
// # Cost
//
// ZooKeeper cannot list a subtree in one request. So a tree costs a sync, a
// list for each znode that is not a contender, and a read for each contender.
// Without details ([WithoutDetails]), and in FindDeadlocks where nobody waits,
// holders are not read. With a [framework.Client] and servers from 3.6 on, up
// to 256 lists and reads share a request: 10,000 locks, each held, cost about a
// hundred requests. Otherwise each is a request, and at most 16 are under way
// at a time. See [WithConcurrency] and [WithRate].
package inspect
