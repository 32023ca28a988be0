package framework_test

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

// logged returns a logger, and how often it was told that there are no
// containers.
func logged() (framework.Option, func() int) {
	logs, seen := observer.New(zap.InfoLevel)
	return framework.WithLogger(zap.New(logs)), func() int {
		synctest.Wait()
		return seen.Filter(func(e observer.LoggedEntry) bool { return strings.Contains(e.Message, "no container znodes") }).Len()
	}
}

// A server that does not know containers ends the connection. After the second
// one the client makes persistent znodes, says it once, and tries no more.
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
		if tries.Load() != 2 || said() != 1 {
			t.Errorf("%d tries, said %d times", tries.Load(), said())
		}
		must(t, c.Close())
	})
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

// Two ends in a row decide, on any server, and a third one in between that has
// to do with no container makes the first one not count.
func TestTwoEndsInARow(t *testing.T) {
	for _, between := range []bool{false, true} {
		inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
			log, said := logged()
			c, network := connect(t, ens, log, framework.WithRetry(retry.Never()))
			ends := testutil.NewFault(testutil.Match{Op: testutil.OpCreateContainer, Times: 2}, testutil.DropBefore())
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
			if ends.Count() != 2 || (said() == 1) == between {
				t.Errorf("between %v: %d ends, said %d times", between, ends.Count(), said())
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
