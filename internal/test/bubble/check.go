package bubble

import (
	"flag"
	"maps"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Exclusion checks that never two goroutines are inside.
type Exclusion struct {
	T       testing.TB
	Entered atomic.Int32
	inside  atomic.Int32
}

// Enter counts a goroutine in.
func (e *Exclusion) Enter() {
	e.Entered.Add(1)
	if n := e.inside.Add(1); n != 1 {
		judge.Errorf(e.T, "%d inside", n)
	}
}

// Leave counts it out.
func (e *Exclusion) Leave() { e.inside.Add(-1) }

// ReleaseAtOnce releases a lease, which must take no time.
func ReleaseAtOnce(t testing.TB, l *recipes.Lease) {
	t.Helper()
	start := time.Now()
	Release(t, l)
	if took := time.Since(start); took != 0 {
		t.Errorf("Release took %v", took)
	}
}

// Without returns counts of requests without those of one operation.
func Without(counts map[testutil.Op]int, op testutil.Op) map[testutil.Op]int {
	counts = maps.Clone(counts)
	delete(counts, op)
	return counts
}

// Set returns a write of a znode, whatever its version.
func Set(path, data string) *zk.SetDataRequest {
	return &zk.SetDataRequest{Path: path, Data: []byte(data), Version: -1}
}

var seed = flag.Uint64("bubble.seed", 0, "seed of the random tests; 0: a new one")

// Random returns a source. Its seed is logged if the test fails.
func Random(t testing.TB) *rand.Rand {
	t.Helper()
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-bubble.seed=%d", s)
	return rand.New(rand.NewPCG(s, 0))
}

// StoppedBehind checks that a listener that is stopped while it is behind is
// not called again. listen registers a function; change causes another call.
func StoppedBehind(t testing.TB, listen func(hear func()) (stop func()), change func()) {
	t.Helper()
	release := make(chan struct{})
	var calls atomic.Int32
	stop := listen(func() {
		calls.Add(1)
		<-release
	})
	synctest.Wait()
	change()
	synctest.Wait()
	stop()
	close(release)
	synctest.Wait()
	if n := calls.Load(); n != 1 {
		t.Errorf("called %d times", n)
	}
}
