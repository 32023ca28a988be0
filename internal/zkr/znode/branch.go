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
	stat  *zk.Stat // nil if err is not nil
	below []*branch
	cut   bool  // there are, or may be, znodes below that were not read
	gone  bool  // it was deleted meanwhile
	err   error // why it could not be read
}

// allLevels is the depth of a whole tree.
const allLevels = -1

// readBranch reads the znode at a path, and those below it down to a depth.
// Znodes that are deleted meanwhile are left out; one that may not be read has
// an error. It costs a sync and one request for each znode.
func readBranch(ctx context.Context, c *framework.Client, at string, depth int) (*branch, error) {
	if err := c.Sync(ctx, at); err != nil { // otherwise a member that lags could show old znodes
		return nil, err
	}
	root := &branch{path: at}
	if err := root.read(ctx, c, depth == 0); err != nil {
		return nil, err
	}
	for level := []*branch{root}; ; depth-- {
		var next []*branch
		for _, b := range level {
			next = append(next, b.below...)
		}
		if len(next) == 0 {
			return root, nil
		}
		if err := inParallel(ctx, len(next), func(ctx context.Context, i int) error {
			err := next[i].read(ctx, c, depth == 1)
			if errors.Is(err, zk.ErrNoNode) {
				next[i].gone, err = true, nil
			}
			return err
		}); err != nil {
			return nil, err
		}
		for _, b := range level {
			b.below = slices.DeleteFunc(b.below, func(child *branch) bool { return child.gone })
		}
		level = next
	}
}

// read reads one znode. On the last level it does not ask for the children.
func (b *branch) read(ctx context.Context, c *framework.Client, last bool) error {
	if last {
		exists, stat, err := c.Exists(ctx, b.path)
		if err == nil && !exists {
			err = fmt.Errorf("stat %s: %w", b.path, zk.ErrNoNode)
		}
		b.stat, b.cut = stat, exists && stat.NumChildren > 0
		return b.readable(err)
	}
	names, stat, err := c.Children(ctx, b.path)
	if err != nil {
		return b.readable(err)
	}
	b.stat = stat
	slices.Sort(names)
	for _, name := range names {
		b.below = append(b.below, &branch{path: cli.ChildPath(b.path, name)})
	}
	return nil
}

// readable keeps the error of a znode that may not be read, and returns any
// other.
func (b *branch) readable(err error) error {
	if errors.Is(err, zk.ErrNoAuth) {
		b.err, b.cut = err, true
		return nil
	}
	return err
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
