package managed_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// idle is how long a directory stays empty in these tests.
const idle = time.Minute

// sweeping returns a client that makes no containers, and sweeps.
func sweeping(t *testing.T, ens *testutil.Embedded) (*framework.Client, *testutil.ClientNet) {
	t.Helper()
	return connect(t, ens, framework.WithContainers(false), framework.WithSweep(idle))
}

// emptied makes a directory that has had a child.
func emptied(t *testing.T, c *framework.Client, dir string) {
	t.Helper()
	must(t, c.MakeContainerPath(t.Context(), dir))
	child(t, c, dir)
}

// child creates and deletes a child.
func child(t *testing.T, c *framework.Client, dir string) {
	t.Helper()
	_, err := c.Create(t.Context(), dir+"/child", nil, zk.FlagEphemeral)
	must(t, err)
	must(t, c.Delete(t.Context(), dir+"/child", -1))
}

// A directory goes after it was empty for idle, and then, one after the other,
// those above it. Each costs one request in every idle and one for its delete.
// One that never had a child may be about to be joined.
func TestSweep(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := sweeping(t, ens)
		emptied(t, c, "/a/b/c")
		must(t, c.MakeContainerPath(t.Context(), "/fresh"))
		emptied(t, c, "/used")
		stop := time.AfterFunc(idle*3/2, func() { child(t, c, "/used") })
		defer stop.Stop()
		ens.ResetRequests()
		time.Sleep(idle + time.Second)
		if !ens.Exists("/a/b/c") || !ens.Exists("/used") {
			t.Error("too early")
		}
		time.Sleep(idle)
		if ens.Exists("/a/b/c") || !ens.Exists("/a/b") || !ens.Exists("/used") {
			t.Errorf("after two rounds: %s", ens.Tree())
		}
		time.Sleep(4 * idle)
		if got := ens.Children("/"); !slices.Equal(got, []string{"fresh", "zookeeper"}) {
			t.Errorf("left: %v", got)
		}
		n := ens.Requests()
		if looks, deletes := n[testutil.OpGetACL], n[testutil.OpMulti]; looks != 2+3+4+3+6 || deletes != 4 {
			t.Errorf("%d looks, %d deletes", looks, deletes)
		}
		ens.ResetRequests()
		time.Sleep(10 * idle)
		if n := ens.Requests()[testutil.OpGetACL]; n != 10 {
			t.Errorf("%d looks in 10 rounds at the one that is left", n)
		}
	})
}

// Without the option nothing is asked and nothing is deleted.
func TestNoSweep(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens, framework.WithContainers(false))
		emptied(t, c, "/a")
		ens.ResetRequests()
		time.Sleep(10 * idle)
		if n := ens.Requests(); !ens.Exists("/a") || n[testutil.OpGetACL]+n[testutil.OpMulti] != 0 {
			t.Errorf("requests %v", n)
		}
	})
}

