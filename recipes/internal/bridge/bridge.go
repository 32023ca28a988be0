// Package bridge holds the private options of recipes.NewLine that only this
// module's recipes use: the znode names of Apache Curator and Kazoo, the
// permits of a semaphore, the downgrade of a read/write lock, the staying of a
// leader's znode. Only package recipes and its recipes may import it.
package bridge

import (
	"context"
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
)

// Inside is the one option of recipes.NewLine that this package makes. What is
// zero is as in any line.
type Inside struct {
	option.LineMark

	// Package is the prefix of errors.
	Package string
	// Recipe and Label are what the observers hear: see recipes.Acquire. Without
	// them it is the kind and the path.
	Recipe, Label string
	// Shares says that the leases are shared, although the contenders in line are
	// not.
	Shares bool
	// Before is called at the beginning of each Acquire, which fails with its
	// error.
	Before func(ctx context.Context) error
	// Waiting is called when an Acquire with ctx begins, behind the observers'
	// AcquireStart, and what it returns when the wait is over, before AcquireEnd.
	Waiting func(ctx context.Context) (over func())

	// Set and Base, if not zero, are the znode names of the line: those of a fixed
	// layout, and not those of kind and name.
	Set  layout.Set
	Base string
	// Sub is the directory of the line, below its path.
	Sub string
	// PersistentDir makes the directory as a persistent znode, not as a container.
	PersistentDir bool

	// OwnQueue gives the Line a local queue that it shares with no other, so that
	// it stands in line for itself. It hands nothing off.
	OwnQueue bool
	// IgnoreContext acquires whatever leases the context carries.
	IgnoreContext bool
	// DowngradeFrom is the name of a lease that this line downgrades, instead of
	// waiting for it.
	DowngradeFrom string
	// DowngradeTo is the Base of the line that downgrades leases of this one.
	DowngradeTo string
	// KeepUntilReleased keeps the znode of a lost lease, while its session lives,
	// until the lease was released.
	KeepUntilReleased bool
	// StopLinger is closed when lingering must stop.
	StopLinger <-chan struct{}
	// Permits is what the first in line takes.
	Permits *Permits
}

// Reader, Permits and Room are the engine's.
type (
	Reader  = line.Reader
	Permits = line.Permits
	Room    = line.Room
)

// KazooLease returns the child of dir that is a lease of Kazoo's semaphore, if
// there is one. Anybody may have children named as its leases are; hence, where
// there are any, it looks first for the line that Kazoo makes next to dir.
func KazooLease(ctx context.Context, r Reader, dir string, children []string) (name string, err error) {
	i := slices.IndexFunc(children, layout.MayBeKazooLease)
	if i < 0 {
		return "", nil
	}
	_, _, err = r.Children(ctx, dir+layout.KazooSemaphoreLine)
	if errors.Is(err, zk.ErrNoNode) {
		return "", nil
	}
	return children[i], err
}
