package random_test

import (
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/random"
)

// Each create of a contender has its own id, and the prefix is added once. A
// known failure elsewhere: CURATOR-489.
func TestNewIDsAreCuratorsAndDiffer(t *testing.T) {
	const form = "xxxxxxxx-xxxx-4xxx-yxxx-xxxxxxxxxxxx" // x: any digit, y: 8 to b
	ids := make(map[string]bool)
	digits := make([]map[byte]bool, len(form))
	same := make(map[[2]int]int) // how often two digits are the same
	for range 1000 {
		id := random.ID()
		if len(id) != len(form) || ids[id] {
			t.Fatalf("id %q is no fresh random UUID", id)
		}
		ids[id] = true
		for i := range form {
			if digits[i] == nil {
				digits[i] = make(map[byte]bool)
			}
			digits[i][id[i]] = true
			for j := range i {
				if id[i] == id[j] {
					same[[2]int{j, i}]++
				}
			}
		}
	}
	for i, c := range digits {
		n, all := 1, string(form[i])
		switch form[i] {
		case 'x':
			n, all = 16, "0123456789abcdef"
		case 'y':
			n, all = 4, "89ab"
		}
		for digit := range c {
			if len(c) != n || !strings.ContainsRune(all, rune(digit)) {
				t.Fatalf("digit %d: %d of them, such as %q; want all of %q", i, len(c), digit, all)
			}
		}
		for j := range i {
			if n > 1 && form[j] != '-' && form[j] != '4' && same[[2]int{j, i}] > 500 {
				t.Errorf("digits %d and %d are the same", j, i)
			}
		}
	}
}

// About is 3/4 to 5/4, and exactly d without randomness.
func TestAbout(t *testing.T) {
	const d = time.Second
	least, most := time.Hour, time.Duration(0)
	for range 1000 {
		got := random.About(d)
		least, most = min(least, got), max(most, got)
	}
	if least < d*3/4 || least > d*4/5 || most >= d*5/4 || most < d*6/5 {
		t.Errorf("from %v to %v", least, most)
	}
	defer random.None()()
	if got := random.About(d); got != d {
		t.Errorf("without randomness: %v", got)
	}
}
