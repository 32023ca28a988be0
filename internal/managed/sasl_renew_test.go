package managed_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/sasl/digestmd5"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// renewing is a mechanism that notes when Renew is called.
type renewing struct {
	framework.SASL
	renew   func(ctx context.Context) (time.Time, error)
	mu      sync.Mutex // guards what follows
	calls   []time.Time
	servers []framework.SASLServer // of the latest call
}

func newRenewing(renew func(ctx context.Context) (time.Time, error)) *renewing {
	return &renewing{SASL: digestmd5.New("app", "secret"), renew: renew}
}

func (r *renewing) Renew(ctx context.Context, servers []framework.SASLServer) (time.Time, error) {
	r.mu.Lock()
	r.calls, r.servers = append(r.calls, time.Now()), servers
	r.mu.Unlock()
	return r.renew(ctx)
}

// pauses returns the times between the calls.
func (r *renewing) pauses() (all []time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.calls[1:] {
		all = append(all, r.calls[i+1].Sub(r.calls[i]))
	}
	return all
}

// Renew is called at the times that it returns, at most once a second, and no
// more after Close. No goroutine is left (bubble.Run).
func TestRenew(t *testing.T) {
	long := bubble.Few(12*time.Minute, time.Hour)
	for name, tt := range map[string]struct{ next, want time.Duration }{
		"in time":       {10 * time.Minute, 10 * time.Minute},
		"now":           {0, time.Second},
		"in the past":   {-time.Hour, time.Second},
		"within 1s":     {time.Millisecond, time.Second},
		"long from now": {long, long},
	} {
		t.Run(name, func(t *testing.T) {
			requiring(t, func(t *testing.T, ens *testutil.Embedded) {
				m := newRenewing(func(context.Context) (time.Time, error) { return time.Now().Add(tt.next), nil })
				c, _ := connect(t, ens, framework.WithSASL(m))
				time.Sleep(5*tt.want + tt.want/2)
				must(t, c.Close())
				time.Sleep(3 * tt.want)
				pauses := m.pauses()
				if len(pauses) != 5 {
					t.Errorf("pauses %v", pauses)
				}
				for _, pause := range pauses {
					if pause != tt.want {
						t.Errorf("a pause of %v, want %v", pause, tt.want)
					}
				}
			})
		})
	}
}

// Renew is told the servers that the client may connect to: those of the latest
// lookups.
func TestRenewIsToldTheServers(t *testing.T) {
	requiring(t, func(t *testing.T, ens *testutil.Embedded) {
		m := newRenewing(func(context.Context) (time.Time, error) { return time.Now(), nil })
		n := startNamed(t, ens, threeNames, framework.WithSASL(m))
		told := func(want ...string) {
			t.Helper()
			time.Sleep(2 * time.Second)
			m.mu.Lock()
			defer m.mu.Unlock()
			var got []string
			for _, s := range m.servers {
				got = append(got, s.Name+" "+s.Address)
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("told %q, want %q", got, want)
			}
		}
		n.connected(t, timeout)
		told("zk0.example.:2181 10.0.0.1:2181", "zk1.example.:2181 10.0.0.2:2181", "zk2.example.:2181 10.0.0.3:2181")
		n.names.Is("zk0.example.", "10.0.0.1", "10.0.0.2")
		n.names.Is("zk2.example.", "10.0.0.2")
		n.network.Drop()
		time.Sleep(time.Second)
		n.connected(t, timeout)
		told("zk0.example.:2181 10.0.0.1:2181", "zk0.example.:2181 10.0.0.2:2181", "zk1.example.:2181 10.0.0.2:2181", "zk2.example.:2181 10.0.0.2:2181")
	})
}

// Errors, panics and calls that end their goroutine are logged. The pauses
// after them grow up to a minute, and are short again after a success.
func TestRenewFails(t *testing.T) {
	long := bubble.Few(12*time.Minute, time.Hour)
	for name, fail := range map[string]func() (time.Time, error){
		"error":             func() (time.Time, error) { return time.Now(), errors.New("no KDC") },
		"panic":             func() (time.Time, error) { panic("no KDC") },
		"end of goroutine":  func() (time.Time, error) { runtime.Goexit(); return time.Time{}, nil },
		"error, and a time": func() (time.Time, error) { return time.Now().Add(time.Hour), errors.New("no KDC") },
	} {
		t.Run(name, func(t *testing.T) {
			requiring(t, func(t *testing.T, ens *testutil.Embedded) {
				core, logged := observer.New(zap.WarnLevel)
				var well atomic.Bool
				m := newRenewing(func(context.Context) (time.Time, error) {
					if well.Load() {
						return time.Now().Add(long), nil
					}
					return fail()
				})
				c, _ := connect(t, ens, framework.WithSASL(m), framework.WithLogger(zap.New(core)))
				time.Sleep(20 * time.Minute)
				pauses := m.pauses()
				if len(pauses) < 20 || len(pauses) > 150 { // a pause is half a minute on average
					t.Errorf("%d calls in 20 minutes", len(pauses)+1)
				}
				for i, pause := range pauses {
					if pause < time.Second || pause > max(time.Second<<min(i, 6), time.Second) || pause > time.Minute {
						t.Errorf("pause %d is %v", i, pause)
					}
				}
				if n := logged.FilterMessageSnippet("cannot renew").Len(); n < len(pauses) {
					t.Errorf("%d calls have failed, %d are logged", len(pauses)+1, n)
				}
				well.Store(true)
				time.Sleep(long * 3 / 2)
				n := len(m.pauses())
				well.Store(false)
				time.Sleep(long * 2 / 3)
				if pauses := m.pauses()[n-1:]; pauses[0] != long || pauses[1] != long || pauses[2] > 2*time.Second {
					t.Errorf("after successes the pauses are %v", pauses)
				}
				must(t, c.Close())
			})
		})
	}
}

