package rwlock

import (
	"fmt"
	"os"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/bridge"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
)

// An Option configures an RWLock: WithLayout, WithHost, and of package recipes
// WithData, WithACL, WithMaxHold, WithHandoffs, WithLinger, WithAsyncRelease
// and WithoutReentry. A bad value is an error of New.
type Option = option.ForRWLock

// Layout selects whose readers and writers stand in the same line. In a line
// with those of another layout, Acquire fails with recipes.ErrLayout.
type Layout int

const (
	// LayoutPlain is ours, and the default. The znode names contain the host.
	// Curator and Kazoo do not see them: to share a lock with these, choose
	// LayoutCurator or LayoutKazoo. (The other recipes have Curator's names by
	// default.)
	LayoutPlain Layout = iota
	// LayoutCurator is that of Apache Curator's InterProcessReadWriteLock.
	LayoutCurator
	// LayoutKazoo is that of Kazoo's ReadLock and WriteLock. The lock's directory
	// is no container then but stays: they rely on it once they have seen it. Data
	// should be UTF-8, or their contenders() fails.
	//
	// These Kazoo bugs remain when you share a lock with it: its plain Lock does
	// not see readers, Kazoo's or ours, so it must not be used on the path of a
	// read/write lock; and a ReadLock of release 2.8.0 (alone) that has to wait
	// while a writer waits behind it waits for that writer forever.
	LayoutKazoo
)

// WithLayout selects the znodes' names. Default LayoutPlain.
// For New.
func WithLayout(l Layout) Option { return setting(func(c *config) { c.layout = l }) }

// WithHost sets the host in the znodes' names, where the layout has one;
// characters that a znode's name cannot have become '_'. Default: os.Hostname.
// For New.
func WithHost(host string) Option { return setting(func(c *config) { c.host = host }) }

// setting is an option of New alone.
type setting = option.RWLock[config]

type config struct {
	layout Layout
	host   string
}

// newConfig splits opts into what is this lock's own, for readers and for
// writers, and what is any line's.
func newConfig(opts []Option) (read, write bridge.Inside, lineOpts []recipes.LineOption, err error) {
	host, _ := os.Hostname() // it only names the znode: without one it is "host"
	cfg := config{host: host}
	for _, opt := range opts {
		switch opt := opt.(type) {
		case setting:
			opt(&cfg)
		case recipes.LineOption:
			lineOpts = append(lineOpts, opt)
		default:
			return read, write, nil, fmt.Errorf("option %T: unknown", opt)
		}
	}
	in := bridge.Inside{Package: "rwlock"}
	var reading, writing string
	switch cfg.layout {
	case LayoutPlain:
		in.Set.Family = layout.PlainRW
		reading, writing = layout.PlainReadName(cfg.host), layout.PlainWriteName(cfg.host)
	case LayoutCurator:
		in.Set.Family = layout.CuratorRW
		reading, writing = layout.CuratorReadName, layout.CuratorWriteName
	case LayoutKazoo:
		in.Set, in.PersistentDir = layout.Set{Family: layout.KazooLock, Also: layout.KazooRLock}, true
		reading, writing = layout.KazooRLockName, layout.KazooLockName
	default:
		return read, write, nil, fmt.Errorf("layout %d: unknown", cfg.layout)
	}
	read, write = in, in
	read.Base, read.DowngradeFrom = reading, writer
	write.Base, write.DowngradeTo = writing, reading
	read.Recipe, write.Recipe = "read", "write"
	return read, write, lineOpts, nil
}
