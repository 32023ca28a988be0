package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/ratelimit"
)

// A Reader reads znodes. A *framework.Client is one, and so is a
// *framework.Session. If it also has the method Sync of *framework.Client, a
// sync comes first, because a member that lags could show old data.
type Reader interface {
	Get(ctx context.Context, path string) ([]byte, *zk.Stat, error)
	Children(ctx context.Context, path string) ([]string, *zk.Stat, error)
}

// DefaultConcurrency is how many requests are under way at a time.
const DefaultConcurrency = 16

// DefaultPause is how long FindDeadlocks waits before it looks again. It is
// longer than framework's default session timeout, because for one session
// timeout the goroutines of a process may hand one znode off to each other
// while others wait.
const DefaultPause = 15 * time.Second

// Option sets how znodes are read.
type Option func(*settings) error

type settings struct {
	concurrency int
	pace        *ratelimit.Limiter
	names       bool
	pause       time.Duration
	rules       map[string]func(mine, theirs string) bool
}

// WithConcurrency sets how many requests are under way at a time. The default
// is 16.
func WithConcurrency(n int) Option {
	return func(s *settings) error {
		if n < 1 {
			return fmt.Errorf("WithConcurrency(%d): must be positive", n)
		}
		s.concurrency = n
		return nil
	}
}

// WithRate limits the requests per second. Default: no limit.
func WithRate(perSecond int) Option {
	return func(s *settings) error {
		if perSecond < 1 {
			return fmt.Errorf("WithRate(%d): must be positive", perSecond)
		}
		s.pace = ratelimit.New(perSecond)
		return nil
	}
}

// WithoutDetails makes Tree and Read list directories only. Sessions, ages,
// data and the limits of semaphores stay zero: see Fill.
func WithoutDetails() Option {
	return func(s *settings) error {
		s.names = true
		return nil
	}
}

// WithPause sets how long FindDeadlocks waits before it looks again. The
// default is 15s. It should be longer than the session timeouts of the clients.
func WithPause(d time.Duration) Option {
	return func(s *settings) error {
		if d <= 0 {
			return fmt.Errorf("WithPause(%v): must be positive", d)
		}
		s.pause = d
		return nil
	}
}

// WithKind sets the rule of a custom kind: the function that was passed to
// recipes.NewLine. Without it only the first contender of such a line is known
// to hold, and it is unknown what the others wait for.
func WithKind(kind string, conflicts func(mine, theirs string) bool) Option {
	return func(s *settings) error {
		if err := layout.CheckKind(kind); err != nil {
			return fmt.Errorf("WithKind: %w", err)
		}
		if conflicts == nil {
			return fmt.Errorf("WithKind(%q): no conflicts function", kind)
		}
		s.rules[kind] = conflicts
		return nil
	}
}

// reading is one use of a Reader under its settings.
type reading struct {
	settings
	r      Reader
	noData bool // the data of contenders is not kept

	mu         sync.Mutex // guards what follows
	requests   int
	unreadable []string
}

// mayNotRead notes a znode that the client may not read.
func (g *reading) mayNotRead(path string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unreadable = append(g.unreadable, path)
}

// done returns how many requests were made, and the znodes that could not be
// read, sorted.
func (g *reading) done() (requests int, unreadable []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	slices.Sort(g.unreadable)
	return g.requests, slices.Compact(g.unreadable)
}

func newReading(r Reader, opts []Option) (*reading, error) {
	g := &reading{r: r, settings: settings{
		concurrency: DefaultConcurrency, pause: DefaultPause, rules: map[string]func(mine, theirs string) bool{},
	}}
	for _, opt := range opts {
		if err := opt(&g.settings); err != nil {
			return nil, fmt.Errorf("inspect: %w", err)
		}
	}
	return g, nil
}

// sync makes later reads show all writes that were done before, if the Reader
// can do that.
func (g *reading) sync(ctx context.Context, path string) error {
	syncer, ok := g.r.(interface {
		Sync(ctx context.Context, path string) error
	})
	if !ok {
		return nil
	}
	if err := g.wait(ctx); err != nil {
		return err
	}
	return syncer.Sync(ctx, path)
}

// list returns the children of a znode, and false if there is no such znode.
func (g *reading) list(ctx context.Context, path string) (children []string, found bool, err error) {
	if err := g.wait(ctx); err != nil {
		return nil, false, err
	}
	children, _, err = g.r.Children(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, false, nil
	}
	return children, err == nil, err
}

// get returns a znode, and a nil stat if there is none.
func (g *reading) get(ctx context.Context, path string) ([]byte, *zk.Stat, error) {
	if err := g.wait(ctx); err != nil {
		return nil, nil, err
	}
	data, stat, err := g.r.Get(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil, nil
	}
	return data, stat, err
}

// wait counts a request, and returns when it may begin.
func (g *reading) wait(ctx context.Context) error {
	g.mu.Lock()
	g.requests++
	g.mu.Unlock()
	return g.pace.Wait(ctx)
}
