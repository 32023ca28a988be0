package framework

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"

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
		leaveAll, ok := w.enter(t.Context(), 100*mostAsked, over)
		if !ok {
			t.Fatal("one does not get in")
		}
		var in atomic.Int32
		leaves := make(chan func(), 200)
		for range 100 {
			go func() {
				leave, ok := w.enter(t.Context(), mostAsked/4, over)
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
		s, on := standing()
		on.Conn = &recorder{}
		close(on.presented)
		body := &wire.PathRequest{Path: "/a"}
		sent := 0
		for range 3 {
			on.sendBehind(wire.OpSync, body)
			go func() { _, _ = on.ask(context.Background(), wire.OpSync, body) }()
			synctest.Wait()
			if !on.sendTogether(wire.OpSync, []wire.Appender{body, body}, make([]<-chan reply, 2)) {
				t.Error("not sent")
			}
			if sent += 4; len(on.asked.waiting) != sent || s.ownRequests.Load() != uint64(sent) {
				t.Errorf("%d numbers for %d requests", len(on.asked.waiting), sent)
			}
		}
		s.end(ErrSessionLost)
		synctest.Wait()
	})
}
