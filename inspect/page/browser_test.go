package page_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/inspect/page"
	"github.com/zkrecipes/zkrecipes/internal/test/browser"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// scene is an ensemble with a few clients, and a page about it.
type scene struct {
	t      *testing.T
	e      ensemble
	client *framework.Client // that reads
	page   *httptest.Server
}

// ensemble is an embedded or a real one.
type ensemble interface {
	Servers() string
	Members() int
	Leader() int
	Stop(member int) error
	Restart(member int) error
	ExpireSession(id int64) error
}

func newScene(t *testing.T, opts ...page.Option) *scene {
	t.Helper()
	return newSceneOn(t, testutil.Start(t, testutil.WithMembers(3)), opts...)
}

func newSceneOn(t *testing.T, e ensemble, opts ...page.Option) *scene {
	t.Helper()
	s := &scene{t: t, e: e}
	s.client = s.dial()
	p := page.New(e.Servers(), opts...)
	s.page = httptest.NewServer(http.StripPrefix("/debug/zk", p))
	t.Cleanup(func() { p.Close(); s.page.Close() })
	return s
}

// dial returns a client whose session outlives a busy machine.
func (s *scene) dial(opts ...framework.Option) *framework.Client {
	s.t.Helper()
	c, err := framework.New(s.e.Servers(), append(opts, framework.WithSessionTimeout(40*time.Second))...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

// open opens a page.
func (s *scene) open(b *browser.Browser, at string) { b.Go(s.page.URL + "/debug/zk/" + at) }

func (s *scene) hold(a recipes.Acquirer, err error) *recipes.Lease {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	lease, err := a.Acquire(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return lease
}

// wait lets somebody wait until the test ends, and returns when he stands in
// line.
func (s *scene) wait(a recipes.Acquirer, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	at := a.(interface{ Path() string }).Path()
	before := s.waiting(at)
	go func() { _, _ = a.Acquire(s.t.Context()) }() // the session's end releases it
	for end := time.Now().Add(5 * time.Minute); s.waiting(at) == before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("nobody waits for %s", at)
		}
	}
}

func (s *scene) waiting(at string) int {
	s.t.Helper()
	l, err := inspect.Read(s.t.Context(), s.client, at, inspect.WithoutDetails())
	if err != nil {
		s.t.Fatal(err)
	}
	return len(l.Waiting)
}

func who(format string, args ...any) recipes.DataOption {
	return recipes.WithData([]byte(fmt.Sprintf(format, args...)))
}

// rows returns what the browser shows of each line, by path: its holders, the
// number of waiters, and the first of them.
func rows(b *browser.Browser) map[string]string {
	var all map[string]string
	b.Run(&all, `const who = (r, label) => [...r.querySelectorAll("td[data-label='" + label + "'] .who")].map(e => e.textContent).join(", ");
		return Object.fromEntries([...document.querySelectorAll("table.lines tbody tr")].map(r =>
			[r.querySelector("a").textContent, who(r, "Held by") + "; " + r.querySelector("td.number").textContent + "; " + who(r, "Next in line")]))`)
	return all
}

// same fails the test unless the browser comes to show what inspect says.
func (s *scene) same(b *browser.Browser) {
	s.t.Helper()
	var got, want map[string]string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		forest, err := inspect.Tree(s.t.Context(), s.client, "/")
		if err != nil {
			continue // between two connections
		}
		want = map[string]string{}
		for _, l := range forest.Lines {
			var holders, waiters []string
			for _, c := range l.Holders {
				holders = append(holders, string(c.Data))
			}
			for i, c := range l.Waiting {
				waiters = append(waiters, fmt.Sprintf("%d. %s", i+1, c.Data))
			}
			want[l.Path] = fmt.Sprintf("%s; %d; %s", strings.Join(holders, ", "), len(l.Waiting), strings.Join(waiters, ", "))
		}
		if got = rows(b); maps.Equal(got, want) {
			return
		}
	}
	s.t.Errorf("the page shows %q, want %q", got, want)
}

