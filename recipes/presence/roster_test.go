package presence_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

func namesOf(all []presence.Member) string {
	var names []string
	for _, m := range all {
		names = append(names, m.ID+"="+string(m.Data))
	}
	return strings.Join(names, " ")
}

// heard collects what a listener is told.
type heard struct {
	mu  sync.Mutex
	all []string
}

func (h *heard) hear(all []presence.Member, s cache.Status) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, s.State.String()+": "+namesOf(all))
}

func (h *heard) take() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := strings.Join(h.all, "; ")
	h.all = nil
	return all
}

// A roster knows of members as they come, change and go, over lost connections
// and sessions.
func TestRoster(t *testing.T) {
	for _, layout := range []presence.Layout{presence.LayoutMember, presence.LayoutProtected, presence.LayoutParty, presence.LayoutShallowParty} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			c, other := w.Connect("follower"), w.ConnectNext()
			g, err := presence.NewGroup(c, dir, presence.WithLayout(layout))
			must(t, err)
			h, err := presence.NewGroup(other, dir, presence.WithLayout(layout))
			must(t, err)
			data, eq := []byte(nil), func(id string) string { return id + "=" + id }
			if layout < presence.LayoutParty {
				data, eq = []byte("data"), func(id string) string { return id + "=data" }
			}
			r := g.Follow()
			defer r.Close()
			var told heard
			stop := r.Listen(told.hear)
			defer stop()
			all, err := r.Members(t.Context())
			if err != nil || len(all) != 0 {
				t.Errorf("%v, %v", all, err)
			}
			wait := func() { time.Sleep(time.Second); synctest.Wait() }
			expect := func(want string) {
				t.Helper()
				wait()
				if got := told.take(); got != want {
					t.Errorf("layout %d: told %q, want %q", layout, got, want)
				}
			}
			expect("SYNCED: ")
			b, err := h.Join(t.Context(), "b", data)
			must(t, err)
			expect("SYNCED: " + eq("b"))
			_, err = h.Join(t.Context(), "a", data)
			must(t, err)
			expect("SYNCED: " + eq("a") + " " + eq("b"))
			must(t, c.MakePersistentPath(t.Context(), dir+"/persistent-__party__"))
			expect("")
			if layout < presence.LayoutParty {
				must(t, b.Set(t.Context(), []byte("new")))
				expect("SYNCED: " + eq("a") + " b=new")
			}
			w.ClientNet("follower").Drop()
			w.ClientNet("follower").Cut()
			wait()
			if got := r.Status().State; got != cache.Stale {
				t.Errorf("%v without a connection", got)
			}
			must(t, b.Close(t.Context()))
			if all, err := r.Members(t.Context()); err != nil || len(all) != 2 {
				t.Errorf("%v, %v", all, err)
			}
			w.ClientNet("follower").Heal()
			must(t, c.WaitConnected(t.Context()))
			all, err = r.Fresh(t.Context())
			if err != nil || namesOf(all) != eq("a") {
				t.Errorf("%v, %v", namesOf(all), err)
			}
			wait()
			if got := told.take(); !strings.HasPrefix(got, "STALE: ") || !strings.HasSuffix(got, "SYNCED: "+eq("a")) {
				t.Errorf("told %q", got)
			}
			must(t, w.ExpireSession(w.SessionID(other)))
			time.Sleep(bubble.Timeout)
			if got := told.take(); !strings.HasSuffix(got, "SYNCED: "+eq("a")) {
				t.Errorf("told %q of a member that came back", got)
			}
			r.Close()
			if _, err := r.Members(t.Context()); !errors.Is(err, framework.ErrClosed) {
				t.Errorf("%v after Close", err)
			}
		})
	}
}

func TestZeroRoster(t *testing.T) {
	for _, r := range []*presence.Roster{{}, (&presence.Group{}).Follow()} {
		_, err := r.Members(t.Context())
		_, fresh := r.Fresh(t.Context())
		if !errors.Is(err, presence.ErrClosed) || !errors.Is(fresh, presence.ErrClosed) || r.Status().State != cache.Closed {
			t.Errorf("%v, %v, %v", err, fresh, r.Status())
		}
		r.Listen(nil)()
		r.Close()
	}
}

