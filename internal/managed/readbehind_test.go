package managed_test

import (
	"context"
	"encoding/binary"
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
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// batch joins lines 1 to n in one request: others are under way until then. It
// returns the results, and the requests without those of the others, and
// without searches for strays.
func (l *lines) batch(n int) (results []*joined, behind []testutil.Request) {
	l.Helper()
	wait := l.occupy()
	l.take()
	var dirs []string
	for i := 1; i <= n; i++ {
		dirs = append(dirs, line(i))
	}
	results, waitAll := l.join(l.Context(), dirs...)
	waitAll()
	wait()
	for _, r := range l.take() {
		searched := r.Op == testutil.OpSync || r.Op == testutil.OpGetChildren2 && r.Xid > -1000
		if r.Path != line(0) && !searched {
			behind = append(behind, r)
		}
	}
	return results, behind
}

// rights checks that each create has its own list, and the czxid of its
// directory.
func (l *lines) rights(results []*joined) {
	l.Helper()
	for _, r := range results {
		if r.err != nil {
			l.Error(r.err)
			continue
		}
		l.stands(r)
		_, stat, err := l.c.Get(l.Context(), r.Path[:strings.LastIndexByte(r.Path, '/')])
		must(l.T, err)
		if r.Stat == nil || r.Stat.Czxid != stat.Czxid {
			l.Errorf("%s: the directory is of %#x, the answer says %+v", r.Path, stat.Czxid, r.Stat)
		}
	}
}

// The lists behind a batch are one request. In it each directory is read before
// it is listed: a token of a later directory's czxid and an older number would
// be above all valid ones.
func TestTheListsBehindABatchAreOneRequest(t *testing.T) {
	const n = 20
	inLines(t, n+1, func(t *testing.T, l *lines) {
		l.knowsMultiRead()
		for range 3 {
			results, requests := l.batch(n)
			l.rights(results)
			if len(requests) != 2 || requests[0].Op != testutil.OpMulti || requests[1].Op != testutil.OpMultiRead || requests[1].Xid > -1000 {
				t.Fatalf("requests %v, want a multi and a multiRead of ours", requests)
			}
			listed := map[string]bool{}
			for pair := range slices.Chunk(requests[1].Operations, 2) {
				if pair[0].Op != testutil.OpGetData || pair[1].Op != testutil.OpGetChildren || pair[0].Path != pair[1].Path {
					t.Errorf("reads %v, want a read and then a list", pair)
				}
				listed[pair[1].Path] = true
			}
			if len(listed) != n {
				t.Errorf("%d directories are listed", len(listed))
			}
			for _, r := range results {
				if r.took > 2*rtt {
					t.Errorf("%s took %v, want two round trips at most", r.Path, r.took)
				}
			}
			l.leave(paths(results)...)
		}
	})
}

// A server before 3.6 has no such request, and one that is not known to have it
// is asked: the batch does not wait for the answer.
func TestTheListsBehindABatchWithoutMultiRead(t *testing.T) {
	const n = 8
	for name, tt := range map[string]struct {
		of    []testutil.Option
		known bool
		then  int // multiReads behind the second batch
	}{
		"old":     {of: []testutil.Option{testutil.WithoutNewOperations()}, known: true},
		"unknown": {then: 1},
		"neither": {of: []testutil.Option{testutil.WithoutNewOperations()}},
	} {
		t.Run(name, func(t *testing.T) {
			inLinesOf(t, tt.of, n+1, func(t *testing.T, l *lines) {
				if tt.known {
					l.knowsMultiRead()
				}
				for round, shared := range []int{0, tt.then} {
					results, requests := l.batch(n)
					l.rights(results)
					if want := 1 + shared + n*(1-shared); len(requests) != want {
						t.Errorf("batch %d: requests %v, want %d", round, requests, want)
					}
					for _, r := range results {
						if r.took > 2*rtt {
							t.Errorf("batch %d: %s took %v, want two round trips at most", round, r.Path, r.took)
						}
					}
					time.Sleep(time.Second)
				}
			})
		})
	}
}

// A server behind a proxy refuses the multiRead, and closes the connection. The
// creates are there, and the client does not send it again.
func TestARefusedReadBehindABatch(t *testing.T) {
	const n = 8
	inLines(t, n+1, func(t *testing.T, l *lines) {
		l.knowsMultiRead()
		refused := testutil.NewFault(testutil.Match{Op: testutil.OpMultiRead, Times: -1}, testutil.Fail(testutil.CodeUnimplemented))
		defer l.ens.Control(refused.Control)()
		for range 3 {
			results, _ := l.batch(n)
			for _, r := range results {
				must(t, r.err)
				if !l.ens.Exists(r.Path) {
					t.Errorf("%s is not there", r.Path)
				}
			}
			must(t, l.c.WaitConnected(t.Context()))
			l.leave(paths(results)...)
			for i := range n {
				if left := l.below(i + 1); len(left) > 0 {
					t.Errorf("left in line %d: %v", i+1, left)
				}
			}
		}
		if refused.Count() != 1 {
			t.Errorf("refused %d times", refused.Count())
		}
	})
}

// A real server before 3.6 refuses the multiRead before it answers the batch,
// and closes the connection: nobody waits for the answer to the reads then. The
// client does not send it again.
func TestAReadBehindABatchIsRefusedEarly(t *testing.T) {
	const n = 8
	var refused atomic.Int32
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		dial := ens.ClientNet("behind a proxy").Dial
		c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(timeout), framework.WithDialer(
			func(network, address string, timeout time.Duration) (net.Conn, error) {
				conn, err := dial(network, address, timeout)
				if err != nil {
					return nil, err
				}
				return &oldServer{Conn: conn, refused: &refused}, nil
			}))
		must(t, err)
		defer c.Close()
		must(t, c.WaitConnected(t.Context()))
		l := &lines{T: t, ens: ens, c: c, sess: session(t, c)}
		for i := range n + 1 {
			must(t, l.sess.MakePersistentPath(t.Context(), line(i)))
		}
		ens.Latency(rtt / 2)
		for range 6 { // the server of each connection is asked during one of them
			results, _ := l.batch(n)
			for i, r := range results {
				must(t, r.err)
				if got := l.below(i + 1); !slices.Equal(got, []string{r.Path}) {
					t.Errorf("made %s, there is %v", r.Path, got)
				}
			}
			l.leave(paths(results)...)
			time.Sleep(time.Second)
		}
		if n := refused.Load(); n != 1 {
			t.Errorf("refused %d times", n)
		}
	})
}

