package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"
)

// Forest is the result of Tree: all lines at and below a path.
type Forest struct {
	Exists     bool     // whether the path exists
	Lines      []Line   // those with a holder or a waiter, sorted by path
	Reads      int      // how many reads of a znode or of its children were made
	Unreadable []string // znodes that the client may not read, sorted
}

// Tree returns every line at and below a path that has a holder or a waiter. If
// the path does not exist, it returns no error, and Forest.Exists is false.
//
// It costs a sync, a list for each znode that is not a contender, and a read
// for each contender and each semaphore. A directory is not entered if its name
// looks like a contender's, such as job-lock-0000000001.
func Tree(ctx context.Context, r Reader, path string, opts ...Option) (Forest, error) {
	g, err := newReading(r, opts)
	if err != nil {
		return Forest{}, err
	}
	if err := g.sync(ctx, path); err != nil {
		return Forest{}, fmt.Errorf("inspect: %w", err)
	}
	forest, err := g.tree(ctx, path)
	if err == nil && !g.names {
		err = g.fill(ctx, forest.lines(func(*Line) bool { return true }), 0)
		forest.Lines = slices.DeleteFunc(forest.Lines, func(l Line) bool { return l.empty() }) // all have left
	}
	if err != nil {
		return Forest{}, fmt.Errorf("inspect: %w", err)
	}
	forest.Reads, forest.Unreadable = g.done()
	return forest, nil
}

func (f *Forest) lines(which func(*Line) bool) []*Line {
	var lines []*Line
	for i := range f.Lines {
		if l := &f.Lines[i]; which(l) {
			lines = append(lines, l)
		}
	}
	return lines
}

// place is a znode to look at.
type place struct {
	path  string
	kazoo *bool // see recognize
}

// tree lists everything at and below a path.
func (g *reading) tree(ctx context.Context, top string) (Forest, error) {
	var forest Forest
	var mu sync.Mutex // guards forest
	err := spread(ctx, g, []place{{path: top}}, func(ctx context.Context, at place) ([]place, error) {
		l, err := g.recognize(ctx, at.path, at.kazoo)
		if at.path == top && (l.Exists || errors.Is(err, zk.ErrNoAuth)) {
			forest.Exists = true // no other task has begun
		}
		if errors.Is(err, zk.ErrNoAuth) {
			g.mayNotRead(at.path)
			l, err = Line{}, nil
		}
		if err != nil {
			return nil, err
		}
		more := l.below()
		if at.kazoo != nil && *at.kazoo && l.form != kazooSemaphore {
			more = append(more, place{path: at.path + kazooQueue}) // a lock by itself
		}
		if !l.empty() {
			mu.Lock()
			defer mu.Unlock()
			forest.Lines = append(forest.Lines, l)
		}
		return more, nil
	})
	slices.SortFunc(forest.Lines, func(a, b Line) int { return cmp.Compare(a.Path, b.Path) })
	return forest, err
}

func (l *Line) empty() bool { return len(l.entries) == 0 && len(l.permits) == 0 }

// below returns the directories to look at next.
func (l *Line) below() []place {
	owners := map[string]bool{} // znodes next to which Kazoo's waiters may stand
	for _, name := range l.Others {
		if owner, ok := strings.CutSuffix(name, kazooQueue); ok {
			owners[owner] = true
		}
	}
	beside := map[string]bool{} // their lines, which are looked at with them
	for _, name := range l.Others {
		if owners[name] {
			beside[name+kazooQueue] = true
		}
	}
	var all []place
	for _, name := range l.Others {
		if beside[name] {
			continue
		}
		kazoo := owners[name]
		all = append(all, place{path.Join(l.Path, name), &kazoo})
	}
	return all
}
