package bubble

import (
	"os"
	"testing"
)

// Draw returns how much a test tries of what is random, or of a search that is
// long: a part, or the whole where ZKR_WHOLE is set, as in make processors.
func Draw[N any](part, whole N) N {
	if os.Getenv("ZKR_WHOLE") != "" {
		return whole
	}
	return part
}

// Few returns how much a test does of what is much alike for the race detector,
// such as seeds, phases, or a long time: few with -short, as in make race, or
// all, as in make test. The detector needs each kind of interleaving, not each
// case.
func Few[N any](few, all N) N {
	if testing.Short() {
		return few
	}
	return all
}

// FewOf returns one of every rows of a table with -short, as in make race, the
// first one included, or all of them.
func FewOf[R any](every int, rows []R) []R {
	var few []R
	for i := 0; i < len(rows); i += Few(every, 1) {
		few = append(few, rows[i])
	}
	return few
}

// Whole skips a test of processes whose times a busy machine changes, unless
// ZKR_WHOLE is set.
func Whole(t *testing.T) {
	t.Helper()
	if os.Getenv("ZKR_WHOLE") == "" {
		t.Skip("kills and stops processes, and measures: ZKR_WHOLE=1, as in make processors")
	}
}