// oldServer is a connection to a server that does not know multiRead. The
// version is another one's.
type oldServer struct {
	net.Conn
	refused *atomic.Int32
	answer  atomic.Pointer[[]byte]
}

func (c *oldServer) Write(p []byte) (int, error) {
	for rest := p; len(rest) >= 12; {
		size := 4 + int(binary.BigEndian.Uint32(rest))
		if size > len(rest) { // the word srvr
			break
		}
		if wire.Op(binary.BigEndian.Uint32(rest[8:])) == wire.OpMultiRead {
			c.refused.Add(1)
			xid := int32(binary.BigEndian.Uint32(rest[4:]))
			answer := wire.AppendFrame(nil, &wire.ReplyHeader{Xid: xid, Zxid: -1, Err: wire.Unimplemented})
			_, _ = c.Conn.Write(p[:len(p)-len(rest)])
			c.answer.Store(&answer)
			_ = c.Conn.Close()
			return len(p), nil
		}
		rest = rest[size:]
	}
	return c.Conn.Write(p)
}

func (c *oldServer) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if answer := c.answer.Swap(nil); err != nil && answer != nil {
		return copy(p, *answer), nil
	}
	return n, err
}

// The session may not list one of the directories. The create in it has
// succeeded, and the others have their lists.
func TestAListOfABatchThatIsRefused(t *testing.T) {
	const n = 5
	inLines(t, n+1, func(t *testing.T, l *lines) {
		l.knowsMultiRead()
		for i := range n {
			const writes = zk.PermCreate | zk.PermDelete
			_, err := l.c.Create(t.Context(), line(1+i)+"/writes", nil, zk.FlagPersistent)
			must(t, err)
			if i == 2 {
				_, err := l.c.SetACL(t.Context(), line(1+i), zk.WorldACL(writes), -1)
				must(t, err)
			}
		}
		l.take()
		results, requests := l.batch(n)
		if len(requests) != 2 {
			t.Errorf("requests %v", requests)
		}
		for i, r := range results {
			must(t, r.err)
			if i == 2 && (r.Children != nil || r.Stat != nil || !l.ens.Exists(r.Path)) {
				t.Errorf("a list that is refused: %+v", r.Created)
			}
		}
		l.rights(slices.Delete(results, 2, 3))
	})
}

