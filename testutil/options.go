package testutil

import (
	"errors"
	"fmt"
	"time"
)

// An Option sets one thing about an embedded ensemble.
type Option func(*config)

type config struct {
	members    int
	tick       time.Duration
	minTimeout time.Duration
	maxTimeout time.Duration
	syncLimit  int
	election   time.Duration
	reap       time.Duration
	extended   bool
	rate       func(session int64) float64
	memory     bool
	listen     []string
	logf       func(format string, args ...any)
}

// WithMembers sets the number of members, 1 by default. One member is a standalone server, as it is with the real thing: its
// transactions have epoch 0 and no quorum is asked for.
func WithMembers(n int) Option { return func(c *config) { c.members = n } }

// WithTick sets the tick, 2 s by default as on the real server: sessions expire at whole ticks since the start, members talk
// to their leader every half tick.
func WithTick(d time.Duration) Option { return func(c *config) { c.tick = d } }

// WithSessionTimeouts sets the bounds of a session's time-out; a request beyond them is clamped. By default 2 and 20 ticks.
func WithSessionTimeouts(least, most time.Duration) Option {
	return func(c *config) { c.minTimeout, c.maxTimeout = least, most }
}

// WithSyncLimit sets after how many ticks without a word members give each other up, 5 by default.
func WithSyncLimit(ticks int) Option { return func(c *config) { c.syncLimit = ticks } }

// WithElectionTime sets how long members take to choose a leader, or to find the one there is, once enough of them can talk
// to each other: 200 ms by default.
func WithElectionTime(d time.Duration) Option { return func(c *config) { c.election = d } }

// WithExtendedTypes makes the ensemble take znodes with a time to live (createTTL), which the real server also refuses as
// unimplemented unless its property zookeeper.extendedTypesEnabled is set. They are removed by the sweep that removes containers.
func WithExtendedTypes() Option { return func(c *config) { c.extended = true } }

// WithContainerInterval sets how often unused containers, and znodes that have outlived their time, are removed: once a minute by
// default.
func WithContainerInterval(d time.Duration) Option { return func(c *config) { c.reap = d } }

// WithClockRates sets how fast the members' clocks run beside the one of each session's client, as far as its time-out goes: at
// 1.1 a session of 11 s is expired as one of 10 s. By default all run alike. rate is called with the ensemble's lock held.
func WithClockRates(rate func(session int64) float64) Option {
	return func(c *config) { c.rate = rate }
}

// InMemory makes the ensemble listen nowhere: it is reached through Dial alone, over connections in memory, so that it works
// within a testing/synctest bubble, in virtual time. Build everything inside the bubble. The addresses are member0:2181 and so
// on; no resolver knows them.
func InMemory() Option { return func(c *config) { c.memory = true } }

// WithListen sets the address of each member. By default each takes a free port of 127.0.0.1, and keeps it.
func WithListen(addresses ...string) Option {
	return func(c *config) { c.listen = addresses }
}

// WithLogger is told what a server would log: connections refused or broken off and why, elections, expiries. The default is
// the test's log under Start and silence under New. It is called with the ensemble's lock held and must not call back.
func WithLogger(logf func(format string, args ...any)) Option {
	return func(c *config) { c.logf = logf }
}

func newConfig(opts []Option) (config, error) {
	c := config{
		members: 1, tick: 2 * time.Second, syncLimit: 5, election: 200 * time.Millisecond, reap: time.Minute,
		rate: func(int64) float64 { return 1 },
		logf: func(string, ...any) {},
	}
	for _, o := range opts {
		o(&c)
	}
	if c.minTimeout == 0 {
		c.minTimeout = 2 * c.tick
	}
	if c.maxTimeout == 0 {
		c.maxTimeout = 20 * c.tick
	}
	switch {
	case c.members < 1 || c.members > 127:
		return c, fmt.Errorf("testutil: an ensemble of %d members", c.members)
	case c.tick < 2*time.Millisecond:
		return c, fmt.Errorf("testutil: a tick of %v, the least is 2ms", c.tick)
	case c.minTimeout < time.Millisecond || c.maxTimeout < c.minTimeout:
		return c, fmt.Errorf("testutil: session time-outs from %v to %v", c.minTimeout, c.maxTimeout)
	case c.syncLimit < 1:
		return c, fmt.Errorf("testutil: a sync limit of %d ticks", c.syncLimit)
	case c.election < 0 || c.reap <= 0:
		return c, errors.New("testutil: an interval below zero")
	case c.memory && c.listen != nil:
		return c, errors.New("testutil: InMemory and WithListen exclude each other")
	case c.listen != nil && len(c.listen) != c.members:
		return c, fmt.Errorf("testutil: %d addresses for %d members", len(c.listen), c.members)
	case c.rate == nil:
		return c, errors.New("testutil: no clock rates")
	case c.logf == nil:
		return c, errors.New("testutil: no logger")
	}
	return c, nil
}
