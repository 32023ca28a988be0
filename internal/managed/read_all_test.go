package managed_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// library creates /lib with n books, and a secret one.
func library(t *testing.T, c *framework.Client, n int) (reads []request.Read) {
	t.Helper()
	_, err := c.Create(t.Context(), "/lib", nil, 0)
	must(t, err)
	for i := range n {
		path := fmt.Sprint("/lib/", i)
		_, err := c.Create(t.Context(), path, []byte(path), 0)
		must(t, err)
		reads = append(reads, request.Read{Path: path})
	}
	_, err = c.Create(t.Context(), "/lib/secret", nil, 0, zk.DigestACL(zk.PermAll, "owner", "secret")...)
	must(t, err)
	return append(reads, request.Read{Path: "/lib", Children: true}, request.Read{Path: "/lib/0", Children: true},
		request.Read{Path: "/lib/none"}, request.Read{Path: "/lib/none", Children: true}, request.Read{Path: "/lib/secret"})
}

// checkLibrary checks what reads of the library have found.
func checkLibrary(t *testing.T, reads []request.Read, found []request.Result, err error) {
	t.Helper()
	must(t, err)
	n := len(reads) - 5
	if len(found) != len(reads) {
		t.Fatalf("%d results of %d", len(found), len(reads))
	}
	for i, r := range found[:n] {
		if r.Err != nil || string(r.Data) != reads[i].Path || r.Stat == nil || int(r.Stat.DataLength) != len(r.Data) || r.Children != nil {
			t.Fatalf("%s: %+v", reads[i].Path, r)
		}
		if r.Zxid < r.Stat.Mzxid || r.Order == 0 {
			t.Fatalf("%s: transaction %d in an answer at %d, place %d", reads[i].Path, r.Stat.Mzxid, r.Zxid, r.Order)
		}
	}
	if list := found[n]; list.Err != nil || len(list.Children) != n+1 || list.Data != nil {
		t.Errorf("the list: %d names, %+v", len(list.Children), list)
	}
	if empty := found[n+1]; empty.Err != nil || len(empty.Children) != 0 {
		t.Errorf("the empty list: %+v", empty)
	}
	for i, want := range []error{zk.ErrNoNode, zk.ErrNoNode, zk.ErrNoAuth} {
		if r := found[n+2+i]; !errors.Is(r.Err, want) || r.Data != nil || r.Stat != nil || r.Children != nil {
			t.Errorf("%+v: %+v, want %v", reads[n+2+i], r, want)
		}
	}
	if got, want := found[n+2].Err.Error(), "get /lib/none: zk: node does not exist"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A user gets what the reads have found, in their order, without the places of
// the answers.
func TestReadAllOfAUser(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		reads := library(t, c, 3)
		want, err := insideOf(c).ReadAll(t.Context(), reads...)
		checkLibrary(t, reads, want, err)
		var asked []framework.Read
		for _, r := range reads {
			asked = append(asked, framework.Read(r))
		}
		for name, readAll := range map[string]func(context.Context, ...framework.Read) ([]framework.ReadResult, error){
			"client": c.ReadAll, "session": session(t, c).ReadAll,
		} {
			got, err := readAll(t.Context(), asked...)
			must(t, err)
			for i, r := range got {
				w := want[i]
				if !bytes.Equal(r.Data, w.Data) || !reflect.DeepEqual(r.Stat, w.Stat) || !slices.Equal(r.Children, w.Children) || fmt.Sprint(r.Err) != fmt.Sprint(w.Err) {
					t.Errorf("%s: %v: %+v, want %+v", name, asked[i], r, w)
				}
			}
			if len(got) != len(want) {
				t.Errorf("%s: %d results of %d", name, len(got), len(want))
			}
			if got, err := readAll(t.Context(), framework.Read{Path: "none"}); got != nil || err == nil {
				t.Errorf("%s: a bad path: %v, %v", name, got, err)
			}
		}
	})
}

