package managed_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// rtt is a round trip in the tests of group commit.
const rtt = 100 * time.Millisecond

// lines is a session with the directories /line/0, /line/1, ..., whose round
// trips take rtt, and a record of what the ensemble is asked for.
type lines struct {
	*testing.T
	ens  *testutil.Embedded
	net  *testutil.ClientNet
	c    *framework.Client
	sess *framework.Session

	mu   sync.Mutex
	seen []testutil.Request // writes, syncs and lists
}

func inLines(t *testing.T, directories int, scenario func(t *testing.T, l *lines), opts ...framework.Option) {
	t.Helper()
	inLinesOf(t, nil, directories, scenario, opts...)
}

// inLinesOf is inLines in an ensemble with options.
func inLinesOf(t *testing.T, of []testutil.Option, directories int, scenario func(t *testing.T, l *lines), opts ...framework.Option) {
	t.Helper()
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens, opts...)
		l := &lines{T: t, ens: ens, net: network, c: c, sess: session(t, c)}
		for i := range directories {
			must(t, l.sess.MakePersistentPath(t.Context(), line(i)))
		}
		ens.Latency(rtt / 2)
		defer ens.Control(func(r testutil.Request) testutil.Action {
			switch r.Op {
			case testutil.OpCreate, testutil.OpDelete, testutil.OpMulti, testutil.OpSync, testutil.OpGetChildren2, testutil.OpMultiRead:
				l.mu.Lock()
				defer l.mu.Unlock()
				l.seen = append(l.seen, r)
			}
			return testutil.Pass()
		})()
		time.Sleep(10 * time.Millisecond) // away from the heartbeats
		scenario(t, l)
	}, of...)
}

func line(i int) string { return fmt.Sprint("/line/", i) }

// knowsMultiRead has the client find out that the server has multiRead.
func (l *lines) knowsMultiRead() {
	l.Helper()
	_, err := l.c.ReadAll(l.Context(), framework.Read{Path: "/line"})
	must(l.T, err)
	l.take()
}

// requests returns how many requests of each kind there were since the last
// call.
func (l *lines) requests() map[testutil.Op]int {
	n := make(map[testutil.Op]int)
	for _, r := range l.take() {
		n[r.Op]++
	}
	return n
}

func (l *lines) take() []testutil.Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.seen = nil }()
	return l.seen
}

// multis is take for multis alone.
func (l *lines) multis() []testutil.Request {
	return slices.DeleteFunc(l.take(), func(r testutil.Request) bool { return r.Op != testutil.OpMulti })
}

func (l *lines) want(want map[testutil.Op]int) {
	l.Helper()
	if got := l.requests(); !maps.Equal(got, want) {
		l.Errorf("requests %v, want %v", got, want)
	}
}

// joined is the result of a create that join has begun.
type joined struct {
	framework.Created
	err  error
	took time.Duration
	done bool
}

// join begins to create a contender in each of the directories.
func (l *lines) join(ctx context.Context, dirs ...string) (results []*joined, wait func()) {
	var all sync.WaitGroup
	for _, dir := range dirs {
		r := &joined{}
		results = append(results, r)
		began := time.Now()
		all.Go(func() {
			r.Created, r.err = l.sess.CreateProtected(ctx, dir, "lock-", nil, sequential)
			r.took, r.done = time.Since(began), true
		})
	}
	return results, all.Wait
}

// occupy has as many creates under way, in line 0, as hold other creates back.
func (l *lines) occupy() (wait func()) {
	var waits []func()
	for range managed.UnderWay {
		_, wait := l.join(l.Context(), line(0))
		waits = append(waits, wait)
		time.Sleep(rtt / 20)
	}
	return func() {
		for _, wait := range waits {
			wait()
		}
	}
}

// joinAll joins the directories of the given numbers and waits. None must fail.
func (l *lines) joinAll(numbers ...int) []*joined {
	l.Helper()
	var dirs []string
	for _, i := range numbers {
		dirs = append(dirs, line(i))
	}
	results, wait := l.join(l.Context(), dirs...)
	wait()
	for i, r := range results {
		if r.err != nil {
			l.Fatalf("%s: %v", dirs[i], r.err)
		}
		l.stands(r)
	}
	return results
}

// stands checks that a create has one znode, which its list shows.
func (l *lines) stands(r *joined) {
	l.Helper()
	at := strings.LastIndexByte(r.Path, '/')
	if !slices.Contains(r.Children, r.Path[at+1:]) {
		l.Errorf("the list %v does not show %s", r.Children, r.Path)
	}
	if data := l.ens.Children(r.Path[:at]); !slices.Contains(data, r.Path[at+1:]) {
		l.Errorf("%s has %v", r.Path, data)
	}
}

// leave deletes znodes at once, and waits.
func (l *lines) leave(paths ...string) (errs []error) {
	errs = make([]error, len(paths))
	var all sync.WaitGroup
	for i, path := range paths {
		finish := inside(l.sess).StartDelete(context.Background(), path, false)
		all.Go(func() { errs[i] = finish() })
	}
	all.Wait()
	return errs
}

// left checks that nothing is left in any line, after a while.
func (l *lines) left(directories int, want ...string) {
	l.Helper()
	time.Sleep(2 * timeout)
	for i := range directories {
		for _, name := range l.ens.Children(line(i)) {
			if path := line(i) + "/" + name; !slices.Contains(want, path) {
				l.Errorf("%s is left", path)
			}
		}
	}
}

// below returns the paths of what is in a line.
func (l *lines) below(i int) (all []string) {
	for _, name := range l.ens.Children(line(i)) {
		all = append(all, line(i)+"/"+name)
	}
	return all
}

func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

func paths(results []*joined) (all []string) {
	for _, r := range results {
		all = append(all, r.Path)
	}
	return all
}
