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
	recheck  time.Duration // a pass takes that long at most; 0: there is none
	shares   bool          // the recheck shares what the caches of a client may cost
	oneShot  bool
	label    string
}

func newConfig(opts []Option) (config, error) {
	cfg := config{depth: math.MaxInt, maxBytes: math.MaxInt64, recheck: recheckPass, shares: true}
	var errs []error
	for _, opt := range opts {
		if recheck, ok := opt.(RecheckOption); ok {
			opt = recheck.option
		}
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
// data, and about 128 bytes each. Beyond it the cache has Failed, with an error
// that names the path at which it was. A znode that is moved while the tree is
// read can be counted twice. So if anything has changed in that time, the cache
// is Stale and reads the tree again, after the pause of a reconnect. It has
// Failed after the third time in a row. Older views that are still in use are
// not counted, as while all is read again, nor is what is being read, up to
// some megabytes. Default: no limit.
func WithMaxBytes(n int64) Option { return option(func(c *config) { c.maxBytes = n }) }

// A RecheckOption is accepted by New, presence.NewGroup and discovery.New.
type RecheckOption struct{ option }

// ForPresence makes it an option of presence.NewGroup and discovery.New.
func (RecheckOption) ForPresence() {}

// WithRecheck sets how long it takes to read all znodes of this cache again,
// one after the other, spread over that time. That finds what no event tells:
// an event that a server has lost, a right to read that was granted or
// withdrawn. It costs a request for 256 znodes, and a list where the number of
// children is not the one that is shown, as with WithFilter. At least 1ms; 0
// turns it off. A lost connection does not begin it anew.
//
// Default: all caches of a client together read one request of 16 kB again in a
// session timeout, on average. Each gets an equal part of that. A tree that
// needs less is read as a whole once in a session timeout, and leaves the rest
// to the larger ones. But each is read within an hour, whatever that costs. A
// cache with WithRecheck has no part in this.
func WithRecheck(every time.Duration) RecheckOption {
	return RecheckOption{func(c *config) { c.recheck, c.shares = every, false }}
}

// WithOneShotWatches makes the cache use two watches of a single event for each
// znode, as it does where recursive watches are refused. See the package
// comment for what that costs.
func WithOneShotWatches() Option { return option(func(c *config) { c.oneShot = true }) }
