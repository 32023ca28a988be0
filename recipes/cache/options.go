package cache

import (
	"fmt"
	"math"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/least"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
	"github.com/zkrecipes/zkrecipes/recipes/internal/bridge"
)

// An Option configures a Cache: those of this package, and recipes.WithLabel. A
// bad value is an error of New.
type Option interface{ ForCache() }

type option func(*config)

func (option) ForCache() {}

type config struct {
	depth    int // levels below the root that are shown
	filter   func(path string) bool
	noData   bool
	maxBytes int64
	recheck  time.Duration
	oneShot  bool
	label    string
}

func newConfig(opts []Option) (config, error) {
	cfg := config{depth: math.MaxInt, maxBytes: math.MaxInt64, recheck: time.Hour}
	var errs []error
	for _, opt := range opts {
		set, ok := opt.(option)
		label, isLabel := opt.(bridge.ZnodeOption)
		switch {
		case ok && set != nil:
			set(&cfg)
		case isLabel:
			label.SetZnode(new([]zk.ACL), &cfg.label)
		default:
			errs = append(errs, fmt.Errorf("option %T: unknown", opt))
		}
	}
	if cfg.depth < 0 {
		errs = append(errs, fmt.Errorf("depth %d: must not be negative", cfg.depth))
	}
	if cfg.maxBytes <= 0 {
		errs = append(errs, fmt.Errorf("at most %d bytes: must be positive", cfg.maxBytes))
	}
	errs = append(errs, least.OrZero("recheck every", cfg.recheck, time.Millisecond))
	return cfg, oneline.Join(errs...)
}

// WithDepth sets how many levels below the root are shown: 0 is the root alone,
// 1 its children as well. Events of what is deeper are received all the same,
// and cost no request. Default: all levels.
func WithDepth(levels int) Option { return option(func(c *config) { c.depth = levels }) }

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
	return option(func(c *config) { c.filter = pass })
}

// WithoutData shows znodes with their Stat and without their data, which are
// read and dropped. So most of the memory is saved, and no request.
func WithoutData() Option { return option(func(c *config) { c.noData = true }) }

// WithMaxBytes sets how much memory the znodes may take: their paths, their
// data, and about 128 bytes each. Past it the cache has Failed, with an error
// that names the path at which it was. What seems to be past it, as while
// znodes are moved, costs as much as a reconnect. Older views that are still in
// use are not counted, as while all is read again, nor is what is being read,
// up to some megabytes. Default: no limit.
func WithMaxBytes(n int64) Option { return option(func(c *config) { c.maxBytes = n }) }

// WithRecheck sets how long it takes to read all znodes again, one after the
// other, spread over that time. It finds what no event tells: an event that a
// server has lost, a right to read that was granted or withdrawn. It costs a
// request for 256 znodes, and a list where the number of children is not the
// one that is shown. 0 turns it off. At least 1ms. Default: an hour.
func WithRecheck(every time.Duration) Option { return option(func(c *config) { c.recheck = every }) }

// WithOneShotWatches makes the cache use two watches of a single event for each
// znode, as it does where recursive watches are refused. See the package
// comment for what that costs.
func WithOneShotWatches() Option { return option(func(c *config) { c.oneShot = true }) }
