package inspect

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/least"
	"github.com/zkrecipes/zkrecipes/internal/ratelimit"
)

// A Reader reads znodes. A *framework.Client is one, and so is a
// *framework.Session. It may have two more methods of *framework.Client. With
// Sync, a sync comes first, because a member that lags could show old data.
// With ReadAll, many reads share a request.
type Reader interface {
	Get(ctx context.Context, path string) ([]byte, *zk.Stat, error)
	Children(ctx context.Context, path string) ([]string, *zk.Stat, error)
}

// How many reads are under way at a time, by default: if each is a request, and
// if ReadAll puts them into few.
const (
	DefaultConcurrency = 16
	manyReads          = 1024
)

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

// WithConcurrency sets how many reads are under way at a time. The default is
// 16, and 1,024 with a Reader that has ReadAll, unless WithRate is used.
func WithConcurrency(n int) Option {
	return func(s *settings) error {
		if n < 1 {
			return fmt.Errorf("WithConcurrency(%d): must be positive", n)
		}
		s.concurrency = n
		return nil
	}
}

// WithRate limits the reads per second, also of those that share a request.
// Default: no limit.
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
// It is at least 1ms.
func WithPause(d time.Duration) Option {
	return func(s *settings) error {
		s.pause = d
		return least.Duration("pause", d, time.Millisecond)
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
	many   *gather // nil: the Reader has no ReadAll
	noData bool    // the data of contenders is not kept

	mu         sync.Mutex // guards what follows
	reads      int
	unreadable []string
}

// mayNotRead notes a znode that the client may not read.
func (g *reading) mayNotRead(path string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unreadable = append(g.unreadable, path)
}

// done returns how many reads were made, and the znodes that could not be read,
// sorted.
func (g *reading) done() (reads int, unreadable []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	slices.Sort(g.unreadable)
	return g.reads, slices.Compact(g.unreadable)
}

func newReading(r Reader, opts []Option) (*reading, error) {
	g := &reading{r: r, settings: settings{
		pause: DefaultPause, rules: map[string]func(mine, theirs string) bool{},
	}}
	if all, ok := r.(interface {
		ReadAll(ctx context.Context, reads ...framework.Read) ([]framework.ReadResult, error)
	}); ok {
		g.many = &gather{readAll: all.ReadAll}
	}
	for _, opt := range opts {
		if err := opt(&g.settings); err != nil {
			return nil, fmt.Errorf("inspect: %w", err)
		}
	}
	switch {
	case g.concurrency > 0:
	case g.many != nil && g.pace == nil:
		g.concurrency = manyReads
	default:
		g.concurrency = DefaultConcurrency
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
	if err := g.pace.Wait(ctx); err != nil {
		return err
	}
	return syncer.Sync(ctx, path)
}

// list returns the children of a znode, and false if there is no such znode.
func (g *reading) list(ctx context.Context, path string) (children []string, found bool, err error) {
	r, err := g.read(ctx, framework.Read{Path: path, Children: true})
	return r.Children, r.Err == nil && err == nil, err
}

// get returns a znode, and a nil stat if there is none.
func (g *reading) get(ctx context.Context, path string) ([]byte, *zk.Stat, error) {
	r, err := g.read(ctx, framework.Read{Path: path})
	return r.Data, r.Stat, err
}

// read does a read, when it may begin. That there is no such znode is an error
// of the result alone.
func (g *reading) read(ctx context.Context, one framework.Read) (r framework.ReadResult, err error) {
	g.mu.Lock()
	g.reads++
	g.mu.Unlock()
	if err := g.pace.Wait(ctx); err != nil {
		return r, err
	}
	switch {
	case g.many != nil:
		r = g.many.read(ctx, one)
	case one.Children:
		r.Children, _, r.Err = g.r.Children(ctx, one.Path)
	default:
		r.Data, r.Stat, r.Err = g.r.Get(ctx, one.Path)
	}
	if r.Err != nil {
		r = framework.ReadResult{Err: r.Err}
	}
	if framework.Absent(r.Err) {
		return r, nil
	}
	return r, r.Err
}