// A create in the middle of a batch is refused. What was read behind that batch
// counts for nobody: the others are sent again, and each has a list of its own.
func TestTheReadBehindARefusedBatchIsVoid(t *testing.T) {
	const n = 5
	inLines(t, n+1, func(t *testing.T, l *lines) {
		l.knowsMultiRead()
		defer l.ens.Control(func(r testutil.Request) testutil.Action {
			i := slices.IndexFunc(r.Operations, func(op testutil.Operation) bool { return strings.HasPrefix(op.Path, line(3)+"/") })
			if r.Op != testutil.OpMulti || i < 0 {
				return testutil.Pass()
			}
			return testutil.FailOperation(i, testutil.CodeNoAuth)
		})()
		results, requests := l.batch(n)
		if err := results[2].err; !errors.Is(err, zk.ErrNoAuth) {
			t.Errorf("the create that was refused: %v", err)
		}
		l.rights(slices.Delete(results, 2, 3))
		counted := map[testutil.Op]int{}
		for _, r := range requests {
			counted[r.Op]++
		}
		if counted[testutil.OpMulti] != 1 || counted[testutil.OpMultiRead] != 1 || counted[testutil.OpCreate] != n-1 || counted[testutil.OpGetChildren2] != n-1 {
			t.Errorf("requests %v", requests)
		}
		if left := l.below(3); len(left) > 0 {
			t.Errorf("left in line: %v", left)
		}
	})
}

// The answer to a batch is lost, the batch, or only what was read behind it. In
// the last case the creates have succeeded, nothing is searched, and these
// directories are listed by themselves the next time: the answer may have been
// too large.
func TestTheReadBehindABatchIsLost(t *testing.T) {
	const n = 5
	for name, tt := range map[string]struct {
		op    testutil.Op
		lose  func(l *lines) testutil.Action
		after int // requests of the next batch
	}{
		"the batch":               {testutil.OpMulti, func(*lines) testutil.Action { return testutil.DropBefore() }, 2},
		"the answer to the batch": {testutil.OpMulti, func(*lines) testutil.Action { return testutil.DropAfter() }, 2},
		"the answer to the read": {testutil.OpMultiRead, func(l *lines) testutil.Action {
			time.AfterFunc(5*rtt, func() { must(l.T, l.ens.DropConnections(l.sess.ID())) }) // the batch is answered by then
			return testutil.HoldReply(nil)
		}, 1 + n},
	} {
		t.Run(name, func(t *testing.T) {
			inLines(t, n+1, func(t *testing.T, l *lines) {
				l.knowsMultiRead()
				var met atomic.Bool
				stop := l.ens.Control(func(r testutil.Request) testutil.Action {
					if r.Op == tt.op && met.CompareAndSwap(false, true) {
						return tt.lose(l)
					}
					return testutil.Pass()
				})
				results, requests := l.batch(n)
				stop()
				read := tt.op == testutil.OpMultiRead
				for i, r := range results {
					must(t, r.err)
					if got := l.below(i + 1); !slices.Equal(got, []string{r.Path}) {
						t.Errorf("made %s, there is %v", r.Path, got)
					}
					if read != (r.Children == nil) || read != (r.Stat == nil) {
						t.Errorf("%s: list %v", r.Path, r.Children)
					}
				}
				if read && len(requests) != 2 {
					t.Errorf("requests %v", requests)
				}
				must(t, l.c.WaitConnected(t.Context()))
				l.leave(paths(results)...)
				l.knowsMultiRead()
				for _, want := range []int{tt.after, 2} {
					results, requests := l.batch(n)
					if len(requests) != want {
						t.Errorf("requests %v, want %d", requests, want)
					}
					l.rights(results)
					l.leave(paths(results)...)
				}
			})
		})
	}
}

