package framework_test

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// hangingGuardian never returns from Over, nor from Close.
type hangingGuardian struct{ until chan struct{} }

func (g hangingGuardian) Guard(framework.DeadSession)      {}
func (g hangingGuardian) Over(framework.DeadSession, bool) { <-g.until }
func (g hangingGuardian) Lost() <-chan struct{}            { return nil }
func (g hangingGuardian) Err() error                       { return nil }
func (g hangingGuardian) Close() error                     { <-g.until; return nil }

// TestCloseWithGuardiansThatHang: Close takes 12s at most, as it says, whatever
// a guardian does and however long a session timeout is asked for.
func TestCloseWithGuardiansThatHang(t *testing.T) {
	for _, timeout := range []time.Duration{10 * time.Second, time.Minute, 4 * time.Minute} {
		for _, n := range []int{1, 2} {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				g := hangingGuardian{make(chan struct{})}
				opts := []framework.Option{framework.WithSessionTimeout(timeout)}
				for range n {
					opts = append(opts, framework.WithGuardian(g))
				}
				c := w.Connect("a", opts...)
				granted := w.Session(c).Timeout()
				began := time.Now()
				err := c.Close()
				t.Logf("asked for %v, granted %v, %d guardians: Close took %v, %v", timeout, granted, n, time.Since(began), err)
				if took := time.Since(began); took > 12*time.Second {
					t.Errorf("asked for %v, granted %v, %d guardians: Close took %v", timeout, granted, n, took)
				}
				close(g.until)
			})
		}
	}
}

// secondHangs is a guardian that hangs from its second Guard on.
type secondHangs struct {
	hangingGuardian
	calls *atomic.Int32
}

func (g secondHangs) Guard(framework.DeadSession) {
	if g.calls.Add(1) > 1 {
		<-g.until
	}
}

// TestAGuardianThatHangsCostsNoLease: the servers grant 40s at most, and answer
// the next connect within milliseconds. That proves the session, whatever the
// guardians do.
func TestAGuardianThatHangsCostsNoLease(t *testing.T) {
	for _, timeout := range []time.Duration{40 * time.Second, 4 * time.Minute} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			g := hangingGuardian{make(chan struct{})}
			c := w.Connect("a", framework.WithSessionTimeout(timeout), framework.WithGuardian(secondHangs{g, new(atomic.Int32)}))
			s := w.Session(c)
			var lost atomic.Pointer[error]
			if _, err := s.Hold(func(err error) { lost.Store(&err) }); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Minute)
			left := time.Until(s.Deadline())
			dropped := time.Now()
			w.ClientNet("a").Drop()
			for time.Since(dropped) < time.Minute && lost.Load() == nil {
				time.Sleep(100 * time.Millisecond)
			}
			if why := lost.Load(); why != nil {
				t.Errorf("asked for %v, granted %v, %v left: lost %v after the connection was dropped: %v", timeout, s.Timeout(), left, time.Since(dropped), *why)
			}
			close(g.until)
		})
	}
}

// TestMuteGuardiansFailNoConnect: a server answers the connect in time, and the
// time for that is not used up by guardians that hang then.
func TestMuteGuardiansFailNoConnect(t *testing.T) {
	for _, timeout := range []time.Duration{200 * time.Millisecond, time.Second, 10 * time.Second} {
		t.Run(timeout.String(), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				dial := w.ClientNet("a").Dial
				var dials atomic.Int32
				until := make(chan struct{})
				opts := []framework.Option{
					framework.WithSessionTimeout(timeout),
					framework.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
						dials.Add(1)
						return dial(network, address, limit)
					}),
				}
				for range 4 {
					opts = append(opts, framework.WithGuardian(mutes{hangingGuardian{until}}))
				}
				c := w.Connect("a", opts...)
				if got := w.Session(c).Timeout(); got != timeout {
					t.Fatalf("granted %v", got)
				}
				time.Sleep(timeout / 2)
				if n := dials.Load(); n != 1 {
					t.Errorf("%d connections", n)
				}
				close(until)
			}, testutil.WithSessionTimeouts(100*time.Millisecond, time.Minute))
		})
	}
}

// mutes is a guardian that hangs from its first Guard on.
type mutes struct{ hangingGuardian }

func (g mutes) Guard(framework.DeadSession) { <-g.until }
