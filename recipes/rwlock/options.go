package rwlock

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
)

// Option configures an RWLock. A bad value is an error of New.
type Option func(*config)

type config struct {
	line.Config
	layout Layout
	host   string
}

// Layout selects whose readers and writers stand in the same line. A line in which
// those of another layout stand fails with recipes.ErrLayout.
type Layout int

const (
	// LayoutPlain: ours, which names the host.
	LayoutPlain Layout = iota
	// LayoutCurator: Apache Curator's InterProcessReadWriteLock.
	LayoutCurator
	// LayoutKazoo: Kazoo's ReadLock and WriteLock. The lock's directory is no
	// container then but stays, for they take it for granted once they have seen it.
	// Data should be UTF-8, or their contenders() fails.
	//
	// What Kazoo itself does wrong stays wrong beside us: its plain Lock does not see
	// readers, theirs or ours, so it must not be used on the path of a read/write
	// lock; and a ReadLock of release 2.8.0 (alone) that has to wait while a writer
	// waits behind it waits for that writer too, for ever.
	LayoutKazoo
)

// rule is what the rules of both sides have in common, and the names under which a
// reader and a writer of host are created.
func (l Layout) rule(host string) (rule line.Rule, read, write string) {
	rule.Blocker = blocker
	switch l {
	case LayoutCurator:
		rule.Family = layout.CuratorRW
		return rule, layout.CuratorReadName, layout.CuratorWriteName
	case LayoutKazoo:
		rule.Family, rule.Also, rule.Stays = layout.KazooLock, layout.KazooRLock, true
		return rule, layout.KazooRLockName, layout.KazooLockName
	default:
		rule.Family = layout.PlainRW
		return rule, layout.PlainReadName(host), layout.PlainWriteName(host)
	}
}

func newConfig(opts []Option) (config, error) {
	host, _ := os.Hostname() // it only names the znode: without one it is "host"
	cfg := config{Config: line.Config{Handover: line.DefaultHandover}, host: host}
	for _, opt := range opts {
		opt(&cfg)
	}
	var errs []error
	if cfg.layout < LayoutPlain || cfg.layout > LayoutKazoo {
		errs = append(errs, fmt.Errorf("layout %d: unknown", cfg.layout))
	}
	return cfg, errors.Join(errs...)
}

// WithLayout selects the znodes' names. Default LayoutPlain.
func WithLayout(l Layout) Option { return func(c *config) { c.layout = l } }

// WithHost sets the host in the znodes' names, where the layout has one; what a
// znode's name cannot have becomes '_'. Default: os.Hostname.
func WithHost(host string) Option { return func(c *config) { c.host = host } }

// WithData sets the data of the znodes in line, by which others see who it is.
// Default: none.
func WithData(data []byte) Option {
	data = bytes.Clone(data)
	return func(c *config) { c.Data = data }
}

// WithACL sets the ACL of the znodes in line; their directories have the client's.
// Default: the client's.
func WithACL(acl ...zk.ACL) Option {
	return func(c *config) { c.ACL = append([]zk.ACL{}, acl...) }
}

// WithMaxHold sets for how long a lease, with all that re-enters it, is held at
// most: it is declared lost then, with recipes.ErrMaxHold, and its znode removed
// when it is released, or else at the deadline that the session has by then, at
// most a session time-out later. A downgraded read has a time of its own. Readers
// with a longest hold share a znode only with those who waited together with them,
// and it does not linger. Default 0: for as long as the session lives.
func WithMaxHold(d time.Duration) Option { return func(c *config) { c.MaxHold = d } }

// WithHandover sets how often the znode of a lease that is released is handed over
// to the next of this process who waits to write, at the cost of no request, before
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