// leader returns the leader as soon as there is one.
func (s *scene) leader() int {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if member := s.e.Leader(); member >= 0 {
			return member
		}
	}
	s.t.Fatal("no leader within a minute")
	return -1
}

// faults compares what the browser shows with what inspect says while members
// stop, the leader first, and when the holder's session has expired.
func (s *scene) faults(b *browser.Browser) {
	s.t.Helper()
	name := func(i int) recipes.DataOption { return who("web-%d pid %d: sh", i, i) }
	c, d, e := s.dial(), s.dial(), s.dial()
	s.hold(locks.NewMutex(c, "/app/x", name(1)))
	s.hold(semaphore.New(c, "/app/pool", 2, name(1)))
	s.hold(leader.New(d, "/app/leader", leader.WithID("web-2 pid 2")))
	s.open(b, "")
	s.same(b)
	s.wait(locks.NewMutex(d, "/app/x", name(2)))
	s.wait(locks.NewMutex(e, "/app/x", name(3)))
	s.hold(semaphore.New(e, "/app/pool", 2, name(3)))
	s.same(b)
	for range s.e.Members() {
		member := s.leader()
		if err := s.e.Stop(member); err != nil {
			s.t.Fatal(err)
		}
		s.same(b)
		if err := s.e.Restart(member); err != nil {
			s.t.Fatal(err)
		}
	}
	sess, err := c.Session()
	if err == nil {
		err = s.e.ExpireSession(sess.ID())
	}
	if err != nil {
		s.t.Fatal(err)
	}
	b.Await("the next holder", `return document.querySelector("table.lines td[data-label='Held by']:has(.kind)")?.textContent.startsWith("web-2 pid 2: sh")`)
	s.same(b)
}

// TestBrowserSmoke: a real browser shows what inspect says, follows changes
// without a reload, and has nothing to complain of.
func TestBrowserSmoke(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	t.Parallel()
	s := newScene(t)
	b := browser.Open(t, browser.Wide, false)
	c, d := s.dial(), s.dial()
	held := s.hold(locks.NewMutex(c, "/app/x", who("web-1 pid 1: sh")))
	s.open(b, "")
	s.same(b)
	s.wait(locks.NewMutex(d, "/app/x", who("web-2 pid 2")))
	s.same(b)
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Await("the next holder", `return document.querySelector("main").textContent.includes("web-2 pid 2")`)

	// The filter stands in the address while it is typed, and the focus stays.
	s.hold(locks.NewMutex(c, "/other", who("web-1 pid 1")))
	s.same(b)
	b.Run(nil, `const f = document.getElementById("filter"); f.focus(); f.value = "app/"; f.dispatchEvent(new Event("input", {bubbles: true}))`)
	b.Await("the filtered lines", `return document.querySelectorAll("table.lines tbody tr").length === 1 && location.search.includes("filter=app%2F") && document.activeElement.id === "filter" && document.activeElement.value === "app/"`)

	s.open(b, "#A2TOKEN")
	b.Await("no token in the address", `return location.hash === ""`)
	b.Run(nil, `location.hash = "A2TOKEN"`)
	b.Await("no token in the address later", `return location.hash === ""`)
	if all := b.Complaints(); len(all) > 0 {
		t.Errorf("the browser complains: %q", all)
	}
}

// TestBrowserAfterFaults: what the browser shows stays what inspect says.
func TestBrowserAfterFaults(t *testing.T) {
	bubble.Whole(t)
	t.Parallel()
	b := browser.Open(t, browser.Wide, false)
	newScene(t).faults(b)
}

