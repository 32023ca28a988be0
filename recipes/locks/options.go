package locks

import (
	"bytes"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
)

// Option configures a recipe of this package. A bad value is an error of its
// constructor.
type Option func(*config)

type config struct {
	line.Config
	layout Layout
}

// newConfig gives what opts make of the defaults, and the rule that they select.
func newConfig(opts []Option) (config, line.Rule, error) {
	cfg := config{Config: line.Config{Handover: line.DefaultHandover}}
	for _, opt := range opts {
		opt(&cfg)
	}
	switch cfg.layout {
	case LayoutCurator:
		return cfg, mutexRule, nil
	case LayoutKazoo:
		return cfg, kazooRule, nil
	default:
		return cfg, line.Rule{}, fmt.Errorf("layout %d: unknown", cfg.layout)
	}
}

// Layout selects whose locks stand in the same line. A line in which those of
// another layout stand fails with recipes.ErrLayout.
type Layout int

const (
	// LayoutCurator: Apache Curator's InterProcessMutex, and go-zookeeper's Lock.
	LayoutCurator Layout = iota
	// LayoutKazoo: Kazoo's Lock, and so its Election. The lock's directory is no
	// container then but stays, for they take it for granted once they have seen it.
	// Data should be UTF-8, or their contenders() fails. A Kazoo Lock does not see
	// Kazoo's readers: beside one of those it is recipes.ErrLayout.
	LayoutKazoo
)

// WithLayout selects the znodes' names. Default LayoutCurator.
func WithLayout(l Layout) Option { return func(c *config) { c.layout = l } }

// WithData sets the data of the znode in line, by which others see who it is.
// Default: none.
func WithData(data []byte) Option {
	data = bytes.Clone(data)
	return func(c *config) { c.Data = data }
}

// WithACL sets the ACL of the znode in line; its directories have the client's.
// Default: the client's.
func WithACL(acl ...zk.ACL) Option {
	return func(c *config) { c.ACL = append([]zk.ACL{}, acl...) }
}

// WithMaxHold sets for how long a lease, with all that re-enters it, is held at
// most: it is declared lost then, with ErrMaxHold, and its znode removed when it is
// released, or else at the deadline that the session has by then, at most a
// session time-out later. Default 0: for as long as the session lives.
func WithMaxHold(d time.Duration) Option { return func(c *config) { c.MaxHold = d } }

// WithHandover sets how often the znode of a lease that is released is handed over
// to the next of this process who waits, at the cost of no request, before
// others who stand in line get their turn: n times, and for a session time-out at
// most. While nobody else stands in line it goes from one to the next without
// limit. 0 turns handing over off: each grant takes its place at the end of the
// line. Default 16.
func WithHandover(n int) Option { return func(c *config) { c.Handover = n } }

// WithLinger keeps the znode for d after its last release, while nobody else stands
// in line, so that an Acquire of this process within d costs no request. Others who
// come wait for one round trip more, and a TryAcquire of theirs is granted as well:
// see recipes.Acquirer. The lock counts as in use meanwhile, and Participants has
// this process as its holder. It costs a watch and a list for each lease that made
// requests, a write when it lingers for the first time, and a list every quarter of
// the session timeout. Default 0: it goes at once.
func WithLinger(d time.Duration) Option { return func(c *config) { c.Linger = d } }