// ReadAll costs a request for 256 reads, once it knows how small they are, and
// the question for the server's version once for each connection.
func TestReadAllCosts(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		reads := library(t, c, 1000)
		for i, most := range []int{10, 4, 12} { // the last time after a lost connection: four can be lost with it
			if i == 2 {
				network.Drop()
			}
			ens.ResetRequests()
			found, err := insideOf(c).ReadAll(t.Context(), reads...)
			checkLibrary(t, reads, found, err)
			asked := ens.Requests()
			delete(asked, testutil.OpPing)
			delete(asked, testutil.OpCreateSession)
			if n := asked[testutil.OpMultiRead]; n > most || len(asked) != 1 {
				t.Errorf("call %d: %v, want at most %d of multiRead", i, asked, most)
			}
		}
		for n, want := range map[int]int{256: 1, 257: 2} {
			ens.ResetRequests()
			_, err := insideOf(c).ReadAll(t.Context(), reads[:n]...)
			must(t, err)
			if got := ens.Requests()[testutil.OpMultiRead]; got != want {
				t.Errorf("%d reads: %d requests, want %d", n, got, want)
			}
		}
		if n := len(ens.Sessions()); n != 1 {
			t.Errorf("%d sessions", n)
		}
		if found, err := c.ReadAll(t.Context()); len(found) != 0 || err != nil {
			t.Errorf("no reads: %v, %v", found, err)
		}
		if _, err := c.ReadAll(t.Context(), framework.Read{Path: "/lib"}, framework.Read{Path: "lib"}); err == nil || errors.Is(err, zk.ErrNoNode) {
			t.Errorf("a path without a slash: %v", err)
		}
	})
}

// Servers before 3.6 refuse a multiRead and close the connection. They are
// never asked on the session's connection, so a lease under
// ErrorPolicyConnection lasts. It makes no difference whether they tell their
// version.
func TestReadAllAtOldServers(t *testing.T) {
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprintf("silent=%t", silent), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				ens := w.Embedded
				network := ens.ClientNet("reader")
				c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(timeout), framework.WithErrorPolicy(framework.ErrorPolicyConnection),
					framework.WithDialer(withoutWords(network.Dial, silent)))
				must(t, err)
				defer c.Close()
				must(t, c.WaitConnected(t.Context()))
				reads := library(t, c, 100)
				s := session(t, c)
				holdThroughout(t, s)
				for i := range 2 {
					questions := 0
					if silent && i == 0 {
						questions = 1
					}
					ens.ResetRequests()
					found, err := inside(s).ReadAll(t.Context(), reads...)
					checkLibrary(t, reads, found, err)
					asked := ens.Requests()
					if gets, lists := asked[testutil.OpGetData], asked[testutil.OpGetChildren]; gets != 102 || lists != 3 || asked[testutil.OpMultiRead] != questions {
						t.Errorf("asked: %v", asked)
					}
				}
				time.Sleep(time.Second)
				if n := len(ens.Sessions()); n != 1 {
					t.Errorf("%d sessions", n)
				}
			}, testutil.WithMembers(3), testutil.WithoutNewOperations())
		})
	}
}

// withoutWords refuses a connection that begins with the word srvr, if silent
// is true.
func withoutWords(dial func(network, address string, timeout time.Duration) (net.Conn, error), silent bool) func(network, address string, timeout time.Duration) (net.Conn, error) {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := dial(network, address, timeout)
		if err != nil || !silent {
			return conn, err
		}
		return &wordless{Conn: conn}, nil
	}
}

type wordless struct{ net.Conn }

