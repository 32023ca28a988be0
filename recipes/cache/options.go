package cache

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/least"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
)

// An Option configures a Cache: those of this package, and recipes.WithLabel. A
// bad value is an error of New.
type Option = option.ForCache

// setting is an option of New alone.
type setting = option.Cache[config]

type config struct {
	depth    int // levels below the root that are shown
	filter   func(path string) bool
	noData   bool
	maxBytes int64
	recheck  time.Duration // a pass takes that long at most; 0: there is none
	shares   bool          // the recheck shares what the caches of a client may cost
	oneShot  bool
	label    string
	file     *string       // of WithSnapshot; nil: none
	age      time.Duration // of WithMaxSnapshotAge; 0: any
}

func newConfig(opts []Option) (config, error) {
	cfg := config{depth: math.MaxInt, maxBytes: math.MaxInt64, recheck: recheckPass, shares: true}
	suffix := ""
	var shared option.Shared // of which a cache has the label
	var errs []error
	for _, opt := range opts {
		if f, ok := opt.(FollowOption); ok {
			opt = setting(f.follow)
		}
		of, isOf := opt.(option.SnapshotOf)
		set, ok := opt.(setting)
		switch {
		case ok && set != nil:
			set(&cfg)
		case isOf:
			suffix = "." + strings.ReplaceAll(url.PathEscape(string(of)), beside, "%7E")
		case !shared.Set(opt):
			errs = append(errs, fmt.Errorf("option %T: unknown", opt))
		}
	}
	cfg.label = shared.Label
	if cfg.depth < 0 {
		errs = append(errs, fmt.Errorf("depth %d: must not be negative", cfg.depth))
	}
	if cfg.maxBytes <= 0 {
		errs = append(errs, fmt.Errorf("at most %d bytes: must be positive", cfg.maxBytes))
	}
	if cfg.file != nil && *cfg.file == "" {
		errs = append(errs, errors.New("snapshot: no name of a file"))
	} else if cfg.file != nil {
		file := *cfg.file + suffix
		cfg.file = &file
	}
	errs = append(errs, least.OrZero("recheck every", cfg.recheck, time.Millisecond), least.OrZero("maximum snapshot age", cfg.age, time.Second))
	return cfg, oneline.Join(errs...)
}

// WithDepth sets how many levels below the root are shown: 0 is the root alone,
// 1 its children as well. Events of what is deeper are received all the same,
// and cost no request. Default: all levels.
func WithDepth(levels int) Option { return setting(func(c *config) { c.depth = levels }) }

// WithFilter sets which znodes are shown: those for which pass returns true,
// also for every znode between them and the root. The root is always shown.
// What is not shown is not read.
//
// pass must always give the same answer for a path, and may be called again. It
// is called on goroutines of its own: one that blocks delays this cache, but
// neither Close nor other users of the client. If it panics or ends its
// goroutine the cache has Failed, since nobody could know what is missing in
// its views. Default: all are shown.
func WithFilter(pass func(path string) bool) Option {
	return setting(func(c *config) { c.filter = pass })
}

// WithoutData shows znodes with their Stat and without their data, which are
// read and dropped. So most of the memory is saved, and no request.
func WithoutData() Option { return setting(func(c *config) { c.noData = true }) }

// WithMaxBytes sets how much memory the znodes may take: their paths, their
// data, and about 128 bytes each. Beyond that the state is Failed, and the
// error names the path that the cache was reading. A znode that is moved while
// the tree is read can be counted twice. So if anything changed during the
// read, the state becomes Stale. The cache then reads the tree again, after the
// same pause as after a reconnect. After the third such read in a row the state
// is Failed. The limit does not count older views that are still in use, for
// example while the tree is read again. It does not count what is being read,
// up to some megabytes. Default: no limit.
func WithMaxBytes(n int64) Option { return setting(func(c *config) { c.maxBytes = n }) }

// A FollowOption is accepted by New, presence.NewGroup and discovery.New: it is
// one of WithRecheck, WithSnapshot and WithMaxSnapshotAge.
type FollowOption struct{ follow }

type follow = option.Follow[config]

// WithRecheck sets how long the recheck takes to read all znodes of this cache
// again, one after the other, spread over that time. The recheck finds changes
// without an event: a server has lost the event, or a right to read was granted
// or withdrawn. It costs a request for each 256 znodes. It also lists a znode
// whose number of children differs from the number shown, as with WithFilter. A
// lost connection does not start that time again. At least 1ms; 0 turns the
// recheck off.
//
// By default, all caches of a client together read one request of 16 kB again
// per session timeout, on average. Each cache gets an equal part of that. If a
// tree needs less than its part, the cache reads the whole tree once per
// session timeout, and larger trees get the rest. But every tree is read within
// an hour, whatever that costs. A cache with WithRecheck has no part in this.
func WithRecheck(every time.Duration) FollowOption {
	return FollowOption{func(c *config) { c.recheck, c.shares = every, false }}
}

// WithOneShotWatches makes the cache use two watches of a single event for each
// znode, as it does where recursive watches are refused. See the package
// comment for what that costs.
func WithOneShotWatches() Option { return setting(func(c *config) { c.oneShot = true }) }

// WithSnapshot keeps the latest view in a file, so that a program has a view
// when it starts while no server answers. Start reads the file. Its view is
// Stale since the time at which it was last known to be true, and the Err of
// the Status wraps ErrSnapshot until the ensemble was read. Its Zxid is 0:
// Known returns it, and Synced, Fresh and Reach wait. The first read of the
// ensemble reports only differences. If the ensemble has another znode at the
// root, or above it, listeners get a batch that empties the view before that
// with what was read.
//
// The file is written when the view has changed: at the earliest five seconds,
// and fifty times what the last write took, after the last write. It is also
// written by Close, and once an hour for its time. A new file replaces the old
// one when it is complete and on the disk. It has the mode 0600, and all data
// that the cache shows. Each cache needs a file of its own, in a directory that
// exists. A disk that hangs delays Start by a second and Close by five, and
// nothing else.
//
// A file that is damaged, of another path, WithDepth or WithoutData, or of more
// than WithMaxBytes, is ignored and replaced, with a line in the log. One that
// is no snapshot at all is ignored and stays: then no snapshot is kept. It
// costs a request for the root, and for each znode above it, each time the
// whole tree is read, to identify them. Default: no snapshot.
func WithSnapshot(file string) FollowOption {
	return FollowOption{func(c *config) { c.file = &file }}
}

// WithMaxSnapshotAge makes Start ignore a file of WithSnapshot that has not
// been known to be true for longer than d. A view that is already shown stays.
// At least 1s. Default 0: any age.
func WithMaxSnapshotAge(d time.Duration) FollowOption {
	return FollowOption{func(c *config) { c.age = d }}
}