// A member comes that may not be read. It hurts no other, and the listeners are
// told, although the members are the same.
func TestRosterAndAnUnreadableMember(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		owner := w.ConnectNext(framework.WithAuth("digest", []byte("a:b")))
		g, err := presence.NewGroup(owner, dir)
		must(t, err)
		_, err = g.Join(t.Context(), "a", nil)
		must(t, err)
		reader, err := presence.NewGroup(w.ConnectNext(), dir)
		must(t, err)
		r := reader.Follow()
		defer r.Close()
		var told [][]string
		defer r.Listen(func(all []presence.Member, s cache.Status) {
			if len(all) != 1 || all[0].ID != "a" {
				t.Errorf("%+v", all)
			}
			told = append(told, s.Unreadable)
		})()
		time.Sleep(time.Second)
		secret, err := presence.NewGroup(owner, dir, recipes.WithACL(zk.AuthACL(zk.PermAll)...))
		must(t, err)
		n, err := secret.Join(t.Context(), "b", nil)
		must(t, err)
		time.Sleep(3 * time.Hour) // a server may send no event of it
		must(t, n.Close(t.Context()))
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if len(told) != 3 || len(told[0]) != 0 || !slices.Equal(told[1], []string{dir + "/b"}) || len(told[2]) != 0 {
			t.Errorf("told of %q", told)
		}
	})
}

// A server loses the event of a member that comes. A Roster finds it in about a
// session timeout, or in the time that cache.WithRecheck sets.
func TestARosterFindsWhatNoEventTells(t *testing.T) {
	for _, tt := range []struct {
		opts        []presence.Option
		least, most time.Duration
	}{
		{nil, 0, 2 * bubble.Timeout},
		{[]presence.Option{cache.WithRecheck(10 * time.Minute)}, 2 * bubble.Timeout, 11 * time.Minute},
		{[]presence.Option{cache.WithRecheck(0)}, time.Hour, time.Hour},
	} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			c := w.Connect("follower")
			g, err := presence.NewGroup(c, dir, tt.opts...)
			must(t, err)
			h, err := presence.NewGroup(w.ConnectNext(), dir)
			must(t, err)
			r := g.Follow()
			defer r.Close()
			_, err = r.Members(t.Context())
			must(t, err)
			for i, id := range []string{"a", "b"} {
				w.ClientNet("follower").LoseEvents(true)
				n, err := h.Join(t.Context(), id, nil)
				must(t, err)
				defer func() { must(t, n.Close(context.Background())) }()
				w.ClientNet("follower").LoseEvents(false)
				began, took := time.Now(), time.Duration(0)
				for took < tt.most {
					if all, err := r.Members(t.Context()); err != nil || len(all) == i+1 {
						must(t, err)
						break
					}
					time.Sleep(time.Second)
					took = time.Since(began)
				}
				if took < tt.least || took >= tt.most && tt.most < time.Hour {
					t.Errorf("%v: found after %v", tt.opts, took)
				}
			}
		})
	}
	for name, make := range map[string]func(*framework.Client) error{
		"only a group has one": func(c *framework.Client) error {
			_, err := presence.New(c, path, nil, cache.WithRecheck(time.Hour))
			return err
		},
		"must be 0, or at least 1ms": func(c *framework.Client) error {
			_, err := presence.NewGroup(c, dir, cache.WithRecheck(-time.Hour))
			return err
		},
	} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			if err := make(w.ConnectNext()); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("error %v, want %q", err, name)
			}
		})
	}
}

// A roster that starts while no server answers shows the members that the one
// before it has known, and says so. Once a server answers it shows those that
// are there.
func TestARosterStartsFromASnapshot(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		file := cache.WithSnapshot(filepath.Join(t.TempDir(), "snapshot"))
		group := func(c *framework.Client) *presence.Group {
			g, err := presence.NewGroup(c, dir, file)
			must(t, err)
			return g
		}
		g := group(w.ConnectNext())
		join := func(id string) *presence.Node {
			n, err := g.Join(t.Context(), id, nil)
			must(t, err)
			return n
		}
		join("a")
		b := join("b")
		before := g.Follow()
		_, err := before.Fresh(t.Context())
		must(t, err)
		before.Close()
		time.Sleep(time.Hour)
		must(t, b.Close(t.Context()))
		join("c")

		net := w.ClientNet("follower")
		net.Cut()
		c, err := w.Open("follower")
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		r := group(c).Follow()
		defer r.Close()
		var told heard
		defer r.Listen(told.hear)()
		all, err := r.Members(t.Context())
		if got := namesOf(all); got != "a= b=" || err != nil || !errors.Is(r.Status().Err, cache.ErrSnapshot) {
			t.Errorf("%q, %v, %+v", got, err, r.Status())
		}
		net.Heal()
		_, err = r.Fresh(t.Context())
		must(t, err)
		synctest.Wait()
		if got := told.take(); got != "STALE: a= b=; SYNCED: a= c=" {
			t.Errorf("told %q", got)
		}
	})
}
