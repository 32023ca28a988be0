package sim

import "testing"

// A session deletes the ready of a round that goes on. That is what remains
// only if its mark gave an earlier ready the version of that one.
func TestSweptLate(t *testing.T) {
	made := func(at int64) znode { return znode{zxid: at, czxid: at, by: 9, exists: true} }
	mark := func(at, of, by int64) znode { return znode{zxid: at, czxid: of, by: by, exists: true} }
	gone := func(at int64) znode { return znode{zxid: at, by: 9} }
	for name, tt := range map[string]struct {
		ready []znode
		want  bool
	}{
		"not marked":                      {[]znode{made(1), mark(2, 1, 5), gone(3), made(4)}, false},
		"has marked this one":             {[]znode{made(1), mark(2, 1, 5)}, false},
		"another one has marked this":     {[]znode{made(1), mark(2, 1, 6)}, false},
		"both have marked":                {[]znode{made(1), mark(2, 1, 5), mark(3, 1, 6), gone(4), made(5), mark(6, 5, 6)}, true},
		"both marks are of one session":   {[]znode{made(1), mark(2, 1, 5), gone(3), made(4), mark(5, 4, 5)}, true},
		"marked an earlier one otherwise": {[]znode{made(1), mark(2, 1, 6), mark(3, 1, 5), gone(4), made(5), mark(6, 5, 6)}, false},
	} {
		if got := sweptLate(tt.ready, 5); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
