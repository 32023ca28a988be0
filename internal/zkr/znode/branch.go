package znode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// branch is a znode and all znodes below it, as they were read.
type branch struct {
	path  string
	stat  *zk.Stat // nil if err is not nil, or it was not asked for
	below []*branch
	cut   bool  // there are, or may be, znodes below that were not read
	gone  error // says that it does not exist
	err   error // why it could not be read
}

// allLevels is the depth of a whole tree.
const allLevels = -1

// readBranch reads the znode at a path, and those below it down to a depth.
// Znodes that are deleted meanwhile are left out; one that may not be read has
// an error. It costs a sync and what readStats or readNames cost, for each
// level.
func readBranch(ctx context.Context, c *framework.Client, at string, depth int, read levelReader) (*branch, error) {
	if err := c.Sync(ctx, at); err != nil { // otherwise a member that lags could show old znodes
		return nil, err
	}
	root := &branch{path: at}
	var above []*branch
	for level := []*branch{root}; len(level) > 0; depth-- {
		if err := read(ctx, c, level, depth == 0); err != nil {
			return nil, err
		}
		for _, b := range above {
			b.below = slices.DeleteFunc(b.below, func(child *branch) bool { return child.gone != nil })
		}
		above, level = level, nil
		for _, b := range above {
			level = append(level, b.below...)
		}
	}
	return root, root.gone
}

// levelReader reads the znodes of a level of a tree. On the last one it does
// not ask for the children.
type levelReader func(ctx context.Context, c *framework.Client, level []*branch, last bool) error

// readStats reads znodes with their stats. It costs a request for each: in a
// request of many reads, a stat comes with the data, which may be large.
func readStats(ctx context.Context, c *framework.Client, level []*branch, last bool) error {
	return inParallel(ctx, len(level), func(ctx context.Context, i int) error {
		b := level[i]
		if last {
			exists, stat, err := c.Exists(ctx, b.path)
			if err == nil && !exists {
				err = fmt.Errorf("stat %s: %w", b.path, zk.ErrNoNode)
			}
			b.stat, b.cut = stat, exists && stat.NumChildren > 0
			return b.readable(err)
		}
		names, stat, err := c.Children(ctx, b.path)
		b.stat = stat
		return b.grow(names, err)
	})
}

// readNames reads the names alone, of all levels. It costs a request for up to
// 256 znodes.
func readNames(ctx context.Context, c *framework.Client, level []*branch, _ bool) error {
	reads := make([]framework.Read, len(level))
	for i, b := range level {
		reads[i] = framework.Read{Path: b.path, Children: true}
	}
	results, err := c.ReadAll(ctx, reads...)
	for i := 0; i < len(results) && err == nil; i++ {
		err = level[i].grow(results[i].Children, results[i].Err)
	}
	return err
}

// grow takes the names of the children, or why there are none.
func (b *branch) grow(names []string, err error) error {
	slices.Sort(names)
	for _, name := range names {
		b.below = append(b.below, &branch{path: cli.ChildPath(b.path, name)})
	}
	return b.readable(err)
}

// readable keeps the error of a znode that may not be read, or does not exist,
// and returns any other.
func (b *branch) readable(err error) error {
	switch {
	case errors.Is(err, zk.ErrNoAuth):
		b.err, b.cut = err, true
	case errors.Is(err, zk.ErrNoNode):
		b.gone = err
	default:
		return err
	}
	return nil
}

// name returns the last part of the path.
func (b *branch) name() string { return b.path[strings.LastIndexByte(b.path, '/')+1:] }

// walk calls visit for the znode and those below it, parents first.
func (b *branch) walk(visit func(*branch) error) error {
	if err := visit(b); err != nil {
		return err
	}
	for _, child := range b.below {
		if err := child.walk(visit); err != nil {
			return err
		}
	}
	return nil
}
