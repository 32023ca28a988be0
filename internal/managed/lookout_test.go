package managed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// soon is within what a change without an event is found: the pause between two
// looks is 3/4 to 5/4 of the session timeout.
const soon = timeout*5/4 + time.Second

// atOnce is within what an event is heard of.
const atOnce = 10 * time.Millisecond

// value is what a follower is told of a znode, of its data or its children.
type value struct {
	exists bool
	text   string // the data, or the names in order
	err    error
}

func (v value) String() string {
	return fmt.Sprintf("exists %t, %q, error %v", v.exists, v.text, v.err)
}

// watchings are the two ways to follow a znode. change changes what is watched
// so that it is text then.
var watchings = []struct {
	name   string
	watch  func(t *testing.T, ctx context.Context, c *framework.Client) <-chan value
	change func(c *framework.Client, text string) error
}{
	{"data", func(t *testing.T, ctx context.Context, c *framework.Client) <-chan value {
		from, err := c.WatchData(ctx, "/a")
		must(t, err)
		return pass(from, func(v framework.Data) value { return value{v.Exists, string(v.Data), v.Err} })
	}, func(c *framework.Client, text string) error {
		_, err := c.Set(context.Background(), "/a", []byte(text), -1)
		return err
	}},
	{"children", func(t *testing.T, ctx context.Context, c *framework.Client) <-chan value {
		from, err := c.WatchChildren(ctx, "/a")
		must(t, err)
		return pass(from, func(v framework.Children) value {
			return value{v.Exists, fmt.Sprint(slices.Sorted(slices.Values(v.Names))), v.Err}
		})
	}, func(c *framework.Client, text string) error {
		_, err := c.Create(context.Background(), "/a/"+text[1:len(text)-1], nil, 0)
		return err
	}},
}

func pass[T any](from <-chan T, form func(T) value) <-chan value {
	to := make(chan value, 100)
	go func() {
		defer close(to)
		for v := range from {
			to <- form(v)
		}
	}()
	return to
}

// hears returns the next value, which must come within limit.
func hears(t *testing.T, from <-chan value, limit time.Duration) value {
	t.Helper()
	select {
	case v, ok := <-from:
		if !ok {
			t.Fatal("the watch has ended")
		}
		return v
	case <-time.After(limit):
		t.Fatalf("nothing is heard within %v", limit)
	}
	panic("unreachable")
}

func hearsNothing(t *testing.T, from <-chan value) {
	t.Helper()
	synctest.Wait()
	select {
	case v, ok := <-from:
		t.Fatalf("told %v, %t, but nothing has changed", v, ok)
	default:
	}
}

// eachRelease runs a scenario on servers that let a client ask for a znode that
// it may not read, and those that do not: see WithExistsWithoutRead.
func eachRelease(t *testing.T, scenario func(t *testing.T, ens *testutil.Embedded)) {
	for name, opts := range map[string][]testutil.Option{"newer": nil, "older": {testutil.WithExistsWithoutRead()}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				scenario(t, testutil.Start(t, append(opts, testutil.InMemory())...))
			})
		})
	}
}

// owned creates /a, which everybody may read at first. It returns its owner,
// and what lets others read it, or not.
func owned(t *testing.T, ens *testutil.Embedded, text string) (owner *framework.Client, readable func(bool)) {
	t.Helper()
	owner, _ = connect(t, ens, framework.WithAuth("digest", []byte("owner:secret")))
	_, err := owner.Create(t.Context(), "/a", []byte(text), 0)
	must(t, err)
	return owner, func(yes bool) {
		t.Helper()
		acl := zk.DigestACL(zk.PermAll, "owner", "secret")
		if yes {
			acl = append(acl, zk.WorldACL(zk.PermRead)...)
		}
		_, err := owner.SetACL(t.Context(), "/a", acl, -1)
		must(t, err)
	}
}

// A server uses a watch up without an event if the znode is changed while the
// watcher may not read it. WatchData and WatchChildren then heard of nothing
// more, without end, and another watcher of the client began with the old
// value.
func TestAWatchThatIsUsedUpInSilence(t *testing.T) {
	for _, w := range watchings {
		for _, before := range []bool{false, true} { // whether a new watcher comes before or after a look
			t.Run(fmt.Sprintf("%s, joined before %t", w.name, before), func(t *testing.T) {
				eachRelease(t, func(t *testing.T, ens *testutil.Embedded) {
					c, _ := connect(t, ens)
					owner, readable := owned(t, ens, "[]")
					readable(true)
					told := w.watch(t, t.Context(), c)
					if v := hears(t, told, atOnce); v.text != "[]" {
						t.Fatalf("at first %v", v)
					}
					readable(false)
					must(t, w.change(owner, "[1]"))
					readable(true)
					if before {
						if v := hears(t, w.watch(t, t.Context(), c), atOnce); v.text != "[1]" {
							t.Errorf("a new watcher begins with %v", v)
						}
						if v := hears(t, told, atOnce); v.text != "[1]" {
							t.Errorf("told %v", v)
						}
					} else if v := hears(t, told, soon); v.text != "[1]" {
						t.Errorf("told %v", v)
					}
					if n := ens.WatchCount(); n != 1 {
						t.Errorf("%d watches", n)
					}
					must(t, w.change(owner, "[2]"))
					if v := hears(t, told, atOnce); v.text == "[1]" {
						t.Errorf("changed with an event, but told %v", v)
					}
				})
			})
		}
	}
}

