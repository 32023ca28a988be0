package testutil

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Option configures an embedded ensemble. New and Start take it.
type Option func(*config)

// settings are what members of one ensemble may differ in. 0 stands for what
// the ensemble's options say, or else for the default.
type settings struct{ tick, least, most time.Duration }

type config struct {
	members         int
	tick            time.Duration
	minTimeout      time.Duration
	maxTimeout      time.Duration
	syncLimit       int
	election        time.Duration
	sweepInterval   time.Duration
	timeLimit       time.Duration
	extended        bool
	existsUnchecked bool         // exists needs no permission
	old             bool         // all members are as before 3.6
	oldMembers      map[int]bool // these are
	oneShotOnly     bool         // addWatch is refused
	watchPaths      bool         // events have the path of the watch
	staleLists      bool         // the end of a session does not change a pzxid
	super           string
	authSchemes     []string                  // those that the members enforce; nil for none
	sasl            map[int]map[string]string // by member: passwords by user
	tls             *tls.Config
	touchDelay      func(member int) time.Duration
	reportDelay     func(member int) time.Duration
	secondHops      map[int]int // members that reach the others only through another member
	clockRate       func(session int64) float64
	committed       func(zxid, session int64, op Op, path string, data []byte, owner int64)
	memory          bool
	reconfig        bool
	listen          []string
	settings        map[int]settings // of members that differ from the others
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

// WithMemberTick sets the tick of one member. Its bounds of session timeouts
// are then 2 and 20 of its own ticks, unless an option sets them. What a member
// does each tick or half tick, it does by its own: expire sessions while it
// leads, and ask those that follow it, or that are behind it, for their
// sessions. It counts the sync limit in its own ticks.
func WithMemberTick(member int, d time.Duration) Option {
	return func(c *config) { c.set(member, func(s *settings) { s.tick = d }) }
}

// WithMemberTimeouts sets the bounds of session timeouts of one member, as
// during a rolling change of them; 0 stands for the default of that bound. A
// client gets the bounds of the member that it connects to. Each connect, and
// each report of a follower, sets the session's timeout at the leader to what
// that member has granted, be it more or less than before, as on the real
// server. After an election a session has the timeout that it was created with,
// until the leader next hears from it.
func WithMemberTimeouts(member int, least, most time.Duration) Option {
	return func(c *config) { c.set(member, func(s *settings) { s.least, s.most = least, most }) }
}

func (c *config) set(member int, change func(*settings)) {
	if c.settings == nil {
		c.settings = map[int]settings{}
	}
	s := c.settings[member]
	change(&s)
	c.settings[member] = s
}

// of returns the settings of a member, complete.
func (c *config) of(member int) settings {
	s := c.settings[member]
	s.tick = cmp.Or(s.tick, c.tick)
	s.least = cmp.Or(s.least, c.minTimeout, 2*s.tick)
	s.most = cmp.Or(s.most, c.maxTimeout, 20*s.tick)
	return s
}

// WithSyncLimit sets after how many ticks of silence a member and its leader
// give each other up. The default is 5.
func WithSyncLimit(ticks int) Option { return func(c *config) { c.syncLimit = ticks } }

// WithElectionTime sets how long members need to elect a leader, or to find the
// present one, once enough of them can talk to each other. It is 0, or at least
// 1 ms. The default is 200 ms.
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

// WithoutNewOperations makes members answer as servers before 3.6 do: all of
// them, or those that are named. They refuse multiRead, addWatch, setWatches2,
// getEphemerals, getAllChildrenNumber and whoAmI with CodeUnimplemented, and
// close the connection. By default they know these operations.
func WithoutNewOperations(members ...int) Option {
	return func(c *config) {
		c.old = len(members) == 0
		c.oldMembers = make(map[int]bool, len(members))
		for _, member := range members {
			c.oldMembers[member] = true
		}
	}
}

// WithSuperDigest names the super user, who may do anything, whatever the ACL.
// By default there is none. digest has the form of the real server's property
// zookeeper.DigestAuthenticationProvider.superDigest: a user name, a colon, and
// the base64 of the SHA-1 of "user:password". [Digest] computes it. A client
// becomes the super user by adding these credentials with the scheme digest.
func WithSuperDigest(digest string) Option { return func(c *config) { c.super = digest } }

// WithEnforcedAuth lets only clients that have presented credentials with one
// of the schemes make requests. Any other request is answered with code -124,
// and the connection is closed; the session stays. On the real server the
// properties zookeeper.enforce.auth.enabled and zookeeper.enforce.auth.schemes
// do so, since 3.7. By default no credentials are needed.
func WithEnforcedAuth(schemes ...string) Option {
	return func(c *config) { c.authSchemes = slices.Clone(schemes) }
}

// Digest returns the id of "user:password" in the scheme digest, as access
// control lists contain it and as [WithSuperDigest] takes it.
func Digest(credentials string) string { return digest([]byte(credentials)) }

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
		members: 1, tick: 2 * time.Second, syncLimit: 5, election: 200 * time.Millisecond, sweepInterval: time.Minute, timeLimit: 7 * 24 * time.Hour,
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
	all := c.of(-1)
	switch {
	case c.members < 1 || c.members > 127:
		return c, fmt.Errorf("testutil: WithMembers(%d): want 1 to 127 members", c.members)
	case c.tick < 2*time.Millisecond:
		return c, fmt.Errorf("testutil: WithTick(%v): want at least 2ms", c.tick)
	case all.check() != nil:
		return c, fmt.Errorf("testutil: WithSessionTimeouts(%v, %v): %w", all.least, all.most, all.check())
	case c.syncLimit < 1:
		return c, fmt.Errorf("testutil: WithSyncLimit(%d): want at least 1 tick", c.syncLimit)
	case c.election != 0 && c.election < time.Millisecond:
		return c, fmt.Errorf("testutil: WithElectionTime(%v): want 0, or at least 1ms", c.election)
	case c.sweepInterval < time.Millisecond:
		return c, fmt.Errorf("testutil: WithContainerInterval(%v): want at least 1ms", c.sweepInterval)
	case c.timeLimit < time.Second:
		return c, fmt.Errorf("testutil: WithTimeLimit(%v): want at least 1s", c.timeLimit)
	case c.super != "" && !validDigest(c.super):
		return c, fmt.Errorf("testutil: WithSuperDigest(%q): want user:base64(sha1(user:password))", c.super)
	case c.reconfig && c.members < 2:
		return c, errors.New("testutil: WithReconfig needs WithMembers(2) or more")
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
	for member := range c.settings {
		switch s := c.of(member); {
		case member < 0 || member >= c.members:
			return c, fmt.Errorf("testutil: WithMemberTick or WithMemberTimeouts: no member %d in an ensemble of %d", member, c.members)
		case s.tick < 2*time.Millisecond:
			return c, fmt.Errorf("testutil: WithMemberTick(%d, %v): want at least 2ms", member, s.tick)
		case s.check() != nil:
			return c, fmt.Errorf("testutil: WithMemberTimeouts(%d, %v, %v): %w", member, s.least, s.most, s.check())
		}
	}
	for member := range c.oldMembers {
		if member < 0 || member >= c.members {
			return c, fmt.Errorf("testutil: WithoutNewOperations(%d): no such member in an ensemble of %d", member, c.members)
		}
	}
	for member, through := range c.secondHops {
		_, chained := c.secondHops[through]
		if min(member, through) < 0 || max(member, through) >= c.members || member == through || chained || c.members < 3 {
			return c, fmt.Errorf("testutil: WithSecondHop(%d, %d): not possible in an ensemble of %d members", member, through, c.members)
		}
	}
	return c, nil
}

// check returns what is wrong with the bounds of session timeouts.
func (s settings) check() error {
	switch {
	case s.least < time.Millisecond || s.most < s.least:
		return errors.New("want at least 1ms, and the lower bound first")
	case s.least.Milliseconds() > math.MaxInt32:
		return errors.New("the lower bound in milliseconds does not fit into 32 bits")
	}
	return nil
}
