package managed_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/testutil"
)

// A hold begins shortly before the stop margin, when no server answers and
// others keep the session already. It is lost at the stop margin, and not at
// the next look at the clock that was planned without it.
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

// A hold that another one releases, as it is told of its loss, is not told.
func TestAReleasedHoldIsNotTold(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		var release [3]func()
		var told []int
		for i := range release {
			var err error
			release[i], err = s.Hold(func(error) {
				if told = append(told, i); i == 0 {
					release[1]()
				}
			})
			must(t, err)
		}
		must(t, ens.ExpireSession(s.ID()))
		<-s.Done()
		synctest.Wait()
		if want := []int{0, 2}; !slices.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}
