package main

import (
	"context"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/measure"
)

// work is what all peers do: threads of one process acquire and release locks,
// with nothing in between. Thread i uses lock i modulo locks.
type work struct {
	name           string
	threads, locks int
}

var works = []work{
	{"one thread", 1, 1},
	{"16 threads, one lock", 16, 1},
	{"16 threads, 16 locks", 16, 16},
}

// A peer is one lock, with the clients and servers that it needs.
type peer interface {
	// run does the work for d and returns the cycles a second.
	run(ctx context.Context, w work, d time.Duration) (float64, error)
	close()
}

// entry is a peer that has not been started.
type entry struct {
	name  string
	start func(ctx context.Context, s *site) (peer, error)
}

// ours is the peer that all others are compared with.
const ours = "zkrecipes"

var entries = []entry{
	{ours, startOurs()},
	{"zkrecipes, lingering", startOurs(lingering)},
	{"zkrecipes, one by one", startOurs(oneByOne)},
	{"floor: create, list, delete", startFloor},
	{"the wire client's Lock", startWireLock},
	{"Curator InterProcessMutex", startCurator},
	{"Kazoo Lock", startKazoo},
	{"etcd concurrency.Mutex", startEtcd},
	{"Redis SET NX", startRedis},
}

// drive does the work for a time and returns the cycles a second. It passes
// cycle the numbers of the thread and of its lock.
func drive(ctx context.Context, w work, d time.Duration, cycle func(ctx context.Context, thread, lock int) error) (float64, error) {
	cycles, took, err := measure.Load{Goroutines: w.threads, Locks: w.locks, For: d}.Run(ctx, cycle)
	if err != nil {
		return 0, err
	}
	return float64(cycles) / took.Seconds(), nil
}
