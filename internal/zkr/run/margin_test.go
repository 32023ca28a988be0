package run

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// heldFor returns a lease that a client with zkr's options has held for some
// time. Before the grant it was idle, so that pings alone were sent, as in a
// long wait in line. extra shifts the grant between two pings.
func heldFor(t *testing.T, w *bubble.World, command *lockCommand, onLeader bool, extra, held time.Duration) (*framework.Client, *recipes.Lease) {
	t.Helper()
	timeout := command.to.SessionTimeout
	var c *framework.Client
	for c == nil || (w.MemberOf(w.SessionID(c)) == w.Leader()) != onLeader {
		if c != nil {
			c.Close() // on a member of the other kind
		}
		c = w.ConnectNext(framework.WithSessionTimeout(timeout), framework.WithStopMargin(command.stopMargin()))
	}
	m, err := locks.NewMutex(c, "/l")
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2*timeout + extra)
	lease := bubble.Acquire(t, t.Context(), m)
	time.Sleep(held)
	return c, lease
}

// TestMemberHangsOrEnds: with zkr's defaults a lease outlasts the freeze of the
// follower that it is connected to, and the death of any member, whenever it
// comes. It outlasts the freeze of a leader that is replaced soon, once it was
// held for a while. In virtual time.
func TestMemberHangsOrEnds(t *testing.T) {
	const stepsOfT = 24
	for _, test := range []struct {
		story    string
		onLeader bool
		dies     bool
		held     int // T
		flags    []string
		opts     []testutil.Option
	}{
		{"a follower hangs soon after the grant", false, false, 0, nil, nil},
		{"a follower hangs", false, false, 3, nil, nil},
		{"a follower hangs, short sessions", false, false, 0, []string{"--session-timeout", "4s"}, nil},
		{"a follower ends", false, true, 0, nil, nil},
		{"a leader ends", true, true, 0, nil, nil},
		{"a leader hangs", true, false, 3, nil, []testutil.Option{testutil.WithTick(500 * time.Millisecond), testutil.WithSyncLimit(2)}},
	} {
		t.Run(test.story, func(t *testing.T) {
			for step := range time.Duration(2 * stepsOfT) {
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					w.Latency(time.Millisecond)
					command := parsed(t, test.flags...)
					timeout := command.to.SessionTimeout
					held := time.Duration(test.held)*timeout + step/2*timeout/stepsOfT
					c, lease := heldFor(t, w, command, test.onLeader, step%2*timeout/7, held)
					begin, end := w.Pause, w.Resume
					if test.dies {
						begin, end = w.Stop, w.Restart
					}
					member := w.MemberOf(w.SessionID(c))
					if err := begin(member); err != nil {
						t.Fatal(err)
					}
					time.Sleep(2 * timeout)
					if !lease.Held() {
						t.Errorf("%v after the grant: %v", held, lease.Err())
						return
					}
					if err := end(member); err != nil {
						t.Fatal(err)
					}
					bubble.Release(t, lease)
				}, append(test.opts, testutil.WithMembers(3))...)
			}
		})
	}
}

// TestHelpSaysWhenTheLeaseRunsOut: the figures of the help, from the last
// answer to SIGTERM. In virtual time.
func TestHelpSaysWhenTheLeaseRunsOut(t *testing.T) {
	for name, test := range map[string]struct {
		held        int // T
		least, most time.Duration
	}{
		"soon after the grant": {0, 2100 * time.Millisecond, 5500 * time.Millisecond},
		"later":                {3, 3700 * time.Millisecond, 5500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			for step := range time.Duration(48) {
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					w.Latency(time.Millisecond)
					command := parsed(t)
					timeout := command.to.SessionTimeout
					held := time.Duration(test.held)*timeout + step*timeout/72
					_, lease := heldFor(t, w, command, false, step%6*timeout/18, held)
					for member := range w.Members() {
						if err := w.Pause(member); err != nil {
							t.Fatal(err)
						}
					}
					began := time.Now()
					if took := bubble.Lost(t, lease).Sub(began); took < test.least || took > test.most {
						t.Errorf("%v after the grant: SIGTERM %v after the ensemble was frozen", held, took)
					}
					for member := range w.Members() {
						if err := w.Resume(member); err != nil {
							t.Fatal(err)
						}
					}
					synctest.Wait()
				}, testutil.WithMembers(3))
			}
		})
	}
	if text := newLock(&cli.Ensemble{}).Long; !strings.Contains(text, "SIGTERM comes 3.7s to 5.5s after") || !strings.Contains(text, "2.1s at the earliest") {
		t.Errorf("the help says %s", text)
	}
}
