package link

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/zkrecipes/zkrecipes/internal/test/script"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// The numbers of our requests are never those of the wire client or of the
// protocol, and none comes twice before all were used.
func TestOwnNumbers(t *testing.T) {
	for _, n := range []uint64{0, 1, 2, 1 << 20, 1<<31 - 1002, 1<<31 - 1001, 1 << 31, 1 << 40, math.MaxUint64} {
		if xid := ownXid(n); !isOwnXid(xid) || xid >= 0 || xid > -1000 {
			t.Errorf("request %d has the number %d", n, xid)
		}
	}
	if ownXid(0) != -1000 || ownXid(1) != -1001 || ownXid(1<<31-1000) != math.MinInt32 || ownXid(1<<31-999) != -1000 {
		t.Errorf("%d, %d, %d, %d", ownXid(0), ownXid(1), ownXid(1<<31-1000), ownXid(1<<31-999))
	}
	for _, xid := range []int32{0, 1, math.MaxInt32, wire.XidNotification, wire.XidPing, wire.XidAuth, wire.XidSetWatches, -16, -999} {
		if isOwnXid(xid) {
			t.Errorf("%d is taken for ours", xid)
		}
	}
}

// The window lets in what fits, in order, and at least one, however large.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, over := newWindow(), make(chan struct{})
		leaveAll, ok := w.enter(t.Context(), 100*MostAsked, over)
		if !ok {
			t.Fatal("one does not get in")
		}
		var in atomic.Int32
		leaves := make(chan func(), 200)
		for range 100 {
			go func() {
				leave, ok := w.enter(t.Context(), MostAsked/4, over)
				if ok {
					in.Add(1)
					leaves <- leave
				}
			}()
			synctest.Wait()
		}
		if in.Load() != 0 {
			t.Errorf("%d got in beside the large one", in.Load())
		}
		leaveAll()
		synctest.Wait()
		if in.Load() != 4 {
			t.Errorf("%d got in, want 4", in.Load())
		}
		for range 10 {
			(<-leaves)()
			synctest.Wait()
		}
		if in.Load() != 14 {
			t.Errorf("%d got in, want 14", in.Load())
		}
		close(over)
		synctest.Wait()
		if in.Load() != 14 {
			t.Errorf("%d got in after the end", in.Load()-14)
		}
		for range 4 {
			(<-leaves)()
		}
		if len(w.places) != 0 || len(w.gate) != 0 {
			t.Errorf("%d places are taken for good", len(w.places))
		}
	})
}

// No two requests of a session have one number, in whatever way they are sent.
func TestNumbersOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, on := standing()
		on.Conn = &script.Recorder{}
		close(on.presented)
		body := &wire.PathRequest{Path: "/a"}
		sent := 0
		for range 3 {
			on.SendBehind(wire.OpSync, body)
			go func() { _, _ = on.ask(context.Background(), wire.OpSync, body) }()
			synctest.Wait()
			if !on.sendTogether(wire.OpSync, []wire.Appender{body, body}, make([]<-chan Reply, 2)) {
				t.Error("not sent")
			}
			if sent += 4; len(on.asked.waiting) != sent || c.ownRequests.Load() != uint64(sent) {
				t.Errorf("%d numbers for %d requests", len(on.asked.waiting), sent)
			}
		}
		s.end()
		synctest.Wait()
	})
}

// What was not let in has taken no place, wherever it waited.
func TestAWaitForTheWindowEnds(t *testing.T) {
	for _, before := range []int{MostAsked - OnePlace, MostAsked} { // one place is free, or none
		for _, end := range []string{"the context", "the session", "the context, at the gate", "the session, at the gate"} {
			synctest.Test(t, func(t *testing.T) {
				w, over := newWindow(), make(chan struct{})
				leave, ok := w.enter(t.Context(), before, over)
				if !ok {
					t.Fatal("the first does not get in")
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if strings.Contains(end, "gate") {
					go func() {
						if leave, ok := w.enter(t.Context(), 2*OnePlace, make(chan struct{})); ok {
							leave()
						}
					}()
					synctest.Wait()
				}
				var entered, ended bool
				go func() {
					_, entered = w.enter(ctx, 2*OnePlace, over)
					ended = true
				}()
				synctest.Wait()
				if ended {
					t.Fatal("it does not wait")
				}
				if strings.HasPrefix(end, "the context") {
					cancel()
				} else {
					close(over)
				}
				synctest.Wait()
				if !ended || entered {
					t.Errorf("%s: ended %v, entered %v", end, ended, entered)
				}
				leave()
				synctest.Wait()
				if len(w.places) != 0 || len(w.gate) != 0 {
					t.Errorf("%s: %d places and %d gates are taken for good", end, len(w.places), len(w.gate))
				}
			})
		}
	}
	// Each takes one place for 4 kB, and one at least.
	for size, places := range map[int]int{0: 1, 1: 1, OnePlace: 1, 2*OnePlace - 1: 1, 2 * OnePlace: 2, MostAsked: 64, 2 * MostAsked: 64} {
		w := newWindow()
		leave, ok := w.enter(t.Context(), size, nil)
		if !ok || len(w.places) != places || cap(w.places) != 64 {
			t.Fatalf("%d bytes take %d places of %d, want %d", size, len(w.places), cap(w.places), places)
		}
		leave()
		if len(w.places) != 0 {
			t.Errorf("%d places are taken for good", len(w.places))
		}
	}
}

// An answer goes to the request with its number, once. After the end there is
// none, and nobody waits for one.
func TestAnswersOfOurs(t *testing.T) {
	a := &asked{waiting: make(map[int32]chan Reply), ended: make(chan struct{})}
	first, second := a.add(-1000), a.add(-1001)
	a.deliver(-1001, Reply{Zxid: 2})
	a.deliver(-1001, Reply{Zxid: 3}) // nobody waits for it, and it does not block
	a.deliver(-5000, Reply{Zxid: 4})
	if r := <-second; r.Zxid != 2 || len(second) != 0 || len(first) != 0 {
		t.Errorf("the second has %+v and %d more, the first %d", r, len(second), len(first))
	}
	a.end()
	a.end()
	a.deliver(-1000, Reply{Zxid: 5}) // too late
	select {
	case <-a.ended:
	default:
		t.Error("it has not ended")
	}
	if _, ok := <-first; ok {
		t.Error("a request has an answer that did not come")
	}
	if a.add(-1002) != nil {
		t.Error("a request waits after the end")
	}
}

// Requests in one piece have their place in the window until all are answered.
func TestRequestsInOnePieceTakePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, on := standing()
		close(on.presented)
		on.Conn = &script.Recorder{}
		bodies := slices.Repeat([]wire.Appender{&wire.PathRequest{Path: "/a"}}, 3)
		go c.AskTogether(on, wire.OpSync, bodies, func(int, Reply, error) {
			if n := len(c.window.places); n != len(bodies) {
				t.Errorf("%d places at the end of one", n)
			}
		})
		synctest.Wait()
		if n := len(c.window.places); n != len(bodies) {
			t.Errorf("%d places", n)
		}
		on.End()
		synctest.Wait()
		if n := len(c.window.places); n != 0 {
			t.Errorf("%d places are taken for good", n)
		}
	})
}
