package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// diary is what an observer was told, an event a line.
type diary struct {
	view bubble.View // of the paths

	mu     sync.Mutex
	events []string
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, fmt.Sprintf(format, args...))
}

// take returns the events since the last call.
func (d *diary) take() []string {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	events := d.events
	d.events = nil
	return events
}

func (d *diary) want(t *testing.T, want ...string) {
	t.Helper()
	if got := d.take(); !slices.Equal(got, want) {
		t.Errorf("told\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// What an Acquire and its lease are, in the diary.
func (d *diary) described(a recipes.Acquire) string {
	text := fmt.Sprintf("%s %s %s", a.Recipe, a.Mode, d.view.Path(a.Path))
	if a.Label != a.Path {
		text += " as " + d.view.Path(a.Label)
	}
	if a.Permits != 1 {
		text += fmt.Sprintf(" x%d", a.Permits)
	}
	if a.Try {
		text += " try"
	}
	return text
}

func (d *diary) observer() framework.Option {
	return recipes.WithObserver(recipes.Observer{
		AcquireStart: func(ctx context.Context, a recipes.Acquire) context.Context {
			d.note("start %s", d.described(a))
			return ctx
		},
		AcquireEnd: func(_ context.Context, _ recipes.Acquire, r recipes.AcquireResult) {
			if r.Err != nil {
				d.note("failed")
				return
			}
			d.note("granted by %s", r.Grant.How)
		},
		Released: func(_ context.Context, r recipes.Release) { d.note("released %s", r.Acquire.Recipe) },
		Lost:     func(_ context.Context, l recipes.Loss) { d.note("lost %s: %s", l.Acquire.Recipe, l.Reason) },
		Overran:  func(_ context.Context, o recipes.Overrun) { d.note("overran %s", o.Acquire.Recipe) },
		Revoked:  func(_ context.Context, r recipes.Revocation) { d.note("revoked %s", r.Acquire.Recipe) },
	})
}

// Each recipe tells what it is, and each verb what it does.
func TestWhatObserversAreTold(t *testing.T) {
	never := func(string, string) bool { return false }
	ok := func(a recipes.Acquirer, err error) recipes.Acquirer {
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	tests := []struct {
		name    string
		make    func(c *framework.Client) recipes.Acquirer
		acquire string // as described
	}{
		{"mutex", func(c *framework.Client) recipes.Acquirer { return ok(locks.NewMutex(c, "/l")) }, "mutex exclusive /l"},
		{"label", func(c *framework.Client) recipes.Acquirer {
			return ok(locks.NewMutex(c, "/l", recipes.WithLabel("jobs")))
		}, "mutex exclusive /l as jobs"},
		{"key", func(c *framework.Client) recipes.Acquirer {
			k, err := locks.NewKeyed(c, "/keys")
			if err != nil {
				t.Fatal(err)
			}
			return k.Key("17")
		}, "mutex exclusive /keys/17 as /keys"},
		{"key with a label", func(c *framework.Client) recipes.Acquirer {
			k, err := locks.NewKeyed(c, "/keys", recipes.WithLabel("users"))
			if err != nil {
				t.Fatal(err)
			}
			return k.Key("17")
		}, "mutex exclusive /keys/17 as users"},
		{"reader", func(c *framework.Client) recipes.Acquirer {
			rw, err := rwlock.New(c, "/rw")
			if err != nil {
				t.Fatal(err)
			}
			return rw.Reader()
		}, "read shared /rw"},
		{"writer", func(c *framework.Client) recipes.Acquirer {
			rw, err := rwlock.New(c, "/rw")
			if err != nil {
				t.Fatal(err)
			}
			return rw.Writer()
		}, "write exclusive /rw"},
		{"permits", func(c *framework.Client) recipes.Acquirer {
			s, err := semaphore.New(c, "/s", 5)
			if err != nil {
				t.Fatal(err)
			}
			return s.Permits(3)
		}, "semaphore shared /s x3"},
		{"election", func(c *framework.Client) recipes.Acquirer { return ok(leader.New(c, "/e")) }, "election exclusive /e"},
		{"line", func(c *framework.Client) recipes.Acquirer {
			return ok(recipes.NewLine(c, "/range", "range.v1", "0-9", never))
		}, "range.v1 shared /range"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				d := diary{view: w.View}
				c := w.Connect("a", d.observer())
				a := tt.make(c)
				recipe, _, _ := strings.Cut(tt.acquire, " ")
				bubble.Release(t, bubble.Acquire(t, t.Context(), a))
				d.want(t, "start "+tt.acquire, "granted by ensemble", "released "+recipe)
				l, err := a.TryAcquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				d.want(t, "start "+tt.acquire+" try", "granted by ensemble")
				w.Expire(c)
				bubble.Lost(t, l)
				d.want(t, "lost "+recipe+": session")
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				_, err = a.Acquire(ended)
				bubble.WantErr(t, err, context.Canceled)
				d.want(t, "start "+tt.acquire, "failed")
			})
		})
	}
}

// A grant is told as what it was: of a znode that was handed off, or lingered,
// or is shared, or by re-entry.
func TestHowItWasGranted(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		d := diary{view: w.View}
		c := w.Connect("a", d.observer())
		m, err := locks.NewMutex(c, "/l", recipes.WithLinger(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		l := bubble.Acquire(t, t.Context(), m)
		d.want(t, "start mutex exclusive /l", "granted by ensemble")
		bubble.Release(t, bubble.Acquire(t, l.Context(), m))
		d.want(t, "start mutex exclusive /l", "granted by reentry", "released mutex")
		next := bubble.Acquiring(t.Context(), m)
		bubble.Pending(t, next)
		bubble.Release(t, l)
		l = bubble.Granted(t, next).Lease
		told := d.take()
		slices.Sort(told) // the release and the grant are on two goroutines
		if want := []string{"granted by handoff", "released mutex", "start mutex exclusive /l"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
		bubble.Release(t, l)
		time.Sleep(time.Second)
		bubble.Release(t, bubble.Acquire(t, t.Context(), m))
		d.want(t, "released mutex", "start mutex exclusive /l", "granted by linger", "released mutex")
		rw, err := rwlock.New(c, "/rw")
		if err != nil {
			t.Fatal(err)
		}
		first := bubble.Acquire(t, t.Context(), rw.Reader())
		time.Sleep(time.Second)
		bubble.Release(t, bubble.Acquire(t, t.Context(), rw.Reader()), first)
		d.want(t, "start read shared /rw", "granted by ensemble", "start read shared /rw", "granted by share", "released read", "released read")
	})
}

// Each loss has its reason.
func TestWhyItWasLost(t *testing.T) {
	losses := []struct {
		reason recipes.LossReason
		opts   []framework.Option
		hold   time.Duration
		lose   func(t *testing.T, w *bubble.World, c *framework.Client, l *recipes.Lease)
	}{
		{recipes.LostUnproven, nil, 0, func(_ *testing.T, w *bubble.World, _ *framework.Client, _ *recipes.Lease) {
			w.ClientNet("a").Cut()
		}},
		{recipes.LostSession, nil, 0, func(_ *testing.T, w *bubble.World, c *framework.Client, _ *recipes.Lease) {
			w.Expire(c)
		}},
		{
			recipes.LostConnection,
			[]framework.Option{framework.WithErrorPolicy(framework.ErrorPolicyConnection)},
			0,
			func(_ *testing.T, w *bubble.World, _ *framework.Client, _ *recipes.Lease) { w.ClientNet("a").Drop() },
		},
		{recipes.LostDeleted, nil, 0, func(t *testing.T, w *bubble.World, _ *framework.Client, l *recipes.Lease) {
			if err := w.Connect("operator").Delete(t.Context(), l.Path(), -1); err != nil {
				t.Error(err)
			}
		}},
		{recipes.LostMaxHold, nil, time.Minute, func(*testing.T, *bubble.World, *framework.Client, *recipes.Lease) {}},
		{recipes.LostClosed, nil, 0, func(t *testing.T, _ *bubble.World, c *framework.Client, _ *recipes.Lease) {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}},
	}
	for _, loss := range losses {
		t.Run(string(loss.reason), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				d := diary{view: w.View}
				c := w.Connect("a", append(loss.opts, d.observer())...)
				m, err := locks.NewMutex(c, "/l", recipes.WithMaxHold(loss.hold))
				if err != nil {
					t.Fatal(err)
				}
				l := bubble.Acquire(t, t.Context(), m)
				time.Sleep(time.Second) // its znode is watched
				d.take()
				loss.lose(t, w, c, l)
				bubble.Lost(t, l)
				d.want(t, "lost mutex: "+string(loss.reason))
				w.ClientNet("a").Heal()
				_ = l.Release(t.Context()) // it is lost
				d.want(t)
			})
		})
	}
}

