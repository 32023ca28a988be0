package discovery_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// requests counts those of a client, without pings.
func requests(t *testing.T, w *bubble.World, name string) *atomic.Int64 {
	var n atomic.Int64
	t.Cleanup(w.ClientNet(name).Control(func(r testutil.Request) testutil.Action {
		if r.Op != testutil.OpPing {
			n.Add(1)
		}
		return testutil.Pass()
	}))
	return &n
}

// A consumer of one service hears of no other, unless it shares one cache of
// all, or has asked for all.
func TestAServiceIsFollowedAlone(t *testing.T) {
	for name, tt := range map[string]struct {
		opts []presence.Option
		all  bool
		want bool // it hears of the others
	}{
		"alone":          {},
		"a shared cache": {opts: []presence.Option{discovery.WithSharedCache()}, want: true},
		"all":            {all: true, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				d := open(t, w.ConnectNext())
				other := func(n int) *registration {
					return register(t, d, instance{Name: fmt.Sprint("other-", n), ID: "a", Payload: "x"})
				}
				first := other(0)
				register(t, d, a("x"))
				consumer := open(t, w.Connect("consumer"), append(tt.opts, cache.WithRecheck(0))...)
				s := billing(t, consumer)
				if tt.all {
					_, err := consumer.All(t.Context())
					must(t, err)
				}
				time.Sleep(time.Second)
				n := requests(t, w, "consumer")
				must(t, first.Close(t.Context()))
				for i := range 5 {
					other(i)
				}
				time.Sleep(time.Minute)
				if got := n.Load(); got > 0 != tt.want {
					t.Errorf("the consumer has made %d requests", got)
				}
				register(t, d, instance{Name: "billing", ID: "b", Payload: "y"})
				shows(t, s, "a=x b=y")
			})
		})
	}
}

// All has the instances of all services, as they come and go.
func TestAll(t *testing.T) {
	bubble.Usual(t, bubble.NoContainers) // a container goes when it is empty
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		d, consumer := open(t, w.ConnectNext()), open(t, w.ConnectNext())
		is := func(want string) {
			t.Helper()
			time.Sleep(time.Second)
			all, err := consumer.All(t.Context())
			must(t, err)
			var names []string
			for _, name := range []string{"billing", "shop", "users"} {
				if list, ok := all[name]; ok {
					names = append(names, name+": "+show(list))
				}
			}
			if got := strings.Join(names, "; "); got != want || len(all) != len(names) {
				t.Errorf("there is %q, want %q", got, want)
			}
		}
		is("")
		register(t, d, a("x"))
		r := register(t, d, instance{Name: "shop", ID: "s", Payload: "y"})
		is("billing: a=x; shop: s=y")
		must(t, r.Update(t.Context(), instance{Payload: "z"}))
		is("billing: a=x; shop: s=z")
		must(t, r.Close(t.Context()))
		register(t, d, instance{Name: "users", ID: "u", Payload: "x"})
		time.Sleep(time.Minute) // the empty container is removed
		is("billing: a=x; users: u=x")
		consumer.Close()
		if _, err := consumer.All(t.Context()); err == nil {
			t.Error("All has not failed after Close")
		}
	})
}

// However many services a client follows, the rechecks of all together cost
// about a request per session timeout.
func TestServicesShareTheRecheck(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		d, consumer := open(t, w.ConnectNext()), open(t, w.Connect("consumer"))
		for i := range 20 {
			name := fmt.Sprint("service-", i)
			register(t, d, instance{Name: name, ID: "a", Payload: "x"})
			s, err := consumer.Service(name)
			must(t, err)
			_, err = s.All(t.Context())
			must(t, err)
		}
		time.Sleep(time.Minute)
		n := requests(t, w, "consumer")
		time.Sleep(20 * bubble.Timeout)
		if got := n.Load(); got < 10 || got > 30 {
			t.Errorf("%d requests in 20 session timeouts", got)
		}
	})
}

// Each service has a snapshot of its own, whatever its name. With a shared
// cache there is one.
func TestSnapshotsOfServices(t *testing.T) {
	for name, tt := range map[string]struct {
		opts []presence.Option
		want []string
	}{
		"alone":          {nil, []string{"snapshot.a%20b%7E1", "snapshot.billing"}},
		"a shared cache": {[]presence.Option{discovery.WithSharedCache()}, []string{"snapshot"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				d := open(t, w.ConnectNext())
				dir := t.TempDir()
				consumer := open(t, w.ConnectNext(), append(tt.opts, cache.WithSnapshot(filepath.Join(dir, "snapshot")))...)
				for _, name := range []string{"billing", "a b~1"} {
					register(t, d, instance{Name: name, ID: "a", Payload: "x"})
					s, err := consumer.Service(name)
					must(t, err)
					_, err = s.All(t.Context())
					must(t, err)
				}
				consumer.Close()
				files, err := filepath.Glob(filepath.Join(dir, "*"))
				must(t, err)
				var names []string
				for _, file := range files {
					names = append(names, filepath.Base(file))
				}
				if got, want := fmt.Sprint(names), fmt.Sprint(tt.want); got != want {
					t.Errorf("there is %s, want %s", got, want)
				}
			})
		})
	}
}

// All offers nothing that has vanished, also with a last resort.
func TestAllHasNoLastResort(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		owner := w.ConnectNext()
		register(t, open(t, owner), a("x"))
		consumer := open(t, w.Connect("consumer"), discovery.WithLastResort(offered))
		for _, want := range []string{"a=x", ""} {
			all, err := consumer.All(t.Context())
			if got := show(all["billing"]); err != nil || got != want {
				t.Errorf("all: %q, %v, want %q", got, err, want)
			}
			must(t, owner.Close())
			time.Sleep(time.Second)
		}
	})
}

// lengthy is a payload that takes three hours to decode, unless it is empty.
type lengthy string

func (s *lengthy) UnmarshalJSON(data []byte) error {
	if *s = lengthy(data); *s != `""` {
		time.Sleep(3 * time.Hour)
	}
	return nil
}

// All waits for a payload, and then other services may not be read any longer:
// they are left out.
func TestAServiceTurnsUnreadableDuringAll(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		owner := w.ConnectNext()
		d := open(t, owner)
		register(t, d, a("x"))
		const n = 30
		for i := range n {
			register(t, d, instance{Name: fmt.Sprint("other", i), ID: "a"})
		}
		consumer, err := discovery.New(w.Connect("consumer"), root, discovery.JSON[lengthy](""))
		must(t, err)
		defer consumer.Close()
		go func() {
			time.Sleep(time.Minute)
			for i := range n {
				_, err := owner.SetACL(t.Context(), fmt.Sprint(root, "/other", i), zk.WorldACL(zk.PermAdmin), -1)
				must(t, err)
			}
		}()
		all, err := consumer.All(t.Context())
		if err != nil || len(all["billing"]) != 1 {
			t.Errorf("%v, %v", all, err)
		}
	})
}
