package framework

import (
	"context"
	"errors"
	"fmt"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
)

// nameMissingRoot adds to the error of an operation that found no znode that
// the chroot or the namespace itself is missing, if it is. It asks the ensemble
// once for each: one that was found is assumed to stay.
func (w scope) nameMissingRoot(ctx context.Context, err error) error {
	var e *opError
	if w.root == "" || !errors.Is(err, zk.ErrNoNode) || !errors.As(err, &e) {
		return err
	}
	for _, root := range []prefix{w.core.chroot, w.root} {
		if root == "" || w.core.knowsRoot(root) {
			continue
		}
		all := scope{core: w.core, in: w.in, budget: &backoff.StopBackOff{}}
		found, _, lookErr := all.exists(ctx, string(root))
		switch {
		case lookErr != nil:
			return err
		case found:
			w.core.learnRoot(root)
			continue
		}
		what := "namespace"
		if root == w.core.chroot {
			what = "chroot"
		}
		return &opError{op: e.op, path: e.path, err: fmt.Errorf("%s %s does not exist: %w", what, root, e.err), maybe: e.maybe}
	}
	return err
}

func (c *core) knowsRoot(root prefix) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.roots[root]
	return ok
}

func (c *core) learnRoot(root prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.roots == nil {
		c.roots = make(map[prefix]struct{})
	}
	c.roots[root] = struct{}{}
}
