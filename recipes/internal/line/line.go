package line

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// A Line is the way into one line: a view of a client, a directory, a rule and a
// configuration. It is immutable.
type Line struct {
	client *framework.Client
	path   string // that it is made for
	dir    string // whose children are the line
	rule   Rule
	cfg    Config
	gates  *registry
	key    Key
}

// New makes a Line over the children of path, or of rule.Sub below it. It does no
// I/O.
func New(client *framework.Client, path string, rule Rule, cfg Config) (*Line, error) {
	if client == nil {
		return nil, errors.New("no client")
	}
	if err := framework.ValidatePath(path); err != nil {
		return nil, err
	}
	if path == "/" {
		return nil, errors.New(`path "/": the root cannot be a line`)
	}
	if err := cfg.validate(client.MaxRequest()); err != nil {
		return nil, fmt.Errorf("path %s: %w", path, err)
	}
	gates, dir := gatesOf(client), path
	if rule.Sub != "" {
		dir = child(path, rule.Sub)
	}
	return &Line{
		client: client, path: path, dir: dir, rule: rule, cfg: cfg, gates: gates,
		key: Key{gates: gates, path: client.Resolve(dir), kind: rule.Kind, layout: rule.Family},
	}, nil
}

// Dir is the path that the line is made for.
func (l *Line) Dir() string { return l.path }

// held is the directory of the znodes that hold.
func (l *Line) held() string {
	if l.rule.Take != nil {
		return l.rule.Take.Dir
	}
	return l.dir
}

// Client is the view of the client that Dir belongs to.
func (l *Line) Client() *framework.Client { return l.client }

// Key identifies what is being held: equal keys, same lock.
type Key struct {
	gates  *registry // one for each client, whatever its view
	path   string    // the full one
	kind   string
	layout layout.Family
}

// Key is the line's.
func (l *Line) Key() Key { return l.key }

// SameView reports whether m's paths mean the same as l's: one client, and one
// namespace of it.
func (l *Line) SameView(m *Line) bool {
	return l.gates == m.gates && l.client.Resolve("/") == m.client.Resolve("/")
}

// Wait queues at the gate and returns when this caller has its turn, with
// everything that a grant promises. If ctx ends first the error wraps both its
// error and its cause, and what was waited for is passed on or withdrawn.
func (l *Line) Wait(ctx context.Context) (*Place, error) { return sole(l.WaitAll(ctx)) }

// WaitAll is Wait for a rule that takes several znodes: a place on each.
func (l *Line) WaitAll(ctx context.Context) ([]*Place, error) { return l.enter(ctx, false) }

// Try is Wait that fails with ErrBusy where Wait would have to wait for somebody
// else. It looks before it joins, so that a busy line costs one read.
func (l *Line) Try(ctx context.Context) (*Place, error) { return sole(l.TryAll(ctx)) }

// TryAll is Try for a rule that takes several znodes: a place on each.
func (l *Line) TryAll(ctx context.Context) ([]*Place, error) { return l.enter(ctx, true) }

func sole(places []*Place, err error) (*Place, error) {
	if err != nil {
		return nil, err
	}
	return places[0], nil
}

func (l *Line) enter(ctx context.Context, try bool) ([]*Place, error) {
	if ctx.Err() != nil {
		return nil, ctxerr.Of(ctx)
	}
	g, err := l.gates.use(l)
	if err != nil {
		return nil, err
	}
	defer l.gates.unuse(g)
	came := time.Now()
	places, err := g.enter(ctx, l, try)
	for _, p := range places {
		p.came = came
	}
	return places, err
}

// child is the path of a child of dir.
func child(dir, name string) string { return dir + "/" + name }

// base is the last element of path.
func base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