// TestPictures shows every page in two sizes and both colors, and that none is
// wider than its window. It keeps them in ZKR_PICTURES.
func TestPictures(t *testing.T) {
	to := os.Getenv("ZKR_PICTURES")
	if to == "" {
		t.Skip("make pictures")
	}
	watch := page.NewWatch()
	s := newScene(t, page.WithWatch(watch), page.WithRoots("/shop"))
	log := watch.Tee(zap.NewNop())
	here := s.dial(watch.Option(), framework.WithLogger(log))
	clients := []*framework.Client{here, s.dial(), s.dial(), s.dial(), s.dial(), s.dial(), s.dial(), s.dial()}
	name := func(i int) recipes.DataOption { return who("web-%d pid %d: report", i+1, 4711+37*i) }
	s.hold(locks.NewMutex(clients[1], "/shop/locks/invoices", name(1)))
	for i := range 3 {
		s.wait(locks.NewMutex(clients[(i+2)%4], "/shop/locks/invoices", name((i+2)%4)))
	}
	rw, err := rwlock.New(clients[4], "/shop/locks/catalog", name(4))
	if err != nil {
		t.Fatal(err)
	}
	s.hold(rw.Reader(), nil)
	for _, i := range []int{5, 6} {
		other, err := rwlock.New(clients[i], "/shop/locks/catalog", name(i))
		if err != nil {
			t.Fatal(err)
		}
		s.wait(map[bool]recipes.Acquirer{true: other.Writer(), false: other.Reader()}[i == 5], nil)
	}
	s.hold(leader.New(clients[3], "/shop/scheduler", leader.WithID("web-4 pid 4822")))
	pool := func(i int) (*semaphore.Semaphore, error) {
		return semaphore.New(clients[i], "/shop/encoders", 5, name(i))
	}
	for _, i := range []int{0, 1, 2} {
		s.hold(pool(i))
	}
	s.hold(locks.NewMutex(here, "/shop/locks/x", name(0)))
	s.hold(locks.NewMutex(clients[7], "/shop/locks/y", name(7)))
	s.wait(locks.NewMutex(clients[7], "/shop/locks/x", name(7)))
	s.wait(locks.NewMutex(here, "/shop/locks/y", name(0)))
	short := s.hold(locks.NewMutex(here, "/shop/locks/daily", name(0)))
	pages := map[string]string{"now": "", "line": "line?path=/shop/locks/invoices", "deadlocks": "deadlocks", "ensemble": "ensemble", "process": "process"}
	ready := map[string]string{"now": "table.lines tr", "line": "svg.times rect", "deadlocks": "svg.circle", "ensemble": "tbody tr", "process": "tbody tr"}
	for _, size := range []browser.Size{browser.Wide, browser.Phone} {
		for _, dark := range []bool{false, true} {
			b := browser.Open(t, size, dark)
			for _, name := range slices.Sorted(func(yield func(string) bool) {
				for name := range pages {
					if !yield(name) {
						return
					}
				}
			}) {
				s.open(b, pages[name])
				b.Await(name, `return document.querySelector(arguments[0]) !== null`, ready[name])
				if short != nil && name == "line" {
					if err := short.Release(context.WithoutCancel(t.Context())); err != nil {
						t.Fatal(err)
					}
					short = nil
				}
				var wide bool
				if b.Run(&wide, `return document.documentElement.scrollWidth > innerWidth`); wide {
					t.Errorf("%s is wider than %d pixels", name, size.Width)
				}
				file := fmt.Sprintf("%s-%s-%s.png", name, map[bool]string{true: "phone", false: "wide"}[size == browser.Phone], map[bool]string{true: "dark", false: "light"}[dark])
				if err := os.WriteFile(filepath.Join(to, file), b.Picture(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if all := b.Complaints(); len(all) > 0 {
				t.Errorf("the browser complains: %q", strings.Join(all, "\n"))
			}
		}
	}
}

// TestBrowserSaysThatNewsAreLost: a page whose streams are refused says that it
// grows old, and takes that back with the next news.
func TestBrowserSaysThatNewsAreLost(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser, and waits for what a page does in 8s")
	}
	t.Parallel()
	e := testutil.Start(t)
	p := page.New(e.Servers())
	var refuse atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuse.Load() && r.URL.Path == "/events" {
			http.Error(w, "refused", http.StatusServiceUnavailable)
			return
		}
		p.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { p.Close(); server.Close() })
	b := browser.Open(t, browser.Wide, false)
	refuse.Store(true)
	b.Go(server.URL + "/")
	b.Await("that news are lost", `return !document.getElementById("lost").hidden`)
	refuse.Store(false)
	b.Await("news", `return document.getElementById("lost").hidden`)
}