func (c *wordless) Write(p []byte) (int, error) {
	if string(p) == "srvr" {
		_ = c.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

// A server that does not tell its version is asked in a session, which is
// closed.
func TestReadAllAsksInASession(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		network := ens.ClientNet("reader")
		c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(timeout), framework.WithDialer(withoutWords(network.Dial, true)))
		must(t, err)
		defer c.Close()
		must(t, c.WaitConnected(t.Context()))
		reads := library(t, c, 10)
		ens.ResetRequests()
		for range 2 {
			found, err := insideOf(c).ReadAll(t.Context(), reads...)
			checkLibrary(t, reads, found, err)
		}
		asked := ens.Requests()
		if asked[testutil.OpMultiRead] != 3 || asked[testutil.OpGetData] != 0 || asked[testutil.OpCloseSession] != 1 {
			t.Errorf("asked: %v", asked)
		}
		if n := len(ens.Sessions()); n != 1 {
			t.Errorf("%d sessions", n)
		}
	})
}

// While members are replaced by newer ones, each connection asks for itself.
func TestReadAllWhileServersAreUpgraded(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		ens := w.Embedded
		c, network := connect(t, ens)
		reads := library(t, c, 10)
		seen := map[bool]bool{}
		for range 12 {
			ens.ResetRequests()
			found, err := insideOf(c).ReadAll(t.Context(), reads...)
			checkLibrary(t, reads, found, err)
			old := memberOf(t, ens, session(t, c).ID()) == 0
			if asked := ens.Requests(); (asked[testutil.OpMultiRead] > 0) == old {
				t.Errorf("old %t: %v", old, asked)
			}
			seen[old] = true
			network.Drop()
			time.Sleep(2 * time.Second)
		}
		if len(seen) != 2 {
			t.Error("the client has met one kind of member only")
		}
	}, testutil.WithMembers(3), testutil.WithoutNewOperations(0))
}

// A server behind a proxy refuses what another one has. The client does not use
// it again, and reads one by one.
func TestReadAllIsRefused(t *testing.T) {
	for _, code := range []testutil.Code{testutil.CodeUnimplemented, -5} {
		inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
			c, _ := connect(t, ens)
			reads := library(t, c, 10)
			refused := testutil.NewFault(testutil.Match{Op: testutil.OpMultiRead, Times: -1}, testutil.Fail(code))
			defer ens.Control(refused.Control)()
			for range 2 {
				found, err := insideOf(c).ReadAll(t.Context(), reads...)
				checkLibrary(t, reads, found, err)
			}
			if refused.Count() != 1 {
				t.Errorf("%v: refused %d times", code, refused.Count())
			}
		})
	}
}

// A server that refuses one of several requests under way closes the connection
// of the others. The client never sends such a request again.
func TestReadAllIsRefusedBesideOthers(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		reads := library(t, c, 200)
		ens.Latency(time.Millisecond) // several are sent before the first is answered
		first := testutil.NewFault(testutil.Match{Op: testutil.OpMultiRead, Times: 1}, testutil.Fail(testutil.CodeUnimplemented))
		others := testutil.NewFault(testutil.Match{Op: testutil.OpMultiRead, Times: -1}, testutil.Delay(time.Second))
		defer ens.Control(func(r testutil.Request) testutil.Action {
			if first.Count() == 0 {
				return first.Control(r)
			}
			if r.Op == testutil.OpMultiRead {
				time.AfterFunc(10*time.Millisecond, network.Drop)
			}
			return others.Control(r)
		})()
		found, err := insideOf(c).ReadAll(t.Context(), reads...)
		checkLibrary(t, reads, found, err)
		if others.Count() == 0 {
			t.Error("no other was under way")
		}
		ens.ResetRequests()
		found, err = insideOf(c).ReadAll(t.Context(), reads...)
		checkLibrary(t, reads, found, err)
		if n := ens.Requests()[testutil.OpMultiRead]; n != 0 {
			t.Errorf("sent %d times again", n)
		}
	})
}