// A Renew that blocks until ctx ends returns at Close, and delays nothing.
func TestRenewBlocks(t *testing.T) {
	requiring(t, func(t *testing.T, ens *testutil.Embedded) {
		ended := make(chan struct{})
		m := newRenewing(func(ctx context.Context) (time.Time, error) {
			<-ctx.Done()
			defer close(ended)
			return time.Time{}, ctx.Err()
		})
		c, network := connect(t, ens, framework.WithSASL(m))
		s := session(t, c)
		holdUntilLost(t, s)
		network.Drop()
		time.Sleep(2 * timeout)
		if got := session(t, c); got.ID() != s.ID() {
			t.Error("the session was lost")
		}
		began := time.Now()
		must(t, c.Close())
		bubble.Await(t, "the end of Renew", ended)
		if took := time.Since(began); took > time.Second {
			t.Errorf("Close took %v", took)
		}
	})
}

// A Renew that ignores its ctx does not delay Close.
func TestRenewIgnoresItsContext(t *testing.T) {
	requiring(t, func(t *testing.T, ens *testutil.Embedded) {
		release := make(chan struct{})
		defer close(release)
		c, _ := connect(t, ens, framework.WithSASL(newRenewing(func(context.Context) (time.Time, error) {
			<-release
			return time.Time{}, nil
		})))
		began := time.Now()
		must(t, c.Close())
		if took := time.Since(began); took > time.Second {
			t.Errorf("Close took %v", took)
		}
	})
}

// changing is a mechanism that is asked whether its credentials have changed.
type changing struct {
	*password
	changed func() bool
	asked   atomic.Int32
}

func (c *changing) Changed() bool {
	c.asked.Add(1)
	return c.changed()
}

// After refusals attempts are rare. A mechanism whose credentials have changed
// is tried within a second or two.
func TestChangedCredentialsAreTriedAtOnce(t *testing.T) {
	requiring(t, func(t *testing.T, ens *testutil.Embedded) {
		var now atomic.Value
		now.Store("wrong")
		c, _ := start(t, ens, framework.WithSASL(digestmd5.Func(func() (string, string, error) {
			return "app", now.Load().(string), nil
		})))
		for range 20 {
			now.Store("wrong")
			time.Sleep(10 * time.Minute)
			if _, _, err := c.Get(t.Context(), "/"); !errors.Is(err, framework.ErrAuthFailed) {
				t.Fatalf("error %v", err)
			}
			now.Store("secret")
			time.Sleep(3 * time.Second)
			if c.State() != framework.Connected {
				t.Fatalf("state %v", c.State())
			}
			if _, _, err := c.Get(t.Context(), "/"); err != nil {
				t.Fatal(err)
			}
			now.Store("wrong")
			must(t, ens.DropConnections(0))
		}
		now.Store("secret")
		awaitConnected(t, c)
	})
}

// What Changed may do wrong delays no attempt, and piles up no goroutines. It
// is not called unless the client was refused.
func TestChangedMisbehaves(t *testing.T) {
	release := make(chan struct{})
	for name, changed := range map[string]func() bool{
		"blocks":             func() bool { <-release; return true },
		"panics":             func() bool { panic("bad") },
		"ends its goroutine": func() bool { runtime.Goexit(); return true },
	} {
		t.Run(name, func(t *testing.T) {
			requiring(t, func(t *testing.T, ens *testutil.Embedded) {
				release = make(chan struct{})
				defer close(release)
				p := newPassword("secret")
				_ = p.option()
				m := &changing{password: p, changed: changed}
				c, network := connect(t, ens, framework.WithSASL(m))
				network.Cut()
				time.Sleep(10 * time.Minute)
				if n := m.asked.Load(); n > 0 {
					t.Errorf("asked %d times without a refusal", n)
				}
				p.now.Store("wrong")
				network.Heal()
				time.Sleep(10 * time.Minute)
				if n := m.asked.Load(); name == "blocks" && n != 1 || n == 0 || n > 600 {
					t.Errorf("asked %d times", n)
				}
				p.now.Store("secret")
				before := p.begun.Load()
				time.Sleep(10 * time.Minute)
				if n := p.begun.Load() - before; c.State() != framework.Connected {
					t.Errorf("state %v after %d attempts", c.State(), n)
				}
			})
		})
	}
}

// A mechanism that always has other credentials is tried in a round a second.
func TestChangedIsAlwaysTrue(t *testing.T) {
	requiring(t, func(t *testing.T, ens *testutil.Embedded) {
		p := newPassword("wrong")
		_ = p.option()
		_, _ = start(t, ens, framework.WithSASL(&changing{password: p, changed: func() bool { return true }}))
		time.Sleep(5 * time.Minute)
		if n := p.begun.Load(); n < 150 || n > 4*300 {
			t.Errorf("%d attempts in 5 minutes", n)
		}
	})
}

// Where the password is the same, the function of digestmd5 changes nothing.
func TestTheSamePasswordIsNoChange(t *testing.T) {
	m := digestmd5.Func(func() (string, string, error) { return "app", "secret", nil }).(interface {
		framework.SASL
		Changed() bool
	})
	if m.Changed() {
		t.Error("changed before the first exchange")
	}
	if _, err := m.Begin(t.Context(), framework.SASLServer{}); err != nil || m.Changed() {
		t.Errorf("changed, or %v", err)
	}
	if f, ok := digestmd5.New("a", "b").(interface{ Changed() bool }); !ok || f.Changed() {
		t.Error("fixed credentials have changed")
	}
}
