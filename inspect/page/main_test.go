package page_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect/page"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// of returns a page about the ensemble of a world.
func of(t *testing.T, w *bubble.World, opts ...page.Option) *page.Page {
	t.Helper()
	p := page.New(w.Servers(), append([]page.Option{page.WithClient(framework.WithDialer(w.Dial))}, opts...)...)
	t.Cleanup(p.Close)
	return p
}

// get returns the answer to a request.
func get(t *testing.T, p http.Handler, address string) *httptest.ResponseRecorder {
	t.Helper()
	answer := httptest.NewRecorder()
	p.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, address, nil))
	return answer
}

// sees fails the test unless a page has the texts.
func sees(t *testing.T, p http.Handler, address string, texts ...string) string {
	t.Helper()
	answer := get(t, p, address)
	body := answer.Body.String()
	if answer.Code != http.StatusOK {
		t.Errorf("%s: status %d: %s", address, answer.Code, body)
	}
	for _, text := range texts {
		if !strings.Contains(body, text) {
			t.Errorf("%s has no %q:\n%s", address, text, body)
		}
	}
	return body
}

// lineAt is the address of the page of a line.
func lineAt(path string) string { return "/line?path=" + url.QueryEscape(path) }

// following is a viewer of a stream.
type following struct {
	*httptest.ResponseRecorder
	mu    sync.Mutex // guards text
	text  strings.Builder
	ended chan struct{}
	leave context.CancelFunc
}

func (f *following) Write(text []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.text.Write(text)
}

func (f *following) Flush() {}

// got returns what was sent since the last call.
func (f *following) got() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.text.Reset()
	return f.text.String()
}

// follow opens a stream.
func follow(t *testing.T, p http.Handler, query string) *following {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &following{ResponseRecorder: httptest.NewRecorder(), ended: make(chan struct{}), leave: cancel}
	go func() {
		defer close(f.ended)
		p.ServeHTTP(f, httptest.NewRequestWithContext(ctx, http.MethodGet, "/events?"+query, nil))
	}()
	t.Cleanup(func() { cancel(); <-f.ended })
	return f
}

// hasEnded reports whether a stream has ended.
func (f *following) hasEnded() bool {
	synctest.Wait()
	select {
	case <-f.ended:
		return true
	default:
		return false
	}
}

func mutex(t *testing.T, c *framework.Client, path, data string) recipes.Acquirer {
	t.Helper()
	m, err := locks.NewMutex(c, path, recipes.WithData([]byte(data)))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// wait lets a client wait in a line, as the n-th contender, until the test
// ends.
func wait(t *testing.T, w *bubble.World, a recipes.Acquirer, dir string, n int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	granted := bubble.Acquiring(ctx, a)
	w.InLine(dir, n)
	t.Cleanup(func() {
		cancel()
		if g := <-granted; g.Err == nil {
			_ = g.Lease.Release(context.Background()) // it was granted at the end of the test
		}
	})
}

// aLook is longer than the time between two looks.
const aLook = 1500 * time.Millisecond

// tally counts what a client reads, also with several reads in one request: use
// its see as a control function.
type tally struct {
	mu          sync.Mutex
	lists, data map[string]int // by path
}

func (c *tally) see(r testutil.Request) testutil.Action {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lists == nil {
		c.lists, c.data = map[string]int{}, map[string]int{}
	}
	for _, op := range append(slices.Clone(r.Operations), testutil.Operation{Op: r.Op, Path: r.Path}) {
		switch op.Op {
		case testutil.OpGetChildren, testutil.OpGetChildren2:
			c.lists[op.Path]++
		case testutil.OpGetData:
			c.data[op.Path]++
		}
	}
	return testutil.Pass()
}

// take returns what was read since the last call: how many lists, and the reads
// of data by path, with their sum.
func (c *tally) take() (lists int, data map[string]int, sum int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.lists {
		lists += n
	}
	for _, n := range c.data {
		sum += n
	}
	data = c.data
	c.lists, c.data = nil, nil
	return lists, data, sum
}