// A call that ends while it waits has no results, wherever it waits: for the
// server's version, or for an answer.
func TestReadAllEndsWithItsContext(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, _ := connect(t, w.Embedded)
		reads := library(t, c, 100)
		w.Latency(timeout / 20)
		for tenths := range time.Duration(10) {
			ctx, cancel := context.WithTimeout(t.Context(), tenths*timeout/40)
			found, err := insideOf(c).ReadAll(ctx, reads...)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) && err != nil || (err == nil) != (len(found) == len(reads)) {
				t.Errorf("after %v: %d results, %v", tenths*timeout/40, len(found), err)
			}
			for _, r := range found {
				if errors.Is(r.Err, context.DeadlineExceeded) {
					t.Fatalf("after %v: a read failed with %v", tenths*timeout/40, r.Err)
				}
			}
		}
	})
}

// Whatever happens to a request, the results are the same, in the same session.
func TestReadAllUnderFaults(t *testing.T) {
	for _, old := range []bool{false, true} {
		op, opts := testutil.OpMultiRead, []testutil.Option{testutil.WithMembers(3)}
		if old {
			op, opts = testutil.OpGetData, append(opts, testutil.WithoutNewOperations())
		}
		for name, action := range map[string]testutil.Action{
			"not executed": testutil.DropBefore(),
			"no answer":    testutil.DropAfter(),
			"throttled":    testutil.Fail(testutil.CodeThrottled),
			"moved":        testutil.Fail(testutil.CodeSessionMoved),
			"timed out":    testutil.Fail(testutil.CodeRequestTimeout),
			"late":         testutil.DelayReply(timeout / 2),
			"too late":     testutil.DelayReply(2 * timeout),
		} {
			for _, skip := range []int{0, 2} {
				t.Run(fmt.Sprintf("old=%t/%s/%d", old, name, skip), func(t *testing.T) {
					bubble.Run(t, func(t *testing.T, w *bubble.World) {
						c, _ := connect(t, w.Embedded)
						reads := library(t, c, 200)
						s := session(t, c)
						fault := testutil.NewFault(testutil.Match{Op: op, Skip: skip, Times: 2}, action)
						defer w.Control(fault.Control)()
						found, err := inside(s).ReadAll(t.Context(), reads...)
						checkLibrary(t, reads, found, err)
						if fault.Count() == 0 {
							t.Error("nothing was hit")
						}
					}, opts...)
				})
			}
		}
	}
}

// A read in a session ends with the session, and one of the client goes on in
// the next.
func TestReadAllWhenTheSessionExpires(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		reads := library(t, c, 50)
		s := session(t, c)
		release := make(chan struct{})
		held := testutil.NewFault(testutil.Match{Op: testutil.OpMultiRead, Times: 2}, testutil.HoldReply(release))
		defer ens.Control(held.Control)()
		inSession := make(chan error)
		go func() {
			_, err := inside(s).ReadAll(t.Context(), reads...)
			inSession <- err
		}()
		<-held.Hit()
		must(t, ens.ExpireSession(s.ID()))
		network.Drop()
		if err := <-inSession; !errors.Is(err, framework.ErrSessionLost) {
			t.Errorf("in the session: %v", err)
		}
		found, err := insideOf(c).ReadAll(t.Context(), reads...)
		checkLibrary(t, reads, found, err)
		if session(t, c).ID() == s.ID() {
			t.Error("the session has not expired")
		}
		close(release)
	})
}

// A call that its caller gives up returns at once, and one of a client that is
// closed as well. No goroutine is left: the end of the bubble shows it.
func TestReadAllEnds(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := start(t, ens)
		reads := library(t, c, 50)
		release := make(chan struct{})
		held := testutil.NewFault(testutil.Match{Op: testutil.OpMultiRead, Times: -1}, testutil.HoldReply(release))
		defer ens.Control(held.Control)()
		for _, end := range []struct {
			do   func(cancel func())
			want error
		}{
			{func(cancel func()) { cancel() }, context.Canceled},
			{func(func()) { must(t, c.Close()) }, framework.ErrClosed},
			{func(func()) {}, framework.ErrClosed},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() {
				_, err := insideOf(c).ReadAll(ctx, reads...)
				ended <- err
			}()
			time.Sleep(time.Second)
			go end.do(cancel)
			if err := <-ended; !errors.Is(err, end.want) {
				t.Errorf("%v, want %v", err, end.want)
			}
			cancel()
		}
		close(release)
	})
}