// A request to release is told once for each lease that asked for it, also if
// it came before.
func TestRevocationsAreTold(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		d := diary{view: w.View}
		m, err := locks.NewMutex(w.Connect("a", d.observer()), "/l")
		if err != nil {
			t.Fatal(err)
		}
		l := bubble.Acquire(t, t.Context(), m)
		again := bubble.Acquire(t, l.Context(), m)
		silent := bubble.Acquire(t, l.Context(), m)
		revoked := l.Revoked()
		l.Revoked()
		d.take()
		all, err := m.Participants(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Revoke(t.Context(), all[0]); err != nil {
			t.Fatal(err)
		}
		bubble.Await(t, "the revocation", revoked)
		d.want(t, "revoked mutex")
		l.Revoked() // is told once
		again.Revoked()
		d.want(t, "revoked mutex")
		bubble.Release(t, silent, again, l)
		d.want(t, "released mutex", "released mutex", "released mutex")
		silent.Revoked() // now that it is released, there is nothing to tell
		d.want(t)
	})
}

// What fails before the line is reached is told as well.
func TestRefusalsAreTold(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		d := diary{view: w.View}
		c := w.Connect("a", d.observer())
		s, err := semaphore.New(c, "/s", 2)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Permits(3).Acquire(t.Context())
		bubble.WantErr(t, err, semaphore.ErrLimit)
		d.want(t, "start semaphore shared /s x3", "failed")
		k, err := locks.NewKeyed(c, "/keys")
		if err != nil {
			t.Fatal(err)
		}
		other, err := locks.NewMutex(w.Connect("b"), "/keys/1")
		if err != nil {
			t.Fatal(err)
		}
		l := bubble.Acquire(t, t.Context(), other)
		waiting := bubble.Acquiring(t.Context(), k.Key("1"))
		bubble.Pending(t, waiting)
		d.take()
		if err := k.Close(t.Context()); err != nil {
			t.Error(err)
		}
		bubble.WantErr(t, bubble.Await(t, "the waiter", waiting).Err, locks.ErrClosed)
		d.want(t, "failed")
		bubble.Release(t, l)
	})
}