// What the client has made goes as a container would. Of what others have made
// all stays that recipes would not make again as it is. What the client may not
// delete, or does not have to, it does not ask for again.
func TestSweepKeeps(t *testing.T) {
	set := func(t *testing.T, c *framework.Client, data string) {
		_, err := c.Set(t.Context(), "/dir", []byte(data), -1)
		must(t, err)
	}
	open := zk.WorldACL(zk.PermAll)
	for name, tt := range map[string]struct {
		change    func(t *testing.T, c *framework.Client)
		stays     bool // also if the client has made it
		goes      bool // also if another client has made it
		isWatched bool // and is looked at again and again
	}{
		"nothing":               {change: func(*testing.T, *framework.Client) {}, goes: true},
		"data":                  {change: func(t *testing.T, c *framework.Client) { set(t, c, "x") }},
		"data that was removed": {change: func(t *testing.T, c *framework.Client) { set(t, c, "x"); set(t, c, "") }},
		"an ACL": {change: func(t *testing.T, c *framework.Client) {
			_, err := c.SetACL(t.Context(), "/dir", open, -1)
			must(t, err)
		}},
		"made again with an ACL": {change: func(t *testing.T, c *framework.Client) {
			time.Sleep(idle + time.Second) // it was seen
			must(t, c.Delete(t.Context(), "/dir", -1))
			_, err := c.Create(t.Context(), "/dir", nil, 0, append(zk.WorldACL(zk.PermRead), open...)...)
			must(t, err)
			child(t, c, "/dir")
		}, stays: true},
		"an ACL that hides it": {change: func(t *testing.T, c *framework.Client) {
			_, err := c.SetACL(t.Context(), "/dir", zk.DigestACL(zk.PermAll, "a", "b"), -1)
			must(t, err)
		}, stays: true},
		"a child": {change: func(t *testing.T, c *framework.Client) {
			_, err := c.Create(t.Context(), "/dir/x", nil, 0)
			must(t, err)
		}, stays: true, isWatched: true},
		"a parent that keeps it": {change: func(t *testing.T, c *framework.Client) {
			_, err := c.SetACL(t.Context(), "/", zk.WorldACL(zk.PermAll&^zk.PermDelete), -1)
			must(t, err)
		}, stays: true},
	} {
		for _, made := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, made %v", name, made), func(t *testing.T) {
				inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
					c, _ := sweeping(t, ens)
					other, _ := connect(t, ens, framework.WithContainers(false))
					if made {
						emptied(t, c, "/dir")
					} else {
						emptied(t, other, "/dir")
						insideOf(c).Used("/dir")
					}
					tt.change(t, other)
					time.Sleep(3*idle + time.Second)
					ens.ResetRequests()
					time.Sleep(10 * idle)
					if stays := tt.stays || !made && !tt.goes; ens.Exists("/dir") != stays {
						t.Errorf("exists %v", ens.Exists("/dir"))
					}
					if n := ens.Requests()[testutil.OpGetACL]; (n == 10) != tt.isWatched || n%10 != 0 {
						t.Errorf("%d looks", n)
					}
				})
			})
		}
	}
}

// The chroot is not a directory of recipes, wherever it was made.
func TestSweepKeepsTheChroot(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		network := ens.ClientNet("chroot")
		c, err := framework.New(ens.Servers()+"/company/app", framework.WithDialer(network.Dial), framework.WithCreateChroot(),
			framework.WithContainers(false), framework.WithSweep(idle))
		must(t, err)
		defer c.Close()
		below, err := c.Namespace("team")
		must(t, err)
		emptied(t, below, "/dir")
		must(t, c.MakeContainerPath(t.Context(), "/"))
		time.Sleep(10 * idle)
		if !ens.Exists("/company/app") || ens.Exists("/company/app/team") {
			t.Errorf("left:\n%s", ens.Tree())
		}
	})
}

// Between the look and the delete, or before a delete that was given up arrives
// at last, others join, or delete the directory and make it again.
func TestSweepHurtsNobody(t *testing.T) {
	for name, during := range map[string]func(t *testing.T, other *framework.Client){
		"joined": func(t *testing.T, other *framework.Client) {
			_, err := other.Create(t.Context(), "/dir/contender", nil, zk.FlagEphemeral)
			must(t, err)
		},
		"joined, and left": func(t *testing.T, other *framework.Client) { child(t, other, "/dir") },
		"made again": func(t *testing.T, other *framework.Client) {
			must(t, other.Delete(t.Context(), "/dir", -1))
			must(t, other.MakeContainerPath(t.Context(), "/dir"))
		},
		"made again with data": func(t *testing.T, other *framework.Client) {
			must(t, other.Delete(t.Context(), "/dir", -1))
			_, err := other.Create(t.Context(), "/dir", []byte("x"), 0)
			must(t, err)
		},
		"data": func(t *testing.T, other *framework.Client) {
			_, err := other.Set(t.Context(), "/dir", []byte("x"), -1)
			must(t, err)
		},
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, late %v", name, late), func(t *testing.T) {
				inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
					c, network := sweeping(t, ens)
					other, _ := connect(t, ens, framework.WithContainers(false))
					emptied(t, c, "/dir")
					hold := make(chan struct{})
					delete := testutil.NewFault(testutil.Match{Op: testutil.OpMulti}, testutil.Hold(hold))
					if late { // executed after its connection has ended
						delete = testutil.NewFault(testutil.Match{Op: testutil.OpMulti}, testutil.Delay(timeout))
						defer ens.Control(delete.Control)()
					} else {
						defer network.Control(delete.Control)()
					}
					bubble.Await(t, "the delete", delete.Hit())
					before, _ := ens.Stat("/dir")
					if late {
						network.Drop()
					}
					during(t, other)
					synctest.Wait()
					changed, _ := ens.Stat("/dir")
					close(hold)
					time.Sleep(timeout + time.Second)
					if now, ok := ens.Stat("/dir"); !ok || now != changed || now == before {
						t.Errorf("before %+v, changed to %+v, now %+v", before, changed, now)
					}
				})
			})
		}
	}
}

