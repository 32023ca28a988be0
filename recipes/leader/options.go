package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
	"github.com/zkrecipes/zkrecipes/retry"
)

// Option configures an Election. A bad value is an error of New.
type Option func(*config)

type config struct {
	line.Config
	layout  Layout
	maxTerm time.Duration
	backoff retry.Policy
	health  func(context.Context) error
	every   time.Duration
}

// Layout selects whose candidates stand in the same line.
type Layout int

const (
	// LayoutLatch: Apache Curator's LeaderLatch.
	LayoutLatch Layout = iota
	// LayoutSelector: Apache Curator's LeaderSelector, which is the line of a
	// mutex at the same path.
	LayoutSelector
	// LayoutKazoo: Kazoo's Election, which is the line of its Lock at the same path.
	// The directory is no container then but stays, for it takes that for granted
	// once it has seen it. The id should be UTF-8, or its contenders() fails.
	LayoutKazoo
)

// rule is an election's, but for its kind.
func (l Layout) rule() line.Rule {
	rule := line.Rule{Blocker: line.Predecessor} // first come, first to lead
	switch l {
	case LayoutSelector:
		rule.Base, rule.Family = layout.CuratorLockName, layout.CuratorLock
	case LayoutKazoo:
		rule.Base, rule.Family, rule.Stays = layout.KazooLockName, layout.KazooLock, true
	default:
		rule.Base, rule.Family = layout.LatchName, layout.Latch
	}
	return rule
}

func newConfig(opts []Option) (config, error) {
	cfg := config{backoff: DefaultBackoff}
	for _, opt := range opts {
		opt(&cfg)
	}
	var errs []error
	if cfg.layout < LayoutLatch || cfg.layout > LayoutKazoo {
		errs = append(errs, fmt.Errorf("layout %d: unknown", cfg.layout))
	}
	if cfg.maxTerm < 0 {
		errs = append(errs, fmt.Errorf("longest term %v: must not be negative", cfg.maxTerm))
	}
	if cfg.backoff == nil {
		errs = append(errs, errors.New("back-off: nil"))
	}
	if cfg.health != nil && cfg.every <= 0 {
		errs = append(errs, fmt.Errorf("health check every %v: must be positive", cfg.every))
	}
	return cfg, errors.Join(errs...)
}

// DefaultBackoff is the pauses of Run after terms that failed one after the other.
var DefaultBackoff = retry.Exponential(200*time.Millisecond, 10*time.Second, 1<<30)

// WithID sets the candidate's id, which others see as the data of its znode.
// Default: none.
func WithID(id string) Option { return func(c *config) { c.Data = []byte(id) } }

// WithACL sets the ACL of the candidate's znode. Default: the client's.
func WithACL(acl ...zk.ACL) Option {
	return func(c *config) { c.ACL = append([]zk.ACL{}, acl...) }
}

// WithLayout selects the znodes' names. Default LayoutLatch.
func WithLayout(l Layout) Option { return func(c *config) { c.layout = l } }

// WithMaxTerm sets how long Run leads while other candidates wait: after d the
// term ends as soon as there is another candidate, so that leadership goes round.
// Default 0: a term ends only by its function or by a loss.
func WithMaxTerm(d time.Duration) Option { return func(c *config) { c.maxTerm = d } }

// WithBackoff sets the pauses of Run before it campaigns again after a term whose
// function returned an error, or a campaign that failed; a term that ended without
// one begins it anew. When it is used up Run returns the error. Default
// DefaultBackoff: from 200ms to 10s, without end.
func WithBackoff(p retry.Policy) Option { return func(c *config) { c.backoff = p } }

// WithHealthCheck has Run call check before it campaigns, at once when a term begins,
// and every so often during the term. When check fails Run gives the term up, and
// campaigns again once check passes. Each call
// has a context that ends after every; one that has not returned by then has
// failed, but Run waits for it before it campaigns again or returns. A heartbeat
// shows only that the process is alive, not that its work gets on. Default: none.
func WithHealthCheck(every time.Duration, check func(context.Context) error) Option {
	return func(c *config) { c.every, c.health = every, check }
}
