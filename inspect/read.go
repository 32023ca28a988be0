package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/identity"
)

// Read returns the line at a path: the recipe, its holders and its waiters. If
// the path does not exist, it returns no error, and Line.Exists is false.
//
// It costs a sync, a list, and a read for each contender. A semaphore costs two
// more lists and one more read; Kazoo's semaphore costs one more list and one
// more read; an unused path costs one more read. A contender that the client
// may not read is returned without details.
func Read(ctx context.Context, r Reader, path string, opts ...Option) (Line, error) {
	g, err := newReading(r, opts)
	if err != nil {
		return Line{}, err
	}
	if err := g.sync(ctx, path); err != nil {
		return Line{Path: path}, fmt.Errorf("inspect: %w", err)
	}
	l, err := g.readLine(ctx, path)
	if err != nil {
		return l, fmt.Errorf("inspect: %w", err)
	}
	return l, nil
}

func (g *reading) readLine(ctx context.Context, path string) (Line, error) {
	l, err := g.recognize(ctx, path, nil)
	if err != nil || !l.Exists || g.names {
		return l, err
	}
	if l.Recipe == "" && (len(l.Others) == 0 || len(l.Others) == 1 && l.Others[0] == limitNode) {
		l.Others = nil // an unused semaphore leaves its limit
		return l, g.readLimit(ctx, &l)
	}
	return l, g.fill(ctx, []*Line{&l}, 0)
}

// Fill reads the details of a line that was read WithoutDetails: the sessions,
// ages and data of at most limit contenders, and the limit of a semaphore. It
// begins with the holders and goes on in the order of the line. A limit of 0
// means all. Contenders that were deleted meanwhile are removed from the line.
//
// It costs a read for each contender, and one more for a semaphore.
func Fill(ctx context.Context, r Reader, l *Line, limit int, opts ...Option) error {
	g, err := newReading(r, opts)
	if err != nil {
		return err
	}
	if err := g.fill(ctx, []*Line{l}, limit); err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	return nil
}

// fill reads the contenders of lines, at most limit of each unless that is 0.
func (g *reading) fill(ctx context.Context, lines []*Line, limit int) error {
	var tasks []func(context.Context) error
	for _, l := range lines {
		if l.form != single {
			tasks = append(tasks, func(ctx context.Context) error { return g.readLimit(ctx, l) })
		}
		all := l.inOrder()
		if limit > 0 && len(all) > limit {
			all = all[:limit]
		}
		for _, c := range all {
			tasks = append(tasks, func(ctx context.Context) error { return g.readContender(ctx, c) })
		}
	}
	slices.Reverse(tasks) // spread begins at the end
	err := spread(ctx, g, tasks, func(ctx context.Context, task func(context.Context) error) ([]func(context.Context) error, error) {
		return nil, task(ctx)
	})
	if err != nil {
		return err
	}
	for _, l := range lines {
		gone := func(c Contender) bool { return c.Path == "" }
		l.entries = slices.DeleteFunc(l.entries, gone)
		l.permits = slices.DeleteFunc(l.permits, gone)
		if err := l.arrange(g.rules); err != nil {
			return err
		}
	}
	return nil
}

// inOrder returns all contenders, holders first.
func (l *Line) inOrder() []*Contender {
	var holders, waiting []*Contender
	for i := range l.permits {
		holders = append(holders, &l.permits[i])
	}
	for i := range l.entries {
		if c := &l.entries[i]; l.form == single && c.Holds {
			holders = append(holders, c)
		} else {
			waiting = append(waiting, c)
		}
	}
	return append(holders, waiting...)
}

// readContender reads a contender. One that was deleted loses its path.
func (g *reading) readContender(ctx context.Context, c *Contender) error {
	data, stat, err := g.get(ctx, c.Path)
	if errors.Is(err, zk.ErrNoAuth) {
		g.mayNotRead(c.Path)
		return nil
	}
	if err != nil {
		return err
	}
	if stat == nil {
		c.Path = ""
		return nil
	}
	c.read, c.Session, c.Since, c.Created = true, stat.EphemeralOwner, time.UnixMilli(stat.Ctime), stat.Czxid
	c.Parent = identity.Parse(data).Parent
	if !g.noData {
		c.Data = data
	}
	return nil
}

// readLimit reads the limit that a semaphore records at its path.
func (g *reading) readLimit(ctx context.Context, l *Line) error {
	data, _, err := g.get(ctx, l.Path)
	if errors.Is(err, zk.ErrNoAuth) {
		g.mayNotRead(l.Path)
		return nil
	}
	if err != nil {
		return err
	}
	if n, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil && n > 0 {
		l.Limit = n
	}
	return nil
}
