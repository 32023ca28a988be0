package managed_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// swept creates and deletes a child of each directory, and returns those that
// the ensemble removes after that.
func swept(t *testing.T, ens *testutil.Embedded, c *framework.Client, dirs ...string) (gone []string) {
	t.Helper()
	for _, dir := range dirs {
		_, err := c.Create(t.Context(), dir+"/child", nil, zk.FlagEphemeral)
		must(t, err)
		must(t, c.Delete(t.Context(), dir+"/child", -1))
	}
	time.Sleep(2 * time.Minute)
	for _, dir := range dirs {
		if !ens.Exists(dir) {
			gone = append(gone, dir)
		}
	}
	return gone
}

// With false no request makes a container, of the parents neither.
func TestWithContainers(t *testing.T) {
	for _, on := range []bool{true, false} {
		inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
			c, _ := connect(t, ens, framework.WithContainers(on))
			must(t, c.MakeContainerPath(t.Context(), "/a/b/c"))
			_, err := c.Create(t.Context(), "/one", nil, zk.FlagContainer)
			must(t, err)
			n := ens.Requests()[testutil.OpCreateContainer]
			if gone := swept(t, ens, c, "/a/b/c", "/one"); (n > 0) != on || (len(gone) == 2) != on {
				t.Errorf("on %v: %d requests, gone: %v", on, n, gone)
			}
			if ens.Exists("/a") == on {
				t.Errorf("on %v: a parent", on)
			}
		})
	}
}

// What the client says of containers.
const (
	saysNone     = "no container znodes"
	saysDoubtful = "connections end on the create of a container"
	saysSome     = "the ensemble has container znodes"
)

// logged returns a logger, and how often it was told that there are no
// containers, or something else.
func logged() (framework.Option, func(instead ...string) int) {
	logs, seen := observer.New(zap.InfoLevel)
	return framework.WithLogger(zap.New(logs)), func(instead ...string) int {
		synctest.Wait()
		text := strings.Join(append(instead, saysNone)[:1], "")
		return seen.Filter(func(e observer.LoggedEntry) bool { return strings.Contains(e.Message, text) }).Len()
	}
}

// A server that does not know containers ends the connection. After the second
// one the client makes persistent znodes, and asks over a connection of its
// own, where another end says it. It says so once, and asks again about once an
// hour, which costs no connection of its session.
func TestServersThatEndTheConnectionOnAContainer(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		log, said := logged()
		c, network := keeping(t, ens, log)
		var tries atomic.Int32
		network.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpCreateContainer {
				tries.Add(1)
			}
			return testutil.Pass()
		})
		began := time.Now()
		must(t, c.MakeContainerPath(t.Context(), "/a/b/c"))
		if took := time.Since(began); took > timeout {
			t.Errorf("it took %v", took)
		}
		for i := range 5 {
			must(t, c.MakeContainerPath(t.Context(), fmt.Sprintf("/more/%d", i)))
		}
		if n := tries.Load(); n < 3 || n > 2+3 || said() != 1 || said(saysDoubtful) != 1 { // each server is asked once
			t.Errorf("%d tries, said %d times, doubted %d times", tries.Load(), said(), said(saysDoubtful))
		}
		s, before := session(t, c), tries.Load()
		for i := range 8 * 60 {
			time.Sleep(time.Minute)
			must(t, c.MakeContainerPath(t.Context(), fmt.Sprintf("/later/%d", i)))
		}
		if n := tries.Load() - before; n < 8+8 || n > 16+12 || said() != 1 || s.Err() != nil { // they grow to an hour in twelve
			t.Errorf("%d tries in eight hours, said %d times, %v", n, said(), s.Err())
		}
		must(t, c.Close())
	})
}

// Servers without containers are replaced by others. The client asks the next
// one that it has, and after an hour the one that it had.
func TestServersThatGetContainers(t *testing.T) {
	for name, moves := range map[string]bool{"another server": true, "the same server": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				log, said := logged()
				c, network := connect(t, ens, log)
				stop := network.Control(testutil.NewFault(testutil.Match{Op: testutil.OpCreateContainer, Times: -1}, testutil.Fail(testutil.CodeUnimplemented)).Control)
				must(t, c.MakeContainerPath(t.Context(), "/a"))
				stop()
				if moves {
					network.Drop() // the client does not return to a server that has dropped it
					time.Sleep(time.Second)
					must(t, c.WaitConnected(t.Context()))
				} else {
					time.Sleep(time.Hour)
				}
				must(t, c.MakeContainerPath(t.Context(), "/asks"))
				time.Sleep(time.Second)
				must(t, c.MakeContainerPath(t.Context(), "/last"))
				if gone := swept(t, ens, c, "/last"); len(gone) != 1 || said() != 1 || said(saysSome) != 1 {
					t.Errorf("gone %v, said %d and %d times", gone, said(), said(saysSome))
				}
			})
		})
	}
}

// Several goroutines need a directory at once. The session ends for all of
// them, and each gets its directory.
func TestServersThatEndTheConnectionOnManyContainers(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		log, said := logged()
		c, _ := keeping(t, ens, log)
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				if err := c.MakeContainerPath(t.Context(), fmt.Sprintf("/dirs/%d/x", i)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if said() != 1 || len(ens.Children("/dirs")) != 20 {
			t.Errorf("said %d times, %d directories", said(), len(ens.Children("/dirs")))
		}
		must(t, c.Close())
	})
}

