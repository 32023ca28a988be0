package presence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/least"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
)

// An Option configures a Node: those of this package, and of package recipes
// WithACL and WithLabel. A bad value is an error of New.
type Option = option.ForPresence

// setting is an option of this package.
type setting = option.Presence[config]

type config struct {
	option.Shared
	sequential bool
	yield      bool
	takeover   func(old []byte) bool
	health     func(context.Context) error
	every      time.Duration
	group      string // an option that only a group has
	layout     Layout
	cache      []cache.Option // of a Roster
	lasting    bool           // the directories are persistent
	errs       []error
}

func newConfig(opts []Option) (cfg config, err error) {
	for _, opt := range opts {
		switch opt := opt.(type) {
		case setting:
			opt(&cfg)
		case cache.FollowOption:
			cfg.group, cfg.cache = "recheck and snapshot", append(cfg.cache, opt)
		default:
			if !cfg.Set(opt) {
				cfg.errs = append(cfg.errs, fmt.Errorf("option %T: unknown", opt))
			}
		}
	}
	if cfg.sequential && cfg.takeover != nil {
		cfg.errs = append(cfg.errs, errors.New("takeover: no other session can have a sequential name"))
	}
	return cfg, oneline.Join(cfg.errs...)
}

// WithSequential gives the znode a name of its own, in each session another
// one: "_c_<uuid>-", the last element of the path, and a sequence number. The
// id in front is how the znode is found again if an answer is lost. Node.Path
// has the name. Default: the path is the znode's.
// For New.
func WithSequential() Option { return setting(func(c *config) { c.sequential = true }) }

// WithYield makes the Node stay away once somebody has deleted its znode, while
// its session lived: operators drain a service so. It stays away also if
// another session has the name by then. Default: the znode is made again, at
// once for the first time, and after pauses that grow to half a minute if it
// goes on.
// For New.
func WithYield() Option { return setting(func(c *config) { c.yield = true }) }

// WithTakeover makes the Node replace an ephemeral znode of another session if
// mine reports that its data are those of an earlier process of this owner. The
// old znode is deleted, at the version that was read, and the new one is
// created in one transaction: no reader sees a gap. The owner of the old znode
// finds its name Taken, or Removed if it has WithYield. mine must not change
// old, and runs on a goroutine of its own.
//
// When mine has returned true, the Node reads the old znode again, and replaces
// it only if it has not changed. ZooKeeper checks no czxid. If the old znode is
// deleted between that read and the transaction, and another one of the same
// version is made, that one is replaced. So this is off by default: the name is
// waited for.
// For New.
func WithTakeover(mine func(old []byte) bool) Option {
	return setting(func(c *config) {
		if c.takeover = mine; mine == nil {
			c.errs = append(c.errs, errors.New("takeover is nil"))
		}
	})
}

// WithHealthCheck makes the znode stand only while check returns nil: it is
// called before the znode is made, and once per interval from then on. Each
// call gets a context with the interval as its timeout. A call that has not
// returned by then has failed, and so has one that panics; no other call begins
// before it has returned. The interval is at least 10ms. Default: none.
// For New.
func WithHealthCheck(interval time.Duration, check func(context.Context) error) Option {
	return setting(func(c *config) {
		c.every, c.health = interval, check
		c.errs = append(c.errs, least.Duration("health check every", interval, least.HealthCheck))
		if check == nil {
			c.errs = append(c.errs, errors.New("health check: must not be nil"))
		}
	})
}
