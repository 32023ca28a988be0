package presence_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const dir = "/services/billing"

func ids(t *testing.T, g *presence.Group) string {
	t.Helper()
	members, err := g.Members(t.Context())
	must(t, err)
	var ids []string
	for _, m := range members {
		ids = append(ids, m.ID)
	}
	return strings.Join(ids, " ")
}

// The znodes are those that INTEROP of the neighbors asks for, and each member
// is there while its session is.
func TestGroups(t *testing.T) {
	bubble.Usual(t, bubble.NoContainers, bubble.OneShot) // waits for the end of a container; needs multiRead, or recursive watches
	const uuid, hex32 = `[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`, `[0-9a-f]{32}`
	for layout, form := range map[presence.Layout]string{
		presence.LayoutMember: `[ab]`, presence.LayoutProtected: `_c_` + uuid + `-[ab]`,
		presence.LayoutParty: hex32 + `__party__`, presence.LayoutShallowParty: hex32 + `-[ab]`,
	} {
		kazoo := layout >= presence.LayoutParty
		t.Run(form, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, other := w.ConnectNext(), w.ConnectNext()
				g, err := presence.NewGroup(c, dir, presence.WithLayout(layout))
				must(t, err)
				h, err := presence.NewGroup(other, dir, presence.WithLayout(layout))
				must(t, err)
				if got := ids(t, g); got != "" {
					t.Errorf("%q before all", got)
				}
				data := []byte("data")
				if kazoo {
					data = nil
				}
				b, err := g.Join(t.Context(), "b", data)
				must(t, err)
				_, err = h.Join(t.Context(), "a", data)
				must(t, err)
				must(t, c.MakePersistentPath(t.Context(), dir+"/persistent"))
				must(t, c.MakeContainerPath(t.Context(), dir+"/container"))
				w.ResetRequests()
				members, err := h.Members(t.Context())
				must(t, err)
				if n := w.Total(); n != 2 {
					t.Errorf("%d requests", n)
				}
				for i, want := range []struct {
					id      string
					session int64
				}{{"a", w.SessionID(other)}, {"b", w.SessionID(c)}} {
					m := members[i]
					name := strings.TrimPrefix(m.Path, dir+"/")
					if m.ID != want.id || m.Session != want.session || !regexp.MustCompile("^"+form+"$").MatchString(name) {
						t.Errorf("%+v", m)
					}
					if kazoo && string(m.Data) != want.id || !kazoo && string(m.Data) != "data" {
						t.Errorf("data %q", m.Data)
					}
				}
				if len(members) != 2 || members[1].Path != b.Path() {
					t.Errorf("%+v", members)
				}
				expire(t, w, c, b)
				if got := ids(t, h); got != "a" {
					t.Errorf("%q: b is counted on trust", got)
				}
				must(t, b.Standing(t.Context()))
				if got := ids(t, g); got != "a b" {
					t.Errorf("%q", got)
				}
				must(t, b.Close(t.Context()))
				must(t, other.Close())
				time.Sleep(time.Second)
				if got := ids(t, g); got != "" {
					t.Errorf("%q at the end", got)
				}
				must(t, c.Delete(t.Context(), dir+"/persistent", -1))
				must(t, c.Delete(t.Context(), dir+"/container", -1))
				time.Sleep(10 * time.Minute)
				if w.Exists(dir) != kazoo { // Kazoo looks for it once
					t.Errorf("the directory exists: %t", w.Exists(dir))
				}
			})
		})
	}
}

// A thousand members cost a list and a few requests.
func TestMembersOfALargeGroup(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead, or recursive watches
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		must(t, c.MakePersistentPath(t.Context(), dir))
		for i := range 1000 {
			_, err := c.Create(t.Context(), fmt.Sprintf("%s/%04d", dir, i), nil, zk.FlagEphemeral)
			must(t, err)
		}
		g, err := presence.NewGroup(c, dir)
		must(t, err)
		w.ResetRequests()
		members, err := g.Members(t.Context())
		if err != nil || len(members) != 1000 || members[999].ID != "0999" {
			t.Errorf("%d members, %v", len(members), err)
		}
		if n := w.Total(); n > 10 {
			t.Errorf("%d requests", n)
		}
	})
}

// Members shows what the client's own server knows, and after a sync what the
// others know.
func TestMembersOfAServerThatLags(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		far := (w.Leader() + 1) % 3
		c, other := w.ConnectTo("reader", w.Address(far)), w.ConnectTo("other", w.Address(w.Leader()))
		ours, err := presence.NewGroup(c, dir)
		must(t, err)
		theirs, err := presence.NewGroup(other, dir)
		must(t, err)
		_, err = ours.Join(t.Context(), "a", nil)
		must(t, err)
		w.Lag(far)
		_, err = theirs.Join(t.Context(), "b", nil)
		must(t, err)
		if all, err := ours.Members(t.Context()); err != nil || len(all) != 1 || all[0].ID != "a" {
			t.Errorf("while it lags: %v, %v", all, err)
		}
		synced := make(chan error, 1)
		go func() { synced <- c.Sync(t.Context(), dir) }()
		time.Sleep(time.Second)
		w.Unlag(far)
		must(t, bubble.Await(t, "the sync", synced))
		if all, err := ours.Members(t.Context()); err != nil || len(all) != 2 {
			t.Errorf("after a sync: %v, %v", all, err)
		}
	}, testutil.WithMembers(3))
}

