package recheck_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recheck"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Each of the five events ends a wait, and says which it was.
func TestWhichEventEndsAWait(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		sess := (*managed.Session)(w.Session(w.ConnectNext()))
		for i := range 5 {
			events := make([]<-chan struct{}, 5)
			for j := range events {
				event := make(chan struct{})
				if events[j] = event; j == i {
					time.AfterFunc(time.Second, func() { close(event) })
				}
			}
			began := time.Now()
			which, err := recheck.WaitWhich(t.Context(), sess, func() (bool, error) { return false, nil }, events...)
			if which != i || err != nil || time.Since(began) != time.Second {
				t.Errorf("event %d: %d, %v, after %v", i, which, err, time.Since(began))
			}
		}
		for want, look := range map[error]func() (bool, error){nil: func() (bool, error) { return true, nil }, zk.ErrNoAuth: func() (bool, error) { return false, zk.ErrNoAuth }} {
			if which, err := recheck.WaitWhich(t.Context(), sess, look); which != -1 || !errors.Is(err, want) {
				t.Errorf("a look: %d, %v", which, err)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if which, err := recheck.WaitWhich(ended, sess, nil); which != -1 || !errors.Is(err, context.Canceled) {
			t.Errorf("after the end of its context: %d, %v", which, err)
		}
	})
}

// The next look comes after 3/4 to 5/4 of a session timeout.
func TestInterval(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		sess := (*managed.Session)(w.Session(w.ConnectNext()))
		least, most := time.Hour, time.Duration(0)
		for range 500 {
			d := recheck.Interval(sess)
			least, most = min(least, d), max(most, d)
		}
		t0 := bubble.Timeout
		if least < t0*3/4 || least > t0*4/5 || most >= t0*5/4 || most < t0*6/5 {
			t.Errorf("from %v to %v, of a session timeout of %v", least, most, t0)
		}
	})
}

// What counts as gone, and what nobody knows.
func TestGone(t *testing.T) {
	for name, tt := range map[string]struct {
		path   string
		op     testutil.Op
		action testutil.Action
		want   bool
	}{
		"it is there":         {"/a", testutil.OpSync, testutil.Pass(), false},
		"it is not":           {"/none", testutil.OpSync, testutil.Pass(), true},
		"it may not be read":  {"/a", testutil.OpExists, testutil.Fail(testutil.CodeNoAuth), true},
		"the read fails":      {"/none", testutil.OpExists, testutil.Fail(-8), false},
		"the leader does not": {"/none", testutil.OpSync, testutil.Fail(-8), false},
	} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			c := w.ConnectNext()
			sess := (*managed.Session)(w.Session(c))
			if _, err := sess.Create(t.Context(), "/a", nil, 0); err != nil {
				t.Fatal(err)
			}
			fault := testutil.NewFault(testutil.Match{Op: tt.op}, tt.action)
			defer w.Control(fault.Control)()
			if got := recheck.Gone(t.Context(), sess, tt.path); got != tt.want || fault.Count() != 1 {
				t.Errorf("%s: %t, after %d requests", name, got, fault.Count())
			}
		})
	}
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, network := w.Connect("a"), w.ClientNet("a")
		sess := (*managed.Session)(w.Session(c))
		network.Cut()
		network.Drop()
		time.Sleep(time.Second)
		w.ResetRequests()
		if recheck.Gone(t.Context(), sess, "/none") {
			t.Error("gone, without a connection")
		}
		network.Heal()
	})
}

// A waiter that had no connection at two looks in a row waits for one, and not
// for longer than its context lasts.
func TestPatience(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, network := w.Connect("a"), w.ClientNet("a")
		sess := (*managed.Session)(w.Session(c))
		var p recheck.Patience
		look := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return p.Look(ctx, sess, "/")
		}
		for i, step := range []struct{ cut, fails bool }{{false, false}, {true, false}, {true, true}, {false, false}, {true, false}, {false, false}, {true, false}} {
			if step.cut {
				network.Cut()
				network.Drop()
			} else {
				network.Heal()
				if err := c.WaitConnected(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(100 * time.Millisecond)
			began := time.Now()
			err := look()
			if (err != nil) != step.fails || step.fails && time.Since(began) != time.Second || !step.fails && time.Since(began) >= time.Second {
				t.Errorf("look %d: %v after %v", i, err, time.Since(began))
			}
		}
		network.Heal()
	})
}
