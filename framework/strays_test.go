package framework_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The id of each create whose answer was lost was remembered for as long as the
// session, and had its own goroutine, sync and list. Two days later there were
// 300 of them in 300 maps, and a thousand creates under way at a disconnect
// made sixteen thousand requests.
func TestAStraySearchEndsAndIsShared(t *testing.T) {
	for _, test := range []struct {
		name        string
		directories int
		each        int
	}{{"many at a disconnect", 1, bubble.Few(200, 1000)}, {"many directories", bubble.Few(60, 300), 1}} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				ens.Latency(time.Millisecond)
				c, network := connect(t, ens, framework.WithBatching(false))
				s := session(t, c)
				for i := range test.directories {
					must(t, s.MakeContainerPath(t.Context(), fmt.Sprint("/lock", i)))
				}
				stop := network.Control(func(r testutil.Request) testutil.Action {
					if r.Op == testutil.OpCreate && strings.HasPrefix(r.Path, "/lock") {
						return testutil.Delay(time.Second) // until the connection is gone
					}
					return testutil.Pass()
				})
				var creating sync.WaitGroup
				for i := range test.directories {
					for range test.each {
						creating.Go(func() {
							if _, err := s.CreateProtected(t.Context(), fmt.Sprint("/lock", i), "lock-", nil, sequential); err != nil {
								t.Error(err)
							}
						})
					}
				}
				time.Sleep(100 * time.Millisecond)
				stop()
				network.Drop()
				creating.Wait()
				if ids, _ := framework.Strays(s); ids != test.directories*test.each {
					t.Errorf("%d strays are expected: the test shows nothing", ids)
				}
				ens.ResetRequests()
				time.Sleep(2 * time.Hour)
				if ids, directories := framework.Strays(s); ids != 0 || directories != 0 {
					t.Errorf("%d ids in %d directories are remembered", ids, directories)
				}
				if got := ens.Requests()[testutil.OpGetChildren2]; got > 24*test.directories {
					t.Errorf("%d lists for strays in %d directories", got, test.directories)
				}
				if s.Err() != nil {
					t.Error(s.Err())
				}
			})
		})
	}
}

// The looks for a stray that does not appear grow rarer. The first is at once,
// the second after a third of the session timeout, and each pause after that is
// twice as long.
func TestLooksForAStrayGrowRarer(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		s := session(t, c)
		must(t, s.MakeContainerPath(t.Context(), "/lock"))
		stop := network.Control(testutil.NewFault(testutil.Match{Op: testutil.OpCreate}, testutil.Delay(time.Second)).Control)
		made := make(chan error, 1)
		go func() {
			_, err := s.CreateProtected(t.Context(), "/lock", "lock-", nil, sequential)
			made <- err
		}()
		time.Sleep(100 * time.Millisecond)
		stop()
		network.Drop()
		must(t, <-made)
		if ids, _ := framework.Strays(s); ids != 1 {
			t.Fatalf("%d strays are expected", ids)
		}
		// The first look was at the drop. The create was made after a pause with
		// jitter, so only the times between looks are known.
		var looks []time.Time
		ens.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpGetChildren2 {
				looks = append(looks, time.Now())
			}
			return testutil.Pass()
		})
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(looks) != 8 {
			t.Fatalf("looks at %v, want 8", looks)
		}
		for i := range looks[1:] {
			pause, want := looks[i+1].Sub(looks[i]), timeout/3<<(i+1)
			if (pause - want).Abs() > 200*time.Millisecond {
				t.Errorf("%v between looks %d and %d, want %v", pause, i+2, i+3, want)
			}
		}
	})
}
