package testutil

import (
	"errors"
	"fmt"
	"math"
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
	unchecked  bool // exists asks for no permission
	super      string
	touches    func(member int) time.Duration
	hops       map[int]int // members that reach the others through another one only
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

// WithContainerInterval sets how often unused containers, and znodes that have
// outlived their time, are removed: once a minute by default, and as often as every
// millisecond. Nested containers go in one pass.
func WithContainerInterval(d time.Duration) Option { return func(c *config) { c.reap = d } }

// WithExistsWithoutRead lets clients ask exists of a znode that they may not read, as
// servers before 3.7.3, 3.8.4 and 3.9.2 do. By default the answer is NoAuth, as it is
// there (ZOOKEEPER-2590).
func WithExistsWithoutRead() Option { return func(c *config) { c.unchecked = true } }

// WithSuperDigest names the super user, whom no access control list keeps out. digest
// is what the real server's property zookeeper.DigestAuthenticationProvider.superDigest
// holds: a user's name, a colon, and the base64 of the SHA-1 of "user:password". A
// client becomes the super user by auth with the scheme digest and those credentials.
// By default there is none. See Digest.
func WithSuperDigest(digest string) Option { return func(c *config) { c.super = digest } }

// Digest returns the id of the scheme digest for "user:password", as it stands in
// access control lists and as WithSuperDigest takes it.
func Digest(credentials string) string { return digest([]byte(credentials)) }

// WithTouchDelays sets how much later than each half tick a follower tells the leader
// of the sessions that it has heard of: a busy server is not exact. delay is called for
// each follower at each half tick, with the ensemble's lock held. By default there is
// no delay.
func WithTouchDelays(delay func(member int) time.Duration) Option {
	return func(c *config) { c.touches = delay }
}

// WithSecondHop has a member reach the others through another member only, as an
// observer behind an ObserverMaster does. What it has heard of sessions is handed on
// twice, each half tick by either, so that the leader may learn of it a whole tick
// later; requests are forwarded at once. While the other member is stopped, paused or
// cut off, so is this one. It never leads.
func WithSecondHop(member, through int) Option {
	return func(c *config) {
		if c.hops == nil {
			c.hops = map[int]int{}
		}
		c.hops[member] = through
	}
}

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
		rate:    func(int64) float64 { return 1 },
		touches: func(int) time.Duration { return 0 },
		logf:    func(string, ...any) {},
	}
	for i, o := range opts {
		if o == nil {
			return c, fmt.Errorf("testutil: option %d is nil", i)
		}
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
	case c.minTimeout.Milliseconds() > math.MaxInt32:
		return c, fmt.Errorf("testutil: session time-outs from %v: the protocol has 32 bits for the milliseconds", c.minTimeout)
	case c.syncLimit < 1:
		return c, fmt.Errorf("testutil: a sync limit of %d ticks", c.syncLimit)
	case c.election < 0:
		return c, errors.New("testutil: an election time below zero")
	case c.reap < time.Millisecond:
		return c, fmt.Errorf("testutil: a container interval of %v, the least is 1ms", c.reap)
	case c.super != "" && !validDigest(c.super):
		return c, fmt.Errorf("testutil: super digest %q: want user:base64(sha1(user:password))", c.super)
	case c.memory && c.listen != nil:
		return c, errors.New("testutil: InMemory and WithListen exclude each other")
	case c.listen != nil && len(c.listen) != c.members:
		return c, fmt.Errorf("testutil: %d addresses for %d members", len(c.listen), c.members)
	case c.rate == nil:
		return c, errors.New("testutil: no clock rates")
	case c.touches == nil:
		return c, errors.New("testutil: no touch delays")
	case c.logf == nil:
		return c, errors.New("testutil: no logger")
	}
	for member, through := range c.hops {
		_, chained := c.hops[through]
		if min(member, through) < 0 || max(member, through) >= c.members || member == through || chained || c.members < 3 {
			return c, fmt.Errorf("testutil: member %d behind member %d in an ensemble of %d", member, through, c.members)
		}
	}
	return c, nil
}
