package testutil

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Option configures an embedded ensemble.
type Option func(*config)

type config struct {
	members         int
	tick            time.Duration
	minTimeout      time.Duration
	maxTimeout      time.Duration
	syncLimit       int
	election        time.Duration
	sweepInterval   time.Duration
	extended        bool
	existsUnchecked bool // exists needs no permission
	super           string
	touchDelay      func(member int) time.Duration
	reportDelay     func(member int) time.Duration
	secondHops      map[int]int // members that reach the others only through another member
	clockRate       func(session int64) float64
	memory          bool
	listen          []string
	logf            func(format string, args ...any)
}

// WithMembers sets the number of members: 1 by default, 127 at most. One member
// is a standalone server, as Apache ZooKeeper is with one: its transactions
// have epoch 0, and there is no quorum.
func WithMembers(n int) Option { return func(c *config) { c.members = n } }

// WithTick sets the tick, 2 s by default as on the real server, and at least 2
// ms. Sessions expire at whole ticks since the start. Members talk to their
// leader every half tick.
func WithTick(d time.Duration) Option { return func(c *config) { c.tick = d } }

// WithSessionTimeouts sets the bounds of session timeouts. A client that asks
// for less or more gets the nearest bound. The default is 2 and 20 ticks.
func WithSessionTimeouts(least, most time.Duration) Option {
	return func(c *config) { c.minTimeout, c.maxTimeout = least, most }
}

// WithSyncLimit sets after how many ticks of silence a member and its leader
// give each other up. The default is 5.
func WithSyncLimit(ticks int) Option { return func(c *config) { c.syncLimit = ticks } }

// WithElectionTime sets how long members need to elect a leader, or to find the
// present one, once enough of them can talk to each other. The default is 200
// ms.
func WithElectionTime(d time.Duration) Option { return func(c *config) { c.election = d } }

// WithExtendedTypes allows znodes with a time to live (createTTL). By default
// they are refused as unimplemented, as on the real server, which allows them
// with its property zookeeper.extendedTypesEnabled. The sweep of
// WithContainerInterval removes them.
func WithExtendedTypes() Option { return func(c *config) { c.extended = true } }

// WithContainerInterval sets how often the ensemble removes empty containers
// that once had children, and znodes whose time to live is over: once a minute
// by default, every millisecond at most. Nested containers are removed in one
// pass.
func WithContainerInterval(d time.Duration) Option { return func(c *config) { c.sweepInterval = d } }

// WithExistsWithoutRead lets clients ask exists of a znode that they may not
// read, as servers before 3.7.3, 3.8.4 and 3.9.2 do. By default the answer is
// CodeNoAuth, as on later servers (ZOOKEEPER-2590).
func WithExistsWithoutRead() Option { return func(c *config) { c.existsUnchecked = true } }

// WithSuperDigest names the super user, to whom no access control list applies.
// By default there is none. digest has the form of the real server's property
// zookeeper.DigestAuthenticationProvider.superDigest: a user name, a colon, and
// the base64 of the SHA-1 of "user:password". [Digest] computes it. A client
// becomes the super user by adding these credentials with the scheme digest.
func WithSuperDigest(digest string) Option { return func(c *config) { c.super = digest } }

// Digest returns the id of "user:password" in the scheme digest, as access
// control lists contain it and as [WithSuperDigest] takes it.
func Digest(credentials string) string { return digest([]byte(credentials)) }

// WithTouchDelays makes followers report late to the leader which sessions they
// have heard from, as over a slow network. delay is called for each follower at
// each half tick, when the leader asks for that report, and returns how much
// later the question arrives. Whatever the leader sends after the question
// arrives after it: answers to writes and syncs wait. delay is called with the
// ensemble's lock held, so it must not call the ensemble. By default there is
// no delay.
func WithTouchDelays(delay func(member int) time.Duration) Option {
	return func(c *config) { c.touchDelay = delay }
}

// WithReportDelays makes those reports arrive late. delay is called when a
// follower sends one, and returns how long it is on its way. The requests that
// the follower forwards after it arrive after it. delay is called with the
// ensemble's lock held, so it must not call the ensemble. By default there is
// no delay.
func WithReportDelays(delay func(member int) time.Duration) Option {
	return func(c *config) { c.reportDelay = delay }
}

