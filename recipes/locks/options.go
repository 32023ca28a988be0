package locks

import (
	"fmt"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/bridge"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
)

// An Option configures a Mutex, and each lock of a Keyed: WithLayout, and of
// package recipes WithData, WithACL, WithMaxHold, WithHandoffs, WithLinger,
// WithAsyncRelease and WithoutReentry. A bad value is an error of the
// constructor.
type Option = option.ForMutex

// Layout selects whose locks stand in the same line. In a line with locks of
// another layout, Acquire fails with recipes.ErrLayout.
type Layout int

const (
	// LayoutCurator is that of Apache Curator's InterProcessMutex, and of
	// go-zookeeper's Lock.
	LayoutCurator Layout = iota
	// LayoutKazoo is that of Kazoo's Lock, and so of its Election. The lock's
	// directory is no container then but stays: they rely on it once they have
	// seen it. Data should be UTF-8, or their contenders() fails. A Kazoo Lock
	// does not see Kazoo's readers: if one of those is in line, Acquire fails with
	// recipes.ErrLayout. A contender that waits lists the directory before each
	// grant: no event grants here.
	LayoutKazoo
)

// WithLayout selects the znodes' names. Default LayoutCurator.
// For NewMutex and NewKeyed.
func WithLayout(l Layout) Option { return setting(func(of *Layout) { *of = l }) }

// setting is an option of this package.
type setting = option.Mutex[Layout]

// newConfig splits opts into what is the mutex's own, which it adds to in, and
// what is any line's.
func newConfig(in bridge.Inside, opts []Option) (bridge.Inside, []recipes.LineOption, error) {
	var lineOpts []recipes.LineOption
	l := LayoutCurator
	for _, opt := range opts {
		switch opt := opt.(type) {
		case setting:
			opt(&l)
		case recipes.LineOption:
			lineOpts = append(lineOpts, opt)
		default:
			return in, nil, fmt.Errorf("option %T: unknown", opt)
		}
	}
	in.Package = "locks"
	switch l {
	case LayoutCurator:
		in.Base, in.Set.Family = layout.CuratorLockName, layout.CuratorLock
	case LayoutKazoo:
		in.Base, in.Set.Family, in.PersistentDir = layout.KazooLockName, layout.KazooLock, true
	default:
		return in, nil, fmt.Errorf("layout %d: unknown", l)
	}
	return in, lineOpts, nil
}
