package serverlist

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// each calls f with every number from 0 to n-1, and adds up what it returns:
// the expectation of a draw.
func each(n int, f func(drawn int) map[string]float64) map[string]float64 {
	sum := map[string]float64{}
	for drawn := range n {
		for a, p := range f(drawn) {
			sum[a] += p / float64(n)
		}
	}
	return sum
}

// expected returns how many of the clients of present are expected at each
// address after the list has changed. The order of the list is random, so
// clients that move are shared out evenly among those that come first.
func expected(present string, old, now []string) map[string]float64 {
	draws := 1
	spread(present, old, now, func(n int) int { draws = n; return 0 })
	return each(draws, func(drawn int) map[string]float64 {
		to := spread(present, old, now, func(int) int { return drawn })
		if to == nil {
			return map[string]float64{present: 1}
		}
		first, _ := split(to, func(a string) bool { return slices.Contains(old, a) == slices.Contains(old, to[0]) })
		share := map[string]float64{}
		for _, a := range first {
			share[a] = 1 / float64(len(first))
		}
		return share
	})
}

// Clients that were evenly spread over a list are evenly spread over every
// other list, and none moves that need not.
func TestClientsAreEvenlySpread(t *testing.T) {
	for size := range 6 {
		for both := range size + 2 {
			for added := range 6 {
				old, now := addresses(0, size+1), slices.Concat(addresses(0, both), addresses(size+1, size+1+added))
				if len(now) == 0 {
					continue
				}
				t.Run(fmt.Sprintf("%d to %d with %d in both", len(old), len(now), both), func(t *testing.T) {
					load := map[string]float64{}
					for _, present := range old {
						for a, n := range expected(present, old, now) {
							load[a] += n
						}
					}
					stays := 0.0
					for _, present := range old {
						if at := expected(present, old, now)[present]; slices.Contains(now, present) {
							stays += at
						}
					}
					for _, a := range now {
						if want := float64(len(old)) / float64(len(now)); math.Abs(load[a]-want) > 1e-9 {
							t.Errorf("clients by address: %v, want %v at each", load, want)
						}
					}
					most := float64(both) * min(1, float64(len(old))/float64(len(now)))
					if math.Abs(stays-most) > 1e-9 {
						t.Errorf("%v of %d stay, and %v could", stays, both, most)
					}
				})
			}
		}
	}
}

func addresses(from, to int) (all []string) {
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprintf("10.0.0.%d:2181", i))
	}
	return all
}

// Where a client goes, by the draw.
func TestSpread(t *testing.T) {
	for _, tt := range []struct {
		name     string
		present  string
		old, now []string
		drawn    int
		want     string
	}{
		{"nothing is known", "a:1", []string{"a:1"}, nil, 0, "[]"},
		{"the same list", "a:1", []string{"a:1", "b:1"}, []string{"b:1", "a:1"}, 0, "[]"},
		{"another order and form", "[::1]:1", []string{"[::1]:1"}, []string{"[0:0::1]:1"}, 0, "[]"},
		{"other ports are others", "a:1", []string{"a:1"}, []string{"a:2"}, 0, "[a:2]"},
		{"it grows, and the client stays", "a:1", []string{"a:1", "b:1"}, []string{"a:1", "b:1", "c:1"}, 1, "[]"},
		{"it grows, and the client moves", "a:1", []string{"a:1", "b:1"}, []string{"a:1", "b:1", "c:1"}, 2, "[c:1]"},
		{"it grows, and the server is gone", "a:1", []string{"a:1", "b:1"}, []string{"b:1", "c:1", "d:1"}, 0, "[c:1 d:1 b:1]"},
		{"it shrinks, and the client stays", "a:1", []string{"a:1", "b:1"}, []string{"a:1"}, 0, "[]"},
		{"it shrinks, and the server is gone", "a:1", []string{"a:1", "b:1"}, []string{"b:1"}, 0, "[b:1]"},
		{"it is replaced", "a:1", []string{"a:1", "b:1"}, []string{"c:1", "d:1"}, 0, "[c:1 d:1]"},
		{"one is replaced", "a:1", []string{"a:1", "b:1"}, []string{"b:1", "c:1"}, 0, "[c:1 b:1]"},
		{"the server was in neither", "x:1", []string{"a:1"}, []string{"a:1"}, 0, "[a:1]"},
	} {
		if got := fmt.Sprint(spread(tt.present, tt.old, tt.now, func(int) int { return tt.drawn })); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestSameAddress(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{"zk1:2181", "zk1:2181", true},
		{"zk1:2181", "zk1:2182", false},
		{"10.0.0.1:2181", "[::ffff:10.0.0.1]:2181", true},
		{"[fd00::1]:2181", "[FD00:0::1]:2181", true},
		{"[fe80::1%eth0]:2181", "[fe80::1%eth1]:2181", false},
		{"zk1:2181", "10.0.0.1:2181", false},
	} {
		if isSame(tt.a, tt.b) != tt.same || isSame(tt.b, tt.a) != tt.same {
			t.Errorf("%s and %s: same %t", tt.a, tt.b, !tt.same)
		}
	}
}

// A client that has not moved yet to where it had to still has to, when the
// same list comes again.
func TestWhatIsDueStaysDue(t *testing.T) {
	all := addresses(1, 4)
	for _, due := range all {
		r := &List{names: all}
		if got := r.spreadLocked(Server{Name: all[0], Address: all[0]}, all, []string{due}); !slices.Equal(got, []string{due}) {
			t.Errorf("%v, want %s", got, due)
		}
	}
}