// WithSecondHop connects a member to the others only through one of them, as an
// observer behind an ObserverMaster is. Its session reports pass through that
// member and wait there until the next half tick, so the leader may receive
// them a whole tick late. Requests are forwarded at once. While the member
// between is stopped, paused or cut off, so is this one. This one never leads.
// The ensemble needs at least three members.
func WithSecondHop(member, through int) Option {
	return func(c *config) {
		if c.secondHops == nil {
			c.secondHops = map[int]int{}
		}
		c.secondHops[member] = through
	}
}

// WithClockRates sets how fast the members' clocks run compared with the clock
// of each session's client, as far as the session's timeout is concerned: at
// 1.1 a session of 11 s expires like one of 10 s. By default all clocks run
// alike. A rate of 0 or less counts as 1. rate is called with the ensemble's
// lock held, so it must not call the ensemble.
func WithClockRates(rate func(session int64) float64) Option {
	return func(c *config) { c.clockRate = rate }
}

// InMemory makes the ensemble listen nowhere. Clients reach it only through
// Dial, over connections in memory, so it works inside a testing/synctest
// bubble, in virtual time. Make everything inside the bubble. The addresses are
// member0:2181 and so on; no resolver knows them.
func InMemory() Option { return func(c *config) { c.memory = true } }

// WithListen sets the address of each member. By default each member takes a
// free port of 127.0.0.1, and keeps it when it restarts.
func WithListen(addresses ...string) Option {
	return func(c *config) { c.listen = addresses }
}

// WithLogger sets a function that receives what a server would log: refused and
// closed connections and their reasons, elections, expired sessions. The
// default is the test's log under Start, and nothing under New. It is called
// with the ensemble's lock held, so it must not call the ensemble.
func WithLogger(logf func(format string, args ...any)) Option {
	return func(c *config) { c.logf = logf }
}

func newConfig(opts []Option) (config, error) {
	c := config{
		members: 1, tick: 2 * time.Second, syncLimit: 5, election: 200 * time.Millisecond, sweepInterval: time.Minute,
		clockRate:  func(int64) float64 { return 1 },
		touchDelay: func(int) time.Duration { return 0 }, reportDelay: func(int) time.Duration { return 0 },
		logf: func(string, ...any) {},
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
		return c, fmt.Errorf("testutil: WithMembers(%d): want 1 to 127 members", c.members)
	case c.tick < 2*time.Millisecond:
		return c, fmt.Errorf("testutil: WithTick(%v): want at least 2ms", c.tick)
	case c.minTimeout < time.Millisecond || c.maxTimeout < c.minTimeout:
		return c, fmt.Errorf("testutil: WithSessionTimeouts(%v, %v): want at least 1ms, and the lower bound first", c.minTimeout, c.maxTimeout)
	case c.minTimeout.Milliseconds() > math.MaxInt32:
		return c, fmt.Errorf("testutil: WithSessionTimeouts(%v, %v): the lower bound in milliseconds does not fit into 32 bits", c.minTimeout, c.maxTimeout)
	case c.syncLimit < 1:
		return c, fmt.Errorf("testutil: WithSyncLimit(%d): want at least 1 tick", c.syncLimit)
	case c.election < 0:
		return c, fmt.Errorf("testutil: WithElectionTime(%v): want 0 or more", c.election)
	case c.sweepInterval < time.Millisecond:
		return c, fmt.Errorf("testutil: WithContainerInterval(%v): want at least 1ms", c.sweepInterval)
	case c.super != "" && !validDigest(c.super):
		return c, fmt.Errorf("testutil: WithSuperDigest(%q): want user:base64(sha1(user:password))", c.super)
	case c.memory && c.listen != nil:
		return c, errors.New("testutil: InMemory and WithListen cannot be combined")
	case c.listen != nil && len(c.listen) != c.members:
		return c, fmt.Errorf("testutil: WithListen: %d addresses for %d members", len(c.listen), c.members)
	case c.clockRate == nil:
		return c, errors.New("testutil: WithClockRates: function is nil")
	case c.touchDelay == nil:
		return c, errors.New("testutil: WithTouchDelays: function is nil")
	case c.reportDelay == nil:
		return c, errors.New("testutil: WithReportDelays: function is nil")
	case c.logf == nil:
		return c, errors.New("testutil: WithLogger: function is nil")
	}
	for member, through := range c.secondHops {
		_, chained := c.secondHops[through]
		if min(member, through) < 0 || max(member, through) >= c.members || member == through || chained || c.members < 3 {
			return c, fmt.Errorf("testutil: WithSecondHop(%d, %d): not possible in an ensemble of %d members", member, through, c.members)
		}
	}
	return c, nil
}
