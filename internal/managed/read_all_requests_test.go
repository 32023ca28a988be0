package managed_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// How many requests of one call are under way at a time: one for many, until
// enough is known of the answers.
func TestRequestsOfReadAllUnderWay(t *testing.T) {
	for _, tt := range []struct {
		known  int // reads that were answered before
		op     testutil.Op
		opts   []testutil.Option
		counts map[int]int
	}{
		{0, testutil.OpMultiRead, nil, map[int]int{1: 1, 32: 1, 33: 1, 200: 1}},
		{31, testutil.OpMultiRead, nil, map[int]int{200: 1}},
		{32, testutil.OpMultiRead, nil, map[int]int{1: 1, 2: 1, 61: 1, 62: 2, 122: 2, 123: 3, 183: 3, 184: 4, 400: 4}},
		{0, testutil.OpGetData, []testutil.Option{testutil.WithoutNewOperations()}, map[int]int{1: 1, 2: 2, 63: 63, 64: 64, 65: 64, 200: 64}},
	} {
		for n, want := range tt.counts {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, _ := connect(t, w.Embedded)
				if tt.known > 0 {
					_, err := c.ReadAll(t.Context(), slices.Repeat([]framework.Read{{Path: "/"}}, tt.known)...)
					must(t, err)
				}
				answer := make(chan struct{})
				underWay := testutil.NewFault(testutil.Match{Op: tt.op, Times: -1}, testutil.HoldReply(answer))
				defer w.Control(underWay.Control)()
				ended := make(chan error)
				go func() {
					found, err := c.ReadAll(t.Context(), make([]framework.Read, n)...)
					if err == nil {
						t.Errorf("%d reads of no path: %d results", n, len(found))
					}
					_, err = c.ReadAll(t.Context(), slices.Repeat([]framework.Read{{Path: "/"}}, n)...)
					ended <- err
				}()
				time.Sleep(time.Second)
				synctest.Wait()
				if got := underWay.Count(); got != want {
					t.Errorf("%v, %d known, %d reads: %d requests under way, want %d", tt.op, tt.known, n, got, want)
				}
				close(answer)
				must(t, <-ended)
			}, tt.opts...)
		}
	}
}

// All calls in a session share what may be asked for at a time.
func TestRequestsOfManyCallersUnderWay(t *testing.T) {
	for op, want := range map[testutil.Op]int{testutil.OpMultiRead: 4, testutil.OpGetData: 64} {
		var opts []testutil.Option
		if op == testutil.OpGetData {
			opts = append(opts, testutil.WithoutNewOperations())
		}
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			c, _ := connect(t, w.Embedded)
			reads := slices.Repeat([]framework.Read{{Path: "/"}}, 61) // a request, once 32 were answered
			_, err := c.ReadAll(t.Context(), reads[:32]...)
			must(t, err)
			answer := make(chan struct{})
			underWay := testutil.NewFault(testutil.Match{Op: op, Times: -1}, testutil.HoldReply(answer))
			defer w.Control(underWay.Control)()
			ended := make(chan error)
			const callers = 5
			for range callers {
				go func() {
					_, err := c.ReadAll(t.Context(), reads...)
					ended <- err
				}()
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if got := underWay.Count(); got != want {
				t.Errorf("%v: %d requests under way, want %d", op, got, want)
			}
			close(answer)
			for range callers {
				must(t, <-ended)
			}
		}, opts...)
	}
}

// Without reads there are no results, and no request.
func TestReadAllOfNothing(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		ens.ResetRequests()
		found, err := c.ReadAll(t.Context())
		if err != nil || len(found) != 0 || len(ens.Requests()) != 0 {
			t.Errorf("%v, %v, requests %v", found, err, ens.Requests())
		}
		must(t, c.Close())
		_, err = c.ReadAll(t.Context())
		if want := "read all /: client closed"; !errors.Is(err, framework.ErrClosed) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	})
}

// A request is as large as the ensemble accepts, and not larger.
func TestReadAllKeepsToTheLargestRequest(t *testing.T) {
	const most, head, ofRead, reads = 16 << 10, 8 + 9, 9 + 4 + 1, 10
	for _, more := range []int{0, 1} {
		inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
			network := ens.ClientNet("measured")
			var longest atomic.Int64
			c, _ := connect(t, ens, framework.WithMaxRequest(most), framework.WithDialer(func(kind, address string, limit time.Duration) (net.Conn, error) {
				conn, err := network.Dial(kind, address, limit)
				return measured{conn, &longest}, err
			}))
			var all []framework.Read
			left := most - head + more
			for i := range reads {
				size := left / (reads - i)
				left -= size
				all = append(all, framework.Read{Path: "/" + strings.Repeat(fmt.Sprint(i), size-ofRead-1)})
			}
			ens.ResetRequests()
			found, err := c.ReadAll(t.Context(), all...)
			must(t, err)
			for i, r := range found {
				if !errors.Is(r.Err, zk.ErrNoNode) {
					t.Errorf("read %d: %.100v", i, r.Err)
				}
			}
			if got := ens.Requests()[testutil.OpMultiRead]; got != 1+more || more == 0 && longest.Load() != 4+most {
				t.Errorf("%d bytes: %d requests, the longest has %d bytes", most+more, got, longest.Load())
			}
			_, err = c.ReadAll(t.Context(), framework.Read{Path: "/" + strings.Repeat("a", most-head-ofRead-1+more)})
			if errors.Is(err, framework.ErrTooLarge) != (more > 0) {
				t.Errorf("a single read of %d bytes: %.200v", most+more, err)
			}
		})
	}
}

// After a reconnect a read waits until all credentials were presented. If the
// caller leaves meanwhile, it is never sent. If the connection ends, it is sent
// on the next one.
func TestReadAllWaitsForCredentials(t *testing.T) {
	for _, leaves := range []bool{true, false} {
		inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
			c, network := connect(t, ens, framework.WithAuth("digest", []byte("a:1")), framework.WithAuth("digest", []byte("b:2")))
			must(t, c.Sync(t.Context(), "/"))
			answer := make(chan struct{})
			first := testutil.NewFault(testutil.Match{Op: testutil.OpAuth, Times: 1}, testutil.HoldReply(answer))
			defer ens.Control(first.Control)()
			network.Drop()
			time.Sleep(time.Second)
			ens.ResetRequests()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				_, err := c.ReadAll(ctx, framework.Read{Path: "/"})
				ended <- err
			}()
			time.Sleep(500 * time.Millisecond)
			if n := ens.Requests()[testutil.OpMultiRead]; n != 0 || len(ended) != 0 || first.Count() != 1 {
				t.Fatalf("%d requests before the second credentials; %d credentials are held up", n, first.Count())
			}
			want := 1
			if leaves {
				want = 0
				cancel()
			} else {
				network.Drop()
			}
			time.Sleep(time.Second)
			close(answer)
			select {
			case err := <-ended:
				if errors.Is(err, context.Canceled) != leaves || !leaves && err != nil {
					t.Errorf("leaves %v: %v", leaves, err)
				}
			default:
				t.Errorf("leaves %v: it has not ended", leaves)
			}
			time.Sleep(time.Second)
			if n := ens.Requests()[testutil.OpMultiRead]; n != want {
				t.Errorf("leaves %v: %d requests, want %d", leaves, n, want)
			}
		})
	}
}