// A large directory is listed by itself, and shares the request again when it
// is small.
func TestALargeDirectoryIsListedByItself(t *testing.T) {
	const n, large = 5, 3
	inLines(t, n+1, func(t *testing.T, l *lines) {
		l.knowsMultiRead()
		l.ens.Latency(0)
		var many []string
		for i := range 1000 {
			made, err := l.c.Create(t.Context(), fmt.Sprintf("%s/an-unrelated-%03d", line(large), i), nil, zk.FlagPersistent)
			must(t, err)
			many = append(many, made)
		}
		l.ens.Latency(rtt / 2)
		for round, want := range []int{2, 3, 3} {
			results, requests := l.batch(n)
			l.rights(results)
			if len(requests) != want || want == 3 && !slices.ContainsFunc(requests, func(r testutil.Request) bool {
				return r.Op == testutil.OpGetChildren2 && r.Path == line(large)
			}) {
				t.Errorf("batch %d: requests %v", round, requests)
			}
			l.leave(paths(results)...)
		}
		l.ens.Latency(0)
		for _, path := range many {
			must(t, l.c.Delete(t.Context(), path, -1))
		}
		l.ens.Latency(rtt / 2)
		for _, want := range []int{3, 2} {
			results, requests := l.batch(n)
			l.rights(results)
			if len(requests) != want {
				t.Errorf("requests %v, want %d", requests, want)
			}
			l.leave(paths(results)...)
		}
	})
}

// A directory is removed and made again between the create and what is read
// behind it: the list does not show the znode, and says nothing.
func TestADirectoryThatIsMadeAgainBehindABatch(t *testing.T) {
	const n, again = 5, 3
	inLines(t, n+1, func(t *testing.T, l *lines) {
		l.knowsMultiRead()
		other, _ := connect(t, l.ens)
		release := make(chan struct{})
		var held atomic.Bool
		defer l.ens.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpMultiRead && held.CompareAndSwap(false, true) {
				return testutil.Hold(release)
			}
			return testutil.Pass()
		})()
		go func() {
			for len(l.below(again)) == 0 || !held.Load() {
				time.Sleep(rtt / 10)
			}
			must(t, other.Delete(t.Context(), l.below(again)[0], -1))
			must(t, other.Delete(t.Context(), line(again), -1))
			_, err := other.Create(t.Context(), line(again), nil, zk.FlagPersistent)
			must(t, err)
			_, err = other.Create(t.Context(), line(again)+"/of-another-lock-0000000000", nil, zk.FlagPersistent)
			must(t, err)
			close(release)
		}()
		results, _ := l.batch(n)
		r := results[again-1]
		must(t, r.err)
		if r.Children != nil || r.Stat != nil || r.Path == "" {
			t.Errorf("in the directory that was made again: %+v", r.Created)
		}
		l.rights(slices.Delete(results, again-1, again))
	})
}

// Callers that give up while the batch, or what was read behind it, is under
// way leave no znode behind, and take nothing from the others.
func TestCallersOfABatchGiveUp(t *testing.T) {
	const n = 6
	for _, op := range []testutil.Op{testutil.OpMulti, testutil.OpMultiRead} {
		t.Run(op.String(), func(t *testing.T) {
			inLines(t, n+1, func(t *testing.T, l *lines) {
				l.knowsMultiRead()
				release := make(chan struct{})
				defer once(l.ens, op, testutil.HoldReply(release))()
				wait := l.occupy()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				gone, waitGone := l.join(ctx, line(1), line(3), line(5)) // the first waits for the reads
				stay, waitStay := l.join(t.Context(), line(2), line(4), line(6))
				wait()
				time.Sleep(2 * rtt)
				cancel()
				synctest.Wait()
				for _, r := range gone {
					if !errors.Is(r.err, context.Canceled) {
						t.Errorf("returned %+v", r)
					}
				}
				close(release)
				waitGone()
				waitStay()
				l.rights(stay)
				l.leave(paths(stay)...)
				time.Sleep(time.Second)
				for i := range n {
					if left := l.below(i + 1); len(left) > 0 {
						t.Errorf("left in line %d: %v", i+1, left)
					}
				}
			})
		})
	}
}