type tag struct{}

// The requests of an Acquire have the values that AcquireStart added to the
// caller's context; those of a release have the values of its context; the
// lease's context has neither. Deadlines and cancellation are the caller's,
// whatever context an observer returns.
func TestContextsOfObservers(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		d := diary{view: w.View}
		about := func(ctx context.Context) any {
			if v := ctx.Value(tag{}); v != nil {
				return v
			}
			return "nothing"
		}
		requests := framework.Observer{
			RequestStart: func(ctx context.Context, r framework.Request) context.Context {
				return context.WithValue(ctx, tag{}, fmt.Sprintf("%s for %v", r.Op, about(ctx)))
			},
			RequestEnd: func(ctx context.Context, r framework.Request, result framework.RequestResult) {
				d.note("%v: %s", about(ctx), result.Code)
			},
		}
		c := w.Connect("a",
			recipes.WithObserver(recipes.Observer{
				AcquireStart: func(ctx context.Context, a recipes.Acquire) context.Context {
					return context.WithValue(ctx, tag{}, fmt.Sprintf("acquire of %v", about(ctx)))
				},
				AcquireEnd: func(ctx context.Context, _ recipes.Acquire, _ recipes.AcquireResult) {
					d.note("end of %v", about(ctx))
				},
				Released: func(ctx context.Context, _ recipes.Release) { d.note("released by %v", about(ctx)) },
			}),
			recipes.WithObserver(recipes.Observer{
				AcquireStart: func(context.Context, recipes.Acquire) context.Context { return context.Background() },
			}),
			framework.WithObserver(requests),
		)
		m, err := locks.NewMutex(c, "/l")
		if err != nil {
			t.Fatal(err)
		}
		bubble.Release(t, bubble.Acquire(t, t.Context(), m)) // makes the directory
		d.take()
		l := bubble.Acquire(t, context.WithValue(t.Context(), tag{}, "ann"), m)
		told := d.take()
		slices.Sort(told) // the create and the list are answered at the same time
		if want := []string{"create for acquire of ann: OK", "end of acquire of ann", "list for acquire of ann: OK"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
		if got := l.Context().Value(tag{}); got != "ann" {
			t.Errorf("the lease's context has %v", got)
		}
		if err := l.Release(context.WithValue(t.Context(), tag{}, "bob")); err != nil {
			t.Error(err)
		}
		told = d.take()
		slices.Sort(told) // requests are told on another goroutine
		if want := []string{"delete for bob: OK", "released by ann"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
		l = bubble.Acquire(t, t.Context(), m)
		caller, cancel := context.WithCancelCause(context.WithValue(t.Context(), tag{}, "cleo"))
		waiting := bubble.Acquiring(caller, m)
		bubble.Pending(t, waiting)
		tired := errors.New("tired of waiting")
		cancel(tired)
		bubble.WantErr(t, bubble.Await(t, "the canceled Acquire", waiting).Err, context.Canceled, tired)
		bubble.Release(t, l)
	})
}

// An observer that ends the goroutine of an Acquire leaves no lock behind, and
// the other observers hear of all that they have heard the beginning of.
func TestAnObserverThatEndsTheGoroutine(t *testing.T) {
	for _, at := range []string{"start", "end"} {
		t.Run(at, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				d := diary{view: w.View}
				exits := true
				exit := func(here string) {
					if exits && here == at {
						exits = false
						runtime.Goexit()
					}
				}
				c := w.Connect("a", d.observer(), recipes.WithObserver(recipes.Observer{
					AcquireStart: func(ctx context.Context, _ recipes.Acquire) context.Context {
						exit("start")
						return ctx
					},
					AcquireEnd: func(context.Context, recipes.Acquire, recipes.AcquireResult) { exit("end") },
				}))
				m, err := locks.NewMutex(c, "/l")
				if err != nil {
					t.Fatal(err)
				}
				gone := make(chan struct{})
				go func() {
					defer close(gone)
					_, _ = m.Acquire(t.Context()) // does not return
					t.Error("it has returned")
				}()
				bubble.Await(t, "the goroutine's end", gone)
				want := []string{"start mutex exclusive /l", "failed"}
				if at == "end" {
					want = []string{"start mutex exclusive /l", "granted by ensemble", "released mutex"}
				}
				d.want(t, want...)
				bubble.Release(t, bubble.Acquire(t, t.Context(), m))
				w.Empty("/l")
			})
		})
	}
}
