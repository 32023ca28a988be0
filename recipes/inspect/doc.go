// Package inspect shows from outside who holds what and who waits for what, and
// finds deadlocks. It reads znodes only: the processes that use the locks need
// not know, and may use this module, Apache Curator, Kazoo or go-zookeeper.
//
//   - [Read] reads one path: the recipe, its holders, its waiters in order.
//   - [Tree] finds every line below a path.
//   - [FindDeadlocks] finds sessions that wait for each other.
//
// A line is the contenders of one lock, election or semaphore. The recipe is
// recognized by the names of the znodes. Each znode is read separately, so a
// change meanwhile may show in part. A znode that is deleted meanwhile is left
// out, and is no error.
//
// # Cost
//
// ZooKeeper can neither list a subtree nor read several znodes in one request
// (before 3.6). So a tree costs a sync, a list for each znode that is not a
// contender, and a read for each contender. At most 16 requests are under way at
// a time: see [WithConcurrency] and [WithRate]. For 10,000 directories with one
// holder each that is
//
//	Tree                      20,002 requests
//	Tree with WithoutDetails  10,002
//	FindDeadlocks             10,002, since nobody waits
//
// where one request more is the list of the directory above, and one the sync.
package inspect