// Whoever loses the right to read a znode is told so, although neither the
// change of the rights nor the znode's changes after it have an event.
func TestALostRightEndsTheWatch(t *testing.T) {
	for _, w := range watchings {
		for _, changes := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, changes %t", w.name, changes), func(t *testing.T) {
				eachRelease(t, func(t *testing.T, ens *testutil.Embedded) {
					c, _ := connect(t, ens)
					owner, readable := owned(t, ens, "[]")
					readable(true)
					told := w.watch(t, t.Context(), c)
					hears(t, told, atOnce)
					readable(false)
					if changes {
						must(t, w.change(owner, "[1]"))
					}
					if v := hears(t, told, soon); !errors.Is(v.err, zk.ErrNoAuth) {
						t.Errorf("told %v, want %v", v, zk.ErrNoAuth)
					}
					if v, ok := <-told; ok {
						t.Errorf("then told %v, want the end", v)
					}
				})
			})
		}
	}
}

// The events of a znode are lost on their way: of its creation, of each change,
// of its deletion. Each is heard of by the next look, and watches do not grow.
func TestAWatchOutlivesLostEvents(t *testing.T) {
	for _, w := range watchings {
		t.Run(w.name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				c, network := connect(t, ens)
				owner, _ := connect(t, ens)
				told := w.watch(t, t.Context(), c)
				hears(t, told, atOnce)
				network.LoseEvents(true)
				for round := range 3 {
					_, err := owner.Create(t.Context(), "/a", []byte("[]"), 0)
					must(t, err)
					if v := hears(t, told, soon); !v.exists || v.text != "[]" {
						t.Fatalf("round %d: created, but told %v", round, v)
					}
					must(t, w.change(owner, "[1]"))
					if v := hears(t, told, soon); v.text != "[1]" {
						t.Fatalf("round %d: changed, but told %v", round, v)
					}
					if round == 2 { // it is as good as on the first day
						network.LoseEvents(false)
						must(t, w.change(owner, "[2]"))
						if v := hears(t, told, atOnce); v.text == "[1]" {
							t.Fatalf("changed with an event, but told %v", v)
						}
						break
					}
					_ = owner.Delete(t.Context(), "/a/1", -1)
					must(t, owner.Delete(t.Context(), "/a", -1))
					for v := (value{exists: true}); v.exists; { // a look may come between the two deletes
						v = hears(t, told, 2*soon)
					}
					hearsNothing(t, told)
				}
			})
		})
	}
}

// A look is one exists, however many callers follow the znode. It tells nobody
// anything if nothing is new, also after a reconnect. There are no looks for a
// znode that nobody follows. Clients do not look at the same time.
func TestLooksAreFewAndSilent(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		owner, _ := connect(t, ens)
		for _, path := range []string{"/a", "/b"} {
			_, err := owner.Create(t.Context(), path, nil, 0)
			must(t, err)
		}
		ctx, stop := context.WithCancel(t.Context())
		const clients, callers = 5, 20
		var told []<-chan value
		var last *testutil.ClientNet
		for range clients {
			c, network := connect(t, ens)
			last = network
			for range callers {
				for _, w := range watchings {
					told = append(told, w.watch(t, ctx, c))
				}
				_, err := session(t, c).Watch(ctx, "/b") // which looks only when it is called
				must(t, err)
			}
		}
		for _, one := range told {
			hears(t, one, atOnce)
		}
		ens.ResetRequests()
		looks := map[time.Duration]int{}
		began := time.Now()
		defer ens.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpExists && r.Path != "/a" {
				t.Errorf("a look at %s, which nobody follows", r.Path)
			} else if r.Op == testutil.OpExists {
				looks[time.Since(began).Round(10*time.Millisecond)]++
			}
			return testutil.Pass()
		})()
		const times = 40
		time.Sleep(times * timeout)
		n := ens.Requests()
		const want = 2 * clients * times // the data and the children of one path
		if got := n[testutil.OpExists]; got < want*8/10 || got > want*12/10 {
			t.Errorf("%d looks in %d session timeouts for %d watches, want %d", got, times, 2*clients, want)
		}
		if n[testutil.OpGetData]+n[testutil.OpGetChildren2]+n[testutil.OpSync] != 0 {
			t.Errorf("requests %v, want exists alone", n)
		}
		for at, same := range looks {
			if same > clients {
				t.Errorf("%d looks at %v: they have no jitter", same, at)
			}
		}
		last.Drop()
		time.Sleep(timeout)
		for _, one := range told {
			hearsNothing(t, one)
		}
		stop()
		time.Sleep(timeout)
		ens.ResetRequests()
		time.Sleep(times * timeout)
		if n := ens.Requests()[testutil.OpExists]; n != 0 {
			t.Errorf("%d looks after the last caller has left", n)
		}
	})
}