// Who stops waiting for the members' data is not told that there are none.
func TestMembersThatAreNotRead(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		g, err := presence.NewGroup(c, dir)
		must(t, err)
		member, err := g.Join(t.Context(), "a", nil)
		must(t, err)
		defer member.Close(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		reads := 0
		defer w.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpMultiRead || r.Op == testutil.OpGetData {
				reads++
				cancel()
				return testutil.Delay(time.Second)
			}
			return testutil.Pass()
		})()
		if all, err := g.Members(ctx); !errors.Is(err, context.Canceled) || reads != 1 {
			t.Errorf("%v, %v after %d reads", all, err, reads)
		}
	})
}

// A group that was never joined has no members, but a missing chroot is an
// error.
func TestMembersOfAMissingGroup(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		below, err := w.OpenTo("below", w.Servers()+"/nowhere")
		must(t, err)
		defer below.Close()
		g, err := presence.NewGroup(w.ConnectNext(), dir)
		must(t, err)
		if all, err := g.Members(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("%v, %v", all, err)
		}
		g, err = presence.NewGroup(below, dir)
		must(t, err)
		if all, err := g.Members(t.Context()); err == nil || !strings.Contains(err.Error(), "chroot /nowhere") {
			t.Errorf("%v, %v", all, err)
		}
	})
}

// A member that leaves between the list and the read is none.
func TestAMemberThatLeavesMeanwhile(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead, or recursive watches
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.ConnectNext(), w.ConnectNext()
		g, err := presence.NewGroup(c, dir)
		must(t, err)
		_, err = g.Join(t.Context(), "a", nil)
		must(t, err)
		b := announce(t, other, dir+"/b", "")
		left := false
		defer w.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpMultiRead && !left {
				left = true
				return testutil.Delay(time.Second)
			}
			return testutil.Pass()
		})()
		go func() {
			time.Sleep(100 * time.Millisecond)
			_ = b.Close(t.Context())
		}()
		if got := ids(t, g); got != "a" || !left {
			t.Errorf("%q", got)
		}
	})
}

func TestBadGroups(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		for want, try := range map[string]func() (*presence.Group, error){
			"client":     func() (*presence.Group, error) { return presence.NewGroup(nil, dir) },
			"relative":   func() (*presence.Group, error) { return presence.NewGroup(c, "relative") },
			"sequential": func() (*presence.Group, error) { return presence.NewGroup(c, dir, presence.WithSequential()) },
			"layout 7":   func() (*presence.Group, error) { return presence.NewGroup(c, dir, presence.WithLayout(7)) },
		} {
			if g, err := try(); err == nil || g != nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", want, err)
			}
		}
		if _, err := presence.New(c, path, nil, presence.WithLayout(presence.LayoutParty)); err == nil {
			t.Error("a node with a layout")
		}
		for _, layout := range []presence.Layout{presence.LayoutMember, presence.LayoutProtected, presence.LayoutParty, presence.LayoutShallowParty} {
			g, err := presence.NewGroup(c, dir, presence.WithLayout(layout))
			must(t, err)
			for _, id := range []string{"", "a/b", "\xff", "a\x00"} {
				if layout == presence.LayoutParty && id != "" && id != "\xff" {
					continue // it is no name there
				}
				if n, err := g.Join(t.Context(), id, nil); err == nil || n != nil {
					t.Errorf("layout %d: id %q", layout, id)
				}
			}
			if layout < presence.LayoutParty {
				continue
			}
			if _, err := g.Join(t.Context(), "a", []byte("data")); err == nil {
				t.Error("data in a layout of Kazoo")
			}
		}
		zero := &presence.Group{}
		if _, err := zero.Join(t.Context(), "a", nil); err == nil {
			t.Error("the zero group was joined")
		}
		if _, err := zero.Members(t.Context()); err == nil {
			t.Error("the zero group has members")
		}
	})
}

// Whichever read of a list the ensemble refuses, the caller is told so; many
// reads in one request are made one by one then.
func TestMembersRefused(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead, or recursive watches
	survived := bubble.EachRefused(t, func(t *testing.T, w *bubble.World) (*framework.Client, func(context.Context) error) {
		c := w.ConnectNext()
		g, err := presence.NewGroup(c, dir)
		must(t, err)
		_, err = g.Join(t.Context(), "a", nil)
		must(t, err)
		return c, func(ctx context.Context) error {
			_, err := g.Members(ctx)
			return err
		}
	})
	if !slices.Equal(survived, []testutil.Op{testutil.OpMultiRead}) {
		t.Errorf("refused without an error: %v", survived)
	}
}
