package framework_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A hold begins shortly before the stop margin, when no server answers and others
// keep the session already. It is lost at the stop margin, and not at the next
// look at the clock that was planned without it.
func TestAHoldThatBeginsLateIsLostInTime(t *testing.T) {
	for name, kept := range map[string]bool{"kept": true, "idle": false} {
		t.Run(name, func(t *testing.T) {
			for i := range 12 {
				inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
					c, network := connect(t, ens)
					s := session(t, c)
					if kept {
						defer s.Keep()()
						time.Sleep(timeout + time.Duration(i)*100*time.Millisecond)
					}
					network.Cut()
					network.Drop()
					synctest.Wait()
					margin := s.Deadline().Add(-timeout / 10)
					time.Sleep(time.Until(margin) - time.Duration(i)*50*time.Millisecond - 20*time.Millisecond)
					told := make(chan time.Time, 1)
					release, err := s.Hold(func(error) { told <- time.Now() })
					must(t, err)
					defer release()
					if at := <-told; !near(at, margin) {
						t.Errorf("told %v after the stop margin, %v before the deadline", at.Sub(margin), s.Deadline().Sub(at))
					}
					network.Heal()
				})
			}
		})
	}
}

// Who holds something sends a heartbeat, which is two syncs, every T/6 in quiet
// times, also when answers take some time.
func TestSlowAnswersCostNoMoreHeartbeats(t *testing.T) {
	for _, latency := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond} {
		t.Run(latency.String(), func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				c, _ := connect(t, ens)
				ens.Latency(latency)
				s := session(t, c)
				release, err := s.Hold(nil)
				must(t, err)
				defer release()
				time.Sleep(2 * timeout)
				const times = 10
				if n := heartbeats(ens, times*timeout); n < 11*times || n > 12*times+2 {
					t.Errorf("%d syncs in %d session timeouts, want 12 in each", n, times)
				}
			})
		})
	}
}

// After a busy time, whose contacts are many, the heartbeats find their pace
// again: none feeds the next.
func TestABusyTimeCostsNoMoreHeartbeats(t *testing.T) {
	for name, opts := range map[string][]framework.Option{
		"default":       nil,
		"half a second": {framework.WithServerTick(timeout / 12)},
		"longest tick":  {framework.WithServerTick(timeout / 2)},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				c, _ := connect(t, ens, opts...)
				ens.Latency(5 * time.Millisecond)
				s := session(t, c)
				release, err := s.Hold(nil)
				must(t, err)
				defer release()
				for began := time.Now(); time.Since(began) < 2*timeout; time.Sleep(40 * time.Millisecond) {
					_, _, err := s.Exists(t.Context(), "/")
					must(t, err)
				}
				time.Sleep(2 * timeout)
				const times = 10
				n := heartbeats(ens, times*timeout)
				t.Logf("%d syncs in %d session timeouts", n, times)
				if n > 16*times {
					t.Errorf("%d syncs in %d session timeouts, want 12 in each, or a few more", n, times)
				}
			})
		})
	}
}