// An end of the connection proves nothing by itself: not one, not two with a
// container made in between, and not those on which another request was the
// oldest.
func TestUnluckyDropsLeaveContainersOn(t *testing.T) {
	drop := func(network *testutil.ClientNet, path string, op testutil.Op) (stop func()) {
		return network.Control(testutil.NewFault(testutil.Match{Op: op, Path: path}, testutil.DropBefore()).Control)
	}
	for name, happens := range map[string]func(t *testing.T, c *framework.Client, network *testutil.ClientNet){
		"one": func(t *testing.T, c *framework.Client, network *testutil.ClientNet) {
			drop(network, "/a", testutil.OpCreateContainer)
			must(t, c.MakeContainerPath(t.Context(), "/a"))
		},
		"a container in between": func(t *testing.T, c *framework.Client, network *testutil.ClientNet) {
			for _, path := range []string{"/a", "/b", "/c"} {
				drop(network, path, testutil.OpCreateContainer)
				must(t, c.MakeContainerPath(t.Context(), path))
			}
		},
		"behind another request": func(t *testing.T, c *framework.Client, network *testutil.ClientNet) {
			for _, path := range []string{"/a", "/b"} {
				hold := make(chan struct{})
				stop := network.Control(testutil.NewFault(testutil.Match{Op: testutil.OpGetData, Path: "/x"}, testutil.HoldReply(hold)).Control)
				go func() { _, _, _ = c.Get(t.Context(), "/x") }()
				time.Sleep(time.Millisecond)
				drop(network, path, testutil.OpCreateContainer)
				must(t, c.MakeContainerPath(t.Context(), path))
				close(hold)
				stop()
			}
		},
		"broken by the network": func(t *testing.T, c *framework.Client, network *testutil.ClientNet) {
			stop := network.Control(testutil.NewFault(testutil.Match{Op: testutil.OpCreateContainer, Times: 3}, testutil.Hold(nil)).Control)
			must(t, c.MakeContainerPath(t.Context(), "/a")) // the client gives the connections up
			stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				log, said := logged()
				c, network := connect(t, ens, log)
				happens(t, c, network)
				must(t, c.MakeContainerPath(t.Context(), "/last"))
				if gone := swept(t, ens, c, "/last"); len(gone) != 1 || said() != 0 {
					t.Errorf("gone %v, said %d times", gone, said())
				}
			})
		})
	}
}

// Two ends in a row make a doubt, on any server, and a third one in between
// that has to do with no container makes the first one not count. The doubt
// ends with the answer of a server.
func TestTwoEndsInARow(t *testing.T) {
	for _, between := range []bool{false, true} {
		inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
			log, said := logged()
			c, network := connect(t, ens, log, framework.WithRetry(retry.Never()))
			_, _, err := c.Exists(t.Context(), "/") // otherwise a sync comes before the second create
			must(t, err)
			ends := testutil.NewFault(testutil.Match{Op: testutil.OpCreateContainer, Path: "/a", Times: 2}, testutil.DropBefore())
			network.Control(ends.Control)
			network.Control(testutil.NewFault(testutil.Match{Op: testutil.OpGetData}, testutil.DropBefore()).Control)
			for range 2 {
				if err := c.MakeContainerPath(t.Context(), "/a"); err == nil {
					t.Error("no error")
				}
				must(t, c.WaitConnected(t.Context()))
				if between {
					_, _, _ = c.Get(t.Context(), "/")
					must(t, c.WaitConnected(t.Context()))
				}
			}
			time.Sleep(time.Second)
			doubts := 1
			if between {
				doubts = 0
			}
			if ends.Count() != 2 || said(saysDoubtful) != doubts || said(saysSome) != doubts || said() != 0 {
				t.Errorf("between %v: %d ends, said %d, %d and %d times", between, ends.Count(), said(saysDoubtful), said(saysSome), said())
			}
			must(t, c.MakeContainerPath(t.Context(), "/last"))
			if gone := swept(t, ens, c, "/last"); len(gone) != 1 {
				t.Errorf("between %v: no container", between)
			}
		})
	}
}

// Servers that refuse containers, by one of two codes. A path that is bad for
// any znode says nothing about containers.
func TestServersThatRefuseContainers(t *testing.T) {
	for _, code := range []testutil.Code{testutil.CodeUnimplemented, testutil.Code(wire.BadArguments)} {
		inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
			log, said := logged()
			c, network := connect(t, ens, log)
			both := func(r testutil.Request) testutil.Action {
				if r.Path == "/bad" {
					return testutil.Fail(testutil.Code(wire.BadArguments))
				}
				return testutil.Pass()
			}
			stop := network.Control(both)
			if err := c.MakeContainerPath(t.Context(), "/bad"); err == nil || said() != 0 {
				t.Errorf("error %v, said %d times", err, said())
			}
			stop()
			refused := testutil.NewFault(testutil.Match{Op: testutil.OpCreateContainer, Times: -1}, testutil.Fail(code))
			network.Control(refused.Control)
			must(t, c.MakeContainerPath(t.Context(), "/a/b"))
			must(t, c.MakeContainerPath(t.Context(), "/c"))
			if said() != 1 || refused.Count() > 2 {
				t.Errorf("%v: said %d times, refused %d times", code, said(), refused.Count())
			}
		})
	}
}
