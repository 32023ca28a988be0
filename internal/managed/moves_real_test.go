package managed_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/nameserver"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// A client leaves a real member that is taken off its list, in the same
// session, and its lease stays. Requests go on meanwhile. Then the name server
// is silent, and the follower that the client is connected to stops: the
// session is resumed at an address that is remembered.
func TestAMoveOnRealServers(t *testing.T) {
	for name, byName := range map[string]bool{"by address": false, "by name": true} {
		t.Run(name, func(t *testing.T) {
			ens := apache.Start(t, 3)
			const T = 4 * time.Second
			var names nameserver.Server
			names.Is("zk.example.", "127.0.0.1")
			all := strings.Split(ens.Servers(), ",")
			opts := []framework.Option{framework.WithSessionTimeout(T)}
			if byName {
				opts = append(opts, framework.WithResolver(names.Resolver()))
				for i := range all {
					all[i] = strings.Replace(all[i], "127.0.0.1", "zk.example.", 1)
				}
			}
			c, err := framework.New(strings.Join(all, ","), opts...)
			must(t, err)
			t.Cleanup(func() { must(t, c.Close()) })
			must(t, c.WaitConnected(within(t, time.Minute)))
			s := session(t, c)
			_, err = c.Create(t.Context(), "/moved", nil, 0)
			must(t, err)
			lost := lossOf(t, s)
			awaitOther := func(left string) {
				t.Helper()
				began := time.Now()
				for c.Server() == left || c.Server() == "" {
					if _, err := c.Set(t.Context(), "/moved", nil, -1); err != nil {
						t.Errorf("%v; may have been applied: %t", err, framework.MaybeApplied(err))
					}
					if time.Since(began) > 30*time.Second {
						t.Fatalf("still at %s: %+v", left, c.Servers())
					}
				}
				t.Logf("from %s to %s after %v", left, c.Server(), time.Since(began))
			}
			isAt := func(left, server string) bool { return strings.HasPrefix(left, server) }
			for range 3 {
				left := c.Server()
				others := slices.DeleteFunc(slices.Clone(all), func(server string) bool { return isAt(left, server) })
				must(t, c.SetServers(t.Context(), strings.Join(others, ",")))
				awaitOther(left)
			}
			if byName {
				follower := (ens.Leader() + 1) % 3
				must(t, c.SetServers(t.Context(), all[follower]))
				await := func(is func(server string) bool) {
					t.Helper()
					for began := time.Now(); !is(c.Server()); time.Sleep(T / 100) {
						if time.Since(began) > 30*time.Second {
							t.Fatalf("at %q: %+v", c.Server(), c.Servers())
						}
					}
				}
				await(func(server string) bool { return isAt(server, all[follower]) })
				must(t, c.SetServers(t.Context(), strings.Join(all, ",")))
				names.Answer("", nameserver.Silence, 0)
				must(t, ens.Stop(follower))
				await(func(server string) bool { return server != "" && !isAt(server, all[follower]) })
			}
			if len(lost) > 0 || session(t, c).ID() != s.ID() {
				judge.Errorf(t, "the session was lost: %v", s.Err())
			}
		})
	}
}
