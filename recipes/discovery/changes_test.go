package discovery_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
)

// loop is a loop over the changes of a service.
type loop struct {
	done chan struct{} // closed: it has ended

	mu   sync.Mutex // guards what follows
	told []string
	last discovery.Status
}

// loopOver runs a loop, each of whose iterations takes a while.
func loopOver[T any](ctx context.Context, s *discovery.Service[T], slow time.Duration) *loop {
	l := &loop{done: make(chan struct{})}
	go func() {
		defer close(l.done)
		for all, status := range s.Changes(ctx) {
			var texts []string
			for _, i := range all {
				text := fmt.Sprintf("%s=%v", i.ID, i.Payload)
				if i.LastResort {
					text += "(gone)"
				}
				texts = append(texts, text)
			}
			l.mu.Lock()
			l.told = append(l.told, status.State.String()+": "+strings.Join(texts, " "))
			l.last = status
			l.mu.Unlock()
			time.Sleep(slow)
		}
	}()
	return l
}

// wants fails the test unless the loop has had this since the last call.
func (l *loop) wants(t *testing.T, want string) discovery.Status {
	t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if got := strings.Join(l.told, "; "); got != want {
		t.Errorf("the loop had %q, want %q", got, want)
	}
	l.told = nil
	return l.last
}

// A loop has the instances when they are known, and then each change. A znode
// that cannot be read does not end it. The end of the Discovery does.
func TestChangesOfAService(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		registry := open(t, c)
		d := open(t, w.Connect("consumer"))
		s, err := d.Service("billing")
		must(t, err)
		quick, slow := loopOver(t.Context(), s, 0), loopOver(t.Context(), s, time.Minute)
		quick.wants(t, "SYNCED: ")
		slow.wants(t, "SYNCED: ")
		r := register(t, registry, a("x"))
		quick.wants(t, "SYNCED: a=x")
		if _, err := c.Create(t.Context(), dir+"/bad", []byte("no JSON"), 0); err != nil {
			t.Fatal(err)
		}
		if got := quick.wants(t, "SYNCED: a=x"); len(got.Unreadable) != 1 {
			t.Errorf("%+v", got)
		}
		must(t, r.Update(t.Context(), a("y")))
		if got := quick.wants(t, "SYNCED: a=y"); len(got.Unreadable) != 1 {
			t.Errorf("%+v", got)
		}
		slow.wants(t, "")
		time.Sleep(time.Minute)
		slow.wants(t, "SYNCED: a=y")
		w.ClientNet("consumer").Cut()
		time.Sleep(bubble.Timeout)
		quick.wants(t, "STALE: a=y")
		must(t, c.Delete(t.Context(), dir+"/bad", -1))
		w.ClientNet("consumer").Heal()
		time.Sleep(bubble.Timeout)
		if got := quick.wants(t, "SYNCED: a=y"); len(got.Unreadable) != 0 || got.Err != nil {
			t.Errorf("%+v", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		third := loopOver(ctx, s, 0)
		third.wants(t, "SYNCED: a=y")
		cancel()
		bubble.Await(t, "the loop ends", third.done)
		if got := third.wants(t, "SYNCED: a=y"); !errors.Is(got.Err, context.Canceled) {
			t.Errorf("%+v", got)
		}
		d.Close()
		bubble.Await(t, "the loop ends", quick.done)
		quick.wants(t, "CLOSED: a=y")
		bubble.Await(t, "the slow loop ends", slow.done)

		later, err := d.Service("later")
		must(t, err)
		for _, s := range []*service{later, {}} {
			for range s.Changes(t.Context()) {
				t.Error("a service that is not followed has instances")
			}
		}
	})
}

// A last resort is offered, and ends although nothing comes from the ensemble.
func TestALoopHearsOfTheEndOfALastResort(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		r := newRescue(t, w)
		l := loopOver(t.Context(), r.service, 0)
		l.wants(t, "SYNCED: ")
		r.register(billed("a"))
		l.wants(t, "SYNCED: a=x")
		must(t, r.owners["a"].Close())
		if got := l.wants(t, "SYNCED: a=x(gone)"); got.LastResort.IsZero() {
			t.Errorf("%+v", got)
		}
		time.Sleep(offered)
		if got := l.wants(t, "SYNCED: "); !got.LastResort.IsZero() {
			t.Errorf("%+v", got)
		}
	})
}

// hanging is a payload that hangs while it is decoded, if it says so.
type hanging string

func (h *hanging) UnmarshalJSON(text []byte) error {
	*h = hanging(text)
	if strings.Contains(string(text), "hang") {
		time.Sleep(time.Hour)
	}
	return nil
}

// A payload hangs while it is decoded. The loop ends all the same, with its
// context or the Discovery. Its last instances are the last that were decoded.
func TestAPayloadThatHangsInALoop(t *testing.T) {
	for _, first := range []bool{true, false} {
		for _, closes := range []bool{true, false} {
			t.Run(fmt.Sprintf("first=%t closes=%t", first, closes), func(t *testing.T) {
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					c := w.ConnectNext()
					registry := open(t, c)
					register(t, registry, a("x"))
					hang := func() { register(t, registry, instance{Name: "billing", ID: "b", Payload: "hang"}) }
					if first {
						hang()
					}
					d, err := discovery.New(c, root, discovery.JSON[hanging](""))
					must(t, err)
					defer d.Close()
					s, err := d.Service("billing")
					must(t, err)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					l := loopOver(ctx, s, 0)
					state := ""
					if !first {
						l.wants(t, `SYNCED: a="x"`)
						hang()
						state = `SYNCED: a="x"`
						if closes {
							state = `CLOSED: a="x"`
						}
					}
					l.wants(t, "")
					began := time.Now()
					if closes {
						d.Close()
					} else {
						cancel()
					}
					bubble.Await(t, "the loop ends", l.done)
					if took := time.Since(began); took > time.Second {
						t.Errorf("it took %v", took)
					}
					if got := l.wants(t, state); !first && !closes && !errors.Is(got.Err, context.Canceled) {
						t.Errorf("%+v", got)
					}
					time.Sleep(2 * time.Hour) // what hangs returns
				})
			})
		}
	}
}

// The service may not be read. A loop does not take that for a service without
// instances. Once it may be read, the loop begins.
func TestALoopOverAServiceThatMayNotBeRead(t *testing.T) {
	for name, shared := range map[string]bool{"a cache of its own": false, "a shared cache": true} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				owner := w.ConnectNext(framework.WithAuth("digest", []byte("a:b")))
				register(t, open(t, owner), a("x"))
				grant := func(acl []zk.ACL) {
					if _, err := owner.SetACL(t.Context(), dir, acl, -1); err != nil {
						t.Fatal(err)
					}
				}
				grant(zk.AuthACL(zk.PermAll))
				d := open(t, w.ConnectNext())
				if shared {
					d = open(t, w.ConnectNext(), discovery.WithSharedCache())
				}
				s, err := d.Service("billing")
				must(t, err)
				l := loopOver(t.Context(), s, 0)
				time.Sleep(3 * time.Hour)
				l.wants(t, "")
				grant(zk.WorldACL(zk.PermAll))
				time.Sleep(3 * time.Hour)
				if got := l.wants(t, "SYNCED: a=x"); got.State != cache.Synced || len(got.Unreadable) != 0 {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}
