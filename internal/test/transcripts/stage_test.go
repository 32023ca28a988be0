package transcripts_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// stage is where a scene is played.
type stage struct {
	t *testing.T
	*bubble.World
	*tape
}

// has creates a directory.
func (s *stage) has(path string) {
	s.Provision(func(c *framework.Client) { must(c.Create(s.t.Context(), path, nil, zk.FlagPersistent)) })
}

// pass lets time pass, and what it brings happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// client is a client on the stage, and the program that uses it.
type client struct {
	*stage
	*framework.Client
	name string
	data recipes.DataOption
}

// connects makes a client that is connected.
func (s *stage) connects(name string) *client {
	net := s.ClientNet(name)
	net.Latency(time.Millisecond, time.Millisecond)
	c := &client{s, must(framework.New(s.Servers(), framework.WithDialer(s.dialer(name, net.Dial)))), name, recipes.WithData([]byte(name))}
	s.t.Cleanup(func() { _ = c.Close() })
	c.Listen(func(is framework.StateChange) {
		switch {
		case is.Err != nil:
			c.told(0, "%v: %v", is.To, is.Err)
		case is.From != is.To:
			c.told(0, "%v", is.To)
		}
	})
	if err := c.WaitConnected(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// does records what the program does.
func (c *client) does(format string, args ...any) { c.say(done, 0, format, args...) }

// told records what one of the program's goroutines is told; 0 is that of the
// listener.
func (c *client) told(by int, format string, args ...any) { c.say(told, by, format, args...) }

func (c *client) say(k kind, by int, format string, args ...any) {
	c.add(&line{client: c.name, kind: k, by: by, rows: []row{{what: fmt.Sprintf(format, args...)}}})
}

func (c *client) mutex(opts ...locks.Option) *locks.Mutex {
	return must(locks.NewMutex(c.Client, "/lock", append(opts, c.data)...))
}

func (c *client) semaphore() *semaphore.Semaphore {
	return must(semaphore.New(c.Client, "/sem", 2, c.data))
}

func (c *client) election() *leader.Election {
	return must(leader.New(c.Client, "/election", leader.WithID(c.name)))
}

// caller is one goroutine of the program.
type caller struct {
	*client
	by    int
	who   string
	lease *recipes.Lease // set when it was granted
}

// acquires begins to acquire.
func (c *client) acquires(a recipes.Acquirer) *caller { return c.goroutine(1, "", a) }

// goroutine is acquires for one of several goroutines.
func (c *client) goroutine(n int, who string, a recipes.Acquirer) *caller {
	by := &caller{client: c, by: n, who: who}
	c.does("%sAcquire", who)
	go func() {
		l, err := a.Acquire(c.t.Context())
		if by.returns(l, err); err == nil {
			by.follow()
		}
	}()
	return by
}

func (c *caller) returns(l *recipes.Lease, err error) {
	if err != nil {
		c.told(c.by, "%s%v", c.who, err)
		return
	}
	c.lease = l
	c.told(c.by, "%sgranted, token %s", c.who, token(l))
}

// follow waits for the loss of a lease.
func (c *caller) follow() {
	select {
	case <-c.lease.Lost():
		c.told(c.by, "%slost: %v", c.who, c.lease.Err())
	case <-c.t.Context().Done():
	}
}

func (c *caller) releases() {
	c.does("%sRelease", c.who)
	if err := c.lease.Release(context.Background()); err != nil {
		c.told(c.by, "%s%v", c.who, err)
		return
	}
	c.told(c.by, "%sreleased", c.who)
}

// runs begins to campaign.
func (c *client) runs(e *leader.Election) {
	c.does("Run")
	go func() { _ = e.Run(c.t.Context(), c.lead) }()
}

// token returns the three parts of a token.
func token(l *recipes.Lease) string {
	text := l.Token().String()
	part := func(s string) uint64 { return must(strconv.ParseUint(s, 16, 64)) }
	return fmt.Sprintf("(%d, %d, %d)", part(text[:16]), part(text[16:24]), part(text[24:]))
}

func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}