// Credentials go ahead of requests on each connection: a reconnect never makes
// a read fail with zk.ErrNoAuth.
func TestReadAllWithCredentials(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		ens.Latency(20 * time.Millisecond)
		c, network := connect(t, ens, framework.WithAuth("digest", []byte("other:one")), framework.WithAuth("digest", []byte("owner:secret")))
		_, err := c.Create(t.Context(), "/secret", []byte("data"), 0, zk.DigestACL(zk.PermAll, "owner", "secret")...)
		must(t, err)
		for range 20 {
			network.Drop()
			for range 10 {
				found, err := c.ReadAll(t.Context(), framework.Read{Path: "/secret"})
				must(t, err)
				must(t, found[0].Err)
			}
		}
	})
}

// The connect request names the latest transaction in an answer to ReadAll,
// which the wire client does not know. So a member that has not seen it does
// not serve the session, and no read goes back.
func TestNoReadGoesBackBehindReadAll(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		writer, _ := connect(t, ens)
		_, err := writer.Create(t.Context(), "/a", []byte("before"), 0)
		must(t, err)
		var named atomic.Int64
		network := ens.ClientNet("reader")
		c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(timeout), framework.WithDialer(func(n, address string, limit time.Duration) (net.Conn, error) {
			conn, err := network.Dial(n, address, limit)
			if err != nil {
				return nil, err
			}
			return &connectReader{Conn: conn, named: &named}, nil
		}))
		must(t, err)
		defer c.Close()
		must(t, c.WaitConnected(t.Context()))
		s := session(t, c)
		for range 10 {
			_, err := writer.Set(t.Context(), "/a", []byte("after"), -1)
			must(t, err)
			must(t, writer.Sync(t.Context(), "/"))
			at := memberOf(t, ens, s.ID())
			var lagging []int
			for member := range ens.Members() {
				if member != at && member != ens.Leader() {
					ens.Lag(member)
					lagging = append(lagging, member)
				}
			}
			stat, err := writer.Set(t.Context(), "/a", []byte("new"), -1)
			must(t, err)
			var found []request.Result
			for found == nil || found[0].Stat.Mzxid < stat.Mzxid {
				found, err = inside(s).ReadAll(t.Context(), request.Read{Path: "/a"})
				must(t, err)
				time.Sleep(10 * time.Millisecond)
			}
			network.Drop()
			again, _, err := s.Get(t.Context(), "/a")
			must(t, err)
			if zxid := found[0].Zxid; named.Load() < zxid || string(again) != "new" {
				t.Errorf("the connect request names %#x, the answer had %#x; read %q", named.Load(), zxid, again)
			}
			for _, member := range lagging {
				ens.Unlag(member)
			}
		}
	})
}

// connectReader reads the transaction that a connect request names.
type connectReader struct {
	net.Conn
	named *atomic.Int64
	later bool
}

func (c *connectReader) Write(p []byte) (int, error) {
	if !c.later && len(p) >= 16 {
		c.later = true
		c.named.Store(int64(binary.BigEndian.Uint64(p[8:])))
	}
	return c.Conn.Write(p)
}