// A new watcher reads the znode, and does not trust a watch of others. A
// thousand that come at the same time share one request, or two.
func TestANewWatcherReads(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		owner, _ := connect(t, ens)
		told := watchings[0].watch(t, t.Context(), c)
		hears(t, told, atOnce)
		network.LoseEvents(true)
		_, err := owner.Create(t.Context(), "/a", []byte("1"), 0) // while its absence is watched
		must(t, err)
		ens.Latency(10 * time.Millisecond)
		ens.ResetRequests()
		const callers = 1000
		began := make(chan string, callers)
		for range callers {
			go func() {
				from, err := c.WatchData(t.Context(), "/a")
				if err != nil {
					t.Error(err)
				}
				began <- string((<-from).Data)
			}()
		}
		for range callers {
			if data := <-began; data != "1" {
				t.Fatalf("a new watcher begins with %q", data)
			}
		}
		if n := ens.Requests(); n[testutil.OpGetData]+n[testutil.OpExists] > 6 {
			t.Errorf("%v for %d watchers", n, callers)
		}
		_, err = owner.Set(t.Context(), "/a", []byte("2"), -1) // while it is watched
		must(t, err)
		ens.ResetRequests()
		from, err := c.WatchData(t.Context(), "/a")
		must(t, err)
		if v := <-from; string(v.Data) != "2" {
			t.Errorf("a new watcher begins with %q", v.Data)
		}
		time.Sleep(time.Second)
		ens.ResetRequests()
		_, err = c.WatchData(t.Context(), "/a")
		must(t, err)
		if n := ens.Requests(); n[testutil.OpExists] != 1 || n[testutil.OpGetData] != 0 {
			t.Errorf("requests %v for one more watcher, want an exists", n)
		}
	})
}

// A session's watches do not look by themselves. A caller that watches again
// after a session timeout gets what is true then, for one request.
func TestAWatchThatIsJoinedLateIsChecked(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		owner, _ := connect(t, ens)
		s := session(t, c)
		_, err := owner.Create(t.Context(), "/a", []byte("0"), 0)
		must(t, err)
		_, _, changed, err := s.GetAndWatch(t.Context(), "/a")
		must(t, err)
		names, _, err := s.WatchChildren(t.Context(), "/a")
		must(t, err)
		exists, _, _, err := s.WatchExists(t.Context(), "/b")
		if must(t, err); exists || len(names) != 0 {
			t.Fatalf("/b exists %t, /a has %v", exists, names)
		}
		time.Sleep(timeout)
		ens.ResetRequests()
		for range 10 {
			data, _, _, err := s.GetAndWatch(t.Context(), "/a")
			if err != nil || string(data) != "0" {
				t.Fatalf("%q, %v", data, err)
			}
		}
		if n := ens.Requests(); n[testutil.OpExists] != 1 || n[testutil.OpGetData] != 0 {
			t.Errorf("requests %v, want an exists", n)
		}
		network.LoseEvents(true)
		_, err = owner.Set(t.Context(), "/a", []byte("1"), -1)
		must(t, err)
		_, err = owner.Create(t.Context(), "/a/x", nil, 0)
		must(t, err)
		_, err = owner.Create(t.Context(), "/b", nil, 0)
		must(t, err)
		time.Sleep(timeout)
		data, _, _, err := s.GetAndWatch(t.Context(), "/a")
		if err != nil || string(data) != "1" {
			t.Errorf("%q, %v", data, err)
		}
		names, _, err = s.WatchChildren(t.Context(), "/a")
		if err != nil || !slices.Equal(names, []string{"x"}) {
			t.Errorf("%v, %v", names, err)
		}
		exists, _, _, err = s.WatchExists(t.Context(), "/b")
		if err != nil || !exists {
			t.Errorf("%t, %v", exists, err)
		}
		select {
		case <-changed: // those who wait hear of it as well
		default:
			t.Error("a watch that has missed a change has not fired")
		}
	})
}
