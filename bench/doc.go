// Command bench measures the recipes of several makers at the same work and
// writes their tables to bench/results, and some to docs/performance.md. The Go
// benchmarks of internal/test/measure are a part of that: it compiles and runs
// them.
//
// It always measures this library's Mutex, the wire client's own Lock, and the
// create, list and delete that a lock cannot do without. It also measures
// Apache Curator, Kazoo, etcd and Redis if they are installed (Debian:
// libcurator-recipes-java, libcurator-discovery-java and a JDK, python3-kazoo,
// etcd-server, redis-server).
//
// It starts one server of each kind on a free port, with data in a temporary
// directory: ZooKeeper standalone and etcd with their defaults, Redis with its
// log written to the disk at each write. So all three have their grants on the
// disk. In addition to the cycles a second, the tables have the processor's
// time of the servers and the transactions of ZooKeeper, for each cycle.
//
// Some parts need more than one process or member:
//
//   - members: three members of ZooKeeper on this machine
//   - processes: processes of each peer contend for one lock
//   - counters: processes of each peer add to one counter
//   - storm: 1,000 clients hold and wait while members are killed
//   - clients: 1,000 clients that change nothing, and the leader's processor
//   - outage: 200 clients with a cache each, whose leader is killed
//   - failover: processes of each peer hold one lock in turn, and are killed
//   - ensembles: holders with a guardian are killed, at members of each kind
//
// The parts caches, creates and outage have peers of their own: the bare wire
// client, bare multiReads, Curator's CuratorCache and Kazoo's TreeCache. Each
// copies the tree in a process of its own. The parts nodes and services compare
// presence and discovery; in the part consumers 200 clients follow three of a
// thousand services each. In the part lost the answers to some additions are
// lost; in the part markers old markers of AddOnce are collected.
//
// The parts storm and clients need a thousand open files and some more.
//
//	go run . -write ..                              # everything: an hour on a quiet machine
//	go run . -parts peers -rounds 7 -for 3s         # the peers alone, to the terminal
//	go run . -parts storm,clients -clients 100      # smaller
//
// Absolute figures depend on the machine and its disk, so compare ratios. A
// ratio is the median of the rounds' ratios. In a round all peers run right
// after each other, so that other load on the machine affects all of them.
//
// For one ensemble of yours, zkr bench measures the recipes by themselves.
package main