// Large znodes behind small ones are read in full, with few at a time once it
// is known that they are large.
func TestReadAllOfLargeData(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		holdThroughout(t, session(t, c))
		var reads []framework.Read
		for i := range 60 {
			size := 100
			if i >= 40 {
				size = 1 << 19
			}
			path := fmt.Sprint("/", i)
			_, err := c.Create(t.Context(), path, make([]byte, size), 0)
			must(t, err)
			reads = append(reads, framework.Read{Path: path})
		}
		var largest atomic.Int64
		defer ens.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpMultiRead {
				largest.Store(max(largest.Load(), int64(len(r.Operations))))
			}
			return testutil.Pass()
		})()
		for _, begin := range []int{0, 40, 40} {
			largest.Store(0)
			found, err := c.ReadAll(t.Context(), reads[begin:]...)
			must(t, err)
			for i, r := range found {
				if small := i+begin < 40; r.Err != nil || small && len(r.Data) != 100 || !small && len(r.Data) != 1<<19 {
					t.Fatalf("%d: %d bytes, %v", i, len(r.Data), r.Err)
				}
			}
		}
		if n := largest.Load(); n != 1 {
			t.Errorf("%d reads in a request, although half a megabyte is known to come for each", n)
		}
	})
}

// Reads of many callers share what may be asked for at a time, and requests of
// the wire client go on beside them.
func TestReadAllOfManyCallers(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		reads := library(t, c, 100)
		var ended atomic.Int32
		for i := range 40 {
			go func() {
				for range 5 {
					found, err := insideOf(c).ReadAll(t.Context(), reads...)
					checkLibrary(t, reads, found, err)
					_, _, err = c.Get(t.Context(), reads[i].Path)
					must(t, err)
				}
				ended.Add(1)
			}()
		}
		for range 5 {
			time.Sleep(time.Millisecond)
			network.Drop()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := ended.Load(); n != 40 {
			t.Errorf("%d callers of 40 have ended", n)
		}
	})
}

// Observers are told of each request.
func TestReadAllIsObserved(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		var told []string
		c, _ := connect(t, ens, framework.WithObserver(framework.Observer{
			RequestEnd: func(_ context.Context, r framework.Request, result framework.RequestResult) {
				told = append(told, fmt.Sprint(r.Op, " ", r.Path, " ", r.Operations, " ", result.Code))
			},
		}))
		_, err := c.ReadAll(t.Context(), framework.Read{Path: "/"}, framework.Read{Path: "/none"})
		must(t, err)
		synctest.Wait()
		if want := []string{"read all / 2 OK"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}

// A missing chroot is named, once for all.
func TestReadAllNamesAMissingChroot(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, err := framework.New(ens.Servers()+"/app", framework.WithDialer(ens.Dial))
		must(t, err)
		defer c.Close()
		ens.ResetRequests()
		found, err := c.ReadAll(t.Context(), framework.Read{Path: "/a"}, framework.Read{Path: "/b", Children: true})
		must(t, err)
		for _, r := range found {
			if missing := (interface{ MissingChroot() string })(nil); !errors.As(r.Err, &missing) || !errors.Is(r.Err, zk.ErrNoNode) {
				t.Errorf("%v", r.Err)
			}
		}
		if n := ens.Requests()[testutil.OpExists]; n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
}

// A request whose answer is lost may have asked for more than the connection
// carries in time. What is sent again asks for half of that at once.
func TestReadAllAsksForLessAfterALostAnswer(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, net := connect(t, ens)
		_, err := c.Create(t.Context(), "/a", nil, 0)
		must(t, err)
		reads := make([]framework.Read, 32) // as many as one request has, before anything is known
		for i := range reads {
			reads[i].Path = "/a"
		}
		lost := testutil.NewFault(testutil.Match{Op: testutil.OpMultiRead}, testutil.DropBefore())
		defer net.Control(lost.Control)()
		ens.ResetRequests()
		_, err = c.ReadAll(t.Context(), reads...)
		must(t, err)
		if n := ens.Requests()[testutil.OpMultiRead]; lost.Count() != 1 || n != 2 {
			t.Errorf("%d requests after %d that were lost, want 2 after 1", n, lost.Count())
		}
	})
}
