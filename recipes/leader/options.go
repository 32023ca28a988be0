package leader

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/least"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/bridge"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
	"github.com/zkrecipes/zkrecipes/retry"
)

// An Option configures an Election: those of this package, and of package
// recipes WithData, WithACL and WithAsyncRelease. A bad value is an error of
// New.
type Option = option.ForElection

// setting is an option of New alone.
type setting = option.Election[config]

type config struct {
	layout  Layout
	maxTerm time.Duration
	backoff retry.Policy
	health  func(context.Context) error
	every   time.Duration
}

// Layout selects whose candidates stand in the same line.
type Layout int

const (
	// LayoutLatch is that of Apache Curator's LeaderLatch.
	LayoutLatch Layout = iota
	// LayoutSelector is that of Apache Curator's LeaderSelector, which is the line
	// of a mutex at the same path.
	LayoutSelector
	// LayoutKazoo is that of Kazoo's Election, which is the line of its Lock at
	// the same path. The directory is no container then but stays: Kazoo relies on
	// it once it has seen it. The id should be UTF-8, or its contenders() fails.
	LayoutKazoo
)

// inside is what is an election's, and no other line's.
func (l Layout) inside() bridge.Inside {
	in := bridge.Inside{Package: "leader", OwnQueue: true, IgnoreContext: true, KeepUntilReleased: true}
	switch l {
	case LayoutSelector:
		in.Base, in.Set.Family = layout.CuratorLockName, layout.CuratorLock
	case LayoutKazoo:
		in.Base, in.Set.Family, in.PersistentDir = layout.KazooLockName, layout.KazooLock, true
	default:
		in.Base, in.Set.Family = layout.LatchName, layout.Latch
	}
	return in
}

// newConfig splits opts into what is an election's own and what is any line's.
func newConfig(opts []Option) (cfg config, lineOpts []recipes.LineOption, err error) {
	cfg.backoff = DefaultBackoff
	var errs []error
	for _, opt := range opts {
		switch opt := opt.(type) {
		case setting:
			opt(&cfg)
		case recipes.LineOption:
			lineOpts = append(lineOpts, opt)
		default:
			errs = append(errs, fmt.Errorf("option %T: unknown", opt))
		}
	}
	if cfg.layout < LayoutLatch || cfg.layout > LayoutKazoo {
		errs = append(errs, fmt.Errorf("layout %d: unknown", cfg.layout))
	}
	errs = append(errs, least.OrZero("maximum term", cfg.maxTerm, time.Millisecond))
	if err := retry.Check(cfg.backoff); err != nil {
		errs = append(errs, fmt.Errorf("backoff: %w", err))
	}
	if cfg.health != nil {
		errs = append(errs, least.Duration("health check every", cfg.every, least.HealthCheck))
	}
	return cfg, append(lineOpts, cfg.layout.inside()), oneline.Join(errs...)
}

// DefaultBackoff is the pauses of Run after terms that failed one after the
// other.
var DefaultBackoff = retry.Exponential(200*time.Millisecond, 10*time.Second, math.MaxInt)

// WithID sets the candidate's id, which others see as the data of its znode: it
// is recipes.WithData for a text. Default: the host's name and the process id.
// For New.
func WithID(id string) Option { return recipes.WithData([]byte(id)) }

// WithLayout selects the znodes' names. Default LayoutLatch.
// For New.
func WithLayout(l Layout) Option { return setting(func(c *config) { c.layout = l }) }

// WithMaxTerm sets how long Run leads while other candidates wait: after d the
// term ends as soon as there is another candidate, so that leadership rotates.
// At least 1ms. Default 0: a term ends only by its function or by a loss.
// For New.
func WithMaxTerm(d time.Duration) Option { return setting(func(c *config) { c.maxTerm = d }) }

// WithBackoff sets the pauses of Run before it campaigns again after a term
// whose function returned an error, or a campaign that failed. After a term
// without an error the pauses start again from the first. When the policy is
// used up Run returns the error. Default DefaultBackoff: from 200ms to 10s,
// without end.
// For New.
func WithBackoff(p retry.Policy) Option { return setting(func(c *config) { c.backoff = p }) }

// WithHealthCheck makes Run call check before it campaigns, when a term begins,
// and once per interval during the term. Each call gets a context with the
// interval as its timeout. When check fails Run gives the term up, and
// campaigns again once check passes. A call that has not returned within the
// interval has failed, but Run waits for it before it campaigns again or
// returns. A heartbeat shows only that the process is alive; check shows that
// its work makes progress. The interval is at least 10ms. Default: none.
// For New.
func WithHealthCheck(interval time.Duration, check func(context.Context) error) Option {
	return setting(func(c *config) { c.every, c.health = interval, check })
}