// Requests and answers of the sweep are lost, the session expires, and the
// network is gone for hours: the directory goes all the same, once.
func TestSweepOverFaults(t *testing.T) {
	for name, action := range map[string]func() testutil.Action{
		"lost requests":   testutil.DropBefore,
		"lost answers":    testutil.DropAfter,
		"refused for now": func() testutil.Action { return testutil.Fail(testutil.CodeThrottled) },
		"expiry":          func() testutil.Action { return testutil.Fail(testutil.CodeSessionExpired) },
		"no answer":       func() testutil.Action { return testutil.Hold(nil) },
	} {
		for _, op := range []testutil.Op{testutil.OpGetACL, testutil.OpMulti} {
			t.Run(fmt.Sprint(name, " of ", op), func(t *testing.T) {
				inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
					c, network := sweeping(t, ens)
					emptied(t, c, "/dir")
					fault := testutil.NewFault(testutil.Match{Op: op, Times: 2}, action())
					network.Control(fault.Control)
					time.Sleep(10 * idle)
					if fault.Count() == 0 || ens.Exists("/dir") {
						t.Errorf("%d faults, exists %v", fault.Count(), ens.Exists("/dir"))
					}
				})
			})
		}
	}
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, network := sweeping(t, ens)
		emptied(t, c, "/dir")
		emptied(t, c, "/other")
		network.Cut()
		time.Sleep(10 * idle)
		network.Heal()
		time.Sleep(3 * idle)
		if got := ens.Children("/"); len(got) != 1 {
			t.Errorf("left: %v", got)
		}
	})
}

// A directory that the client uses again, before it hears that it has deleted
// it, is deleted again.
func TestSweepOfWhatIsUsedAgain(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := sweeping(t, ens)
		other, _ := connect(t, ens, framework.WithContainers(false))
		emptied(t, c, "/dir")
		release := make(chan struct{})
		deleted := testutil.NewFault(testutil.Match{Op: testutil.OpMulti}, testutil.HoldReply(release))
		network.Control(deleted.Control)
		bubble.Await(t, "the delete", deleted.Hit())
		synctest.Wait()
		emptied(t, other, "/dir")
		insideOf(c).Used("/dir")
		close(release)
		time.Sleep(4 * idle)
		if ens.Exists("/dir") {
			t.Error("it stays")
		}
	})
}

// Close does not wait for a sweep.
func TestCloseDuringASweep(t *testing.T) {
	for _, op := range []testutil.Op{testutil.OpGetACL, testutil.OpMulti} {
		inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
			c, network := sweeping(t, ens)
			for i := range 10 {
				emptied(t, c, fmt.Sprintf("/dir%d", i))
			}
			held := testutil.NewFault(testutil.Match{Op: op}, testutil.HoldReply(nil))
			network.Control(held.Control)
			bubble.Await(t, "the request", held.Hit())
			began := time.Now()
			_ = c.Close() // the answer to its close is held as well
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// On ClickHouse Keeper the numbers of creates and deletes are what they are
// elsewhere, unless data of a child was set: then the directory stays.
func TestSweepOnAnImitatedServer(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := keeping(t, ens, framework.WithContainers(false), framework.WithSweep(idle))
		emptied(t, c, "/dir/a")
		must(t, c.MakeContainerPath(t.Context(), "/written"))
		_, err := c.Create(t.Context(), "/written/x", nil, 0)
		must(t, err)
		for range 2 {
			_, err = c.Set(t.Context(), "/written/x", []byte("x"), -1)
			must(t, err)
		}
		must(t, c.Delete(t.Context(), "/written/x", -1))
		time.Sleep(10 * idle)
		if got := ens.Children("/"); !slices.Equal(got, []string{"written", "zookeeper"}) {
			t.Errorf("left: %v", got)
		}
		must(t, c.Close())
	})
}
