package line

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
)

// A Line is the way into one line: a view of a client, a directory, a rule and
// a configuration. It is immutable.
type Line struct {
	client *managed.Client
	path   string // that the line was made for
	dir    string // whose children are in line
	rule   Rule
	cfg    Config
	queues *registry
	key    key

	tooLarge error // why rule.Permits can never be taken
}

// New returns a Line over the children of path, or of rule.Sub below it. It
// does no I/O.
func New(client *managed.Client, path string, rule Rule, cfg Config) (*Line, error) {
	if client == nil {
		return nil, errors.New("no client")
	}
	if err := framework.ValidatePath(path); err != nil {
		return nil, err
	}
	if path == "/" {
		return nil, errors.New(`path "/": the root cannot be a line`)
	}
	if err := oneline.Join(cfg.validate(client.MaxRequest()), rule.init()); err != nil {
		return nil, fmt.Errorf("path %s: %w", path, err)
	}
	dir := path
	if rule.Sub != "" {
		dir = child(path, rule.Sub)
	}
	l := &Line{
		client: client, path: path, dir: dir, rule: rule, cfg: cfg, queues: queuesOf(client),
		key: key{path: client.Resolve(dir), kind: rule.Kind, name: rule.Name, candidate: rule.Candidate, set: rule.Set},
	}
	l.tooLarge = l.permitsFit()
	return l, nil
}

// Path returns the path that the line was made for.
func (l *Line) Path() string { return l.path }

// Client returns the view of the client that Path belongs to.
func (l *Line) Client() *managed.Client { return l.client }

// Name returns the name of this Line's contenders.
func (l *Line) Name() string { return l.rule.Name }

// Shares reports whether contenders of the line's name share it.
func (l *Line) Shares() bool { return l.rule.shares }

// grantDir returns the directory of the znodes that are granted.
func (l *Line) grantDir() string {
	if l.rule.Permits != nil {
		return l.rule.Permits.Dir
	}
	return l.dir
}

// SameKey reports whether the callers of l and m share a local queue, and so
// leases.
func (l *Line) SameKey(m *Line) bool { return l.queues == m.queues && l.key == m.key }

// Conflicting reports whether contenders of l and m are in one line, in which
// one of the two waits for the other.
func (l *Line) Conflicting(m *Line) (bool, error) {
	same := m.key
	same.name = l.key.name
	if l.queues != m.queues || l.key != same {
		return false, nil
	}
	return l.rule.conflict(l.rule.Name, m.rule.Name)
}

// CheckTogether returns an error if nobody can hold a contender of l and one of
// m, another name at the same path: they conflict, or are of two kinds.
func (l *Line) CheckTogether(m *Line) error {
	if l.key.kind != m.key.kind || l.key.set != m.key.set {
		return fmt.Errorf("%w: two kinds of locks", ErrLayout)
	}
	conflicts, err := l.rule.conflict(l.rule.Name, m.rule.Name)
	if err == nil && conflicts {
		err = fmt.Errorf("names %q and %q conflict", l.rule.Name, m.rule.Name)
	}
	return err
}

// SameView reports whether m's paths mean the same as l's: one client, and one
// namespace of it.
func (l *Line) SameView(m *Line) bool {
	return l.queues == m.queues && l.client.Resolve("/") == m.client.Resolve("/")
}

// Acquire waits in the local queue, and in line, until this caller is granted
// its shares: one, or as many as rule.Permits says. If ctx ends first the error
// wraps its error and its cause. On any error nothing of this caller stays in
// line.
func (l *Line) Acquire(ctx context.Context) ([]*Share, error) { return l.enter(ctx, false) }

// TryAcquire is Acquire that fails with ErrBusy where it would have to wait for
// another holder. It looks before it joins: a busy line costs one read.
func (l *Line) TryAcquire(ctx context.Context) ([]*Share, error) { return l.enter(ctx, true) }

func (l *Line) enter(ctx context.Context, try bool) ([]*Share, error) {
	if ctx.Err() != nil {
		return nil, ctxerr.Of(ctx)
	}
	if l.tooLarge != nil {
		return nil, l.tooLarge
	}
	q, err := l.queues.use(l)
	if err != nil {
		return nil, err
	}
	defer l.queues.unuse(q)
	return q.enter(ctx, l, try)
}

// view returns sess in the view of the line's client.
func (l *Line) view(sess *managed.Session) *managed.Session {
	return l.client.View(sess)
}

// shown returns an error of the local queue, with paths as the line's client
// shows them.
func (l *Line) shown(err error) error { return l.client.Shown(err) }

// child returns the path of a child of dir.
func child(dir, name string) string { return dir + "/" + name }

// base returns the last element of path.
func base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
