package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/cycles"
)

// work is what all peers do: threads acquire and release locks, with nothing in
// between. Thread i of a process uses lock i modulo locks. Counters and
// barriers have works of their own: see adding and meeting.
type work struct {
	name           string
	threads, locks int // of each process
	processes      int // 0: the peer's only process
}

// outcome is what was done in one measurement.
type outcome struct {
	cycles          int64
	took            time.Duration
	median, longest time.Duration // of the cycles of a process, if the work has processes
	evenness        float64       // the fewest cycles of a process, as a part of the most
}

// A peer is one lock, with the clients that it needs.
type peer interface {
	// run does the work for d.
	run(ctx context.Context, w work, d time.Duration) (outcome, error)
	close()
}

// place is where a peer works.
type place struct {
	address string // of the server
	root    string // the path of its locks
	dir     string // for its files
}

// entry is a peer that has not been started.
type entry struct {
	name   string
	server func(*site, context.Context) (*server, error)
	start  func(ctx context.Context, at place) (peer, error)
	parts  string // where it is measured
	alone  bool   // it works in its own process
}

// in reports whether the entry is measured in a part.
func (e entry) in(part string) bool { return slices.Contains(strings.Fields(e.parts), part) }

// ours begins the name of the first peer of each part, which all others are
// compared with.
const ours = "zkrecipes"

var entries = []entry{
	{ours, (*site).zookeeper, startOurs(), "peers locks members processes", false},
	{"zkrecipes, async release", (*site).zookeeper, startOurs(async), "peers locks members", false},
	{"zkrecipes, not batched", (*site).zookeeper, startUnbatched, "peers locks members", false},
	{"zkrecipes, lingering", (*site).zookeeper, startOurs(lingering), "peers", false},
	{"zkrecipes, no handoffs", (*site).zookeeper, startOurs(noHandoffs), "peers processes", false},
	{"floor: create, list, delete", (*site).zookeeper, startFloor, "peers locks members", false},
	{"the wire client's Lock", (*site).zookeeper, startWireLock, "peers locks members processes", false},
	{"Curator InterProcessMutex", (*site).zookeeper, startCurator("mutex", session), "peers locks members processes", true},
	{"Kazoo Lock", (*site).zookeeper, startKazoo("lock", session), "peers locks members processes", true},
	{"etcd concurrency.Mutex", (*site).etcd, startEtcd, "peers locks processes", false},
	{"Redis SET NX", (*site).redis, startRedis, "peers locks", false},

	{ours + " Counter", (*site).zookeeper, startAdding(add), "counters forgotten lost", false},
	{ours + " Counter, AddOnce", (*site).zookeeper, startAdding(addOnce), "counters lost", false},
	{"floor: get and versioned set", (*site).zookeeper, startBareAdding, "counters forgotten", false},
	{"Curator DistributedAtomicLong", (*site).zookeeper, startCurator("counter", session), "counters forgotten lost", true},
	{"Kazoo Counter", (*site).zookeeper, startKazoo("counter", session), "lost", true},

	{ours + " Double", (*site).zookeeper, startMeeting, "barriers", false},
	{"Curator DistributedDoubleBarrier", (*site).zookeeper, startCurator("barrier", session), "barriers", true},

	{guardedHolder, (*site).zookeeper, startHolder(true), "failover", false},
	{plainHolder, (*site).zookeeper, startHolder(false), "failover", false},
	{"Curator InterProcessMutex", (*site).zookeeper, startCurator("hold", failoverSession), "failover", true},
	{"Kazoo Lock", (*site).zookeeper, startKazoo("hold", failoverSession), "failover", true},
	{"etcd lease and Mutex", (*site).etcd, startEtcdHolder, "failover", false},
}

// mostThreads is the number of threads, and of locks, of the largest work.
const mostThreads = 1024

// drive does the work for a time. It passes cycle the numbers of the thread and
// of its lock.
func drive(ctx context.Context, w work, d time.Duration, cycle func(ctx context.Context, thread, lock int) error) (outcome, error) {
	l := cycles.Load{Goroutines: w.threads, Locks: w.locks, For: d}
	if w.processes > 0 {
		l.Times = new(cycles.Times)
	}
	n, took, err := l.Run(ctx, cycle)
	got := outcome{cycles: n, took: took, evenness: 1}
	if l.Times != nil {
		got.median, got.longest = l.Times.Quantile(0.5), l.Times.Quantile(1)
	}
	return got, err
}
