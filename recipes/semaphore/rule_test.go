package semaphore

import (
	"errors"
	"testing"

	"github.com/go-zookeeper/zk"
)

func TestFits(t *testing.T) {
	tests := []struct {
		story          string
		n, held, limit int
		want           bool
	}{
		{"nobody holds", 1, 0, 1, true},
		{"the last permit", 1, 4, 5, true},
		{"no permit left", 1, 5, 5, false},
		{"all at once", 5, 0, 5, true},
		{"all at once, one is held", 5, 1, 5, false},
		{"several, exactly", 2, 3, 5, true},
		{"three, but two are free", 3, 3, 5, false},
		{"the limit was lowered below the number held", 1, 5, 3, false},
		{"the limit was lowered to the number held", 1, 3, 3, false},
	}
	for _, test := range tests {
		if got := fits(test.n, test.held, test.limit); got != test.want {
			t.Errorf("%s: %v", test.story, got)
		}
	}
}

func TestRecorded(t *testing.T) {
	tests := []struct {
		story string
		data  string
		err   error
		want  int
		fails error
	}{
		{"no path", "", zk.ErrNoNode, 3, nil},
		{"no data", "", nil, 3, nil},
		{"the same", "3", nil, 3, nil},
		{"another", "12", nil, 12, nil},
		{"an address, Curator's default data", "10.0.0.7", nil, 0, ErrLimit},
		{"zero", "0", nil, 0, ErrLimit},
		{"negative", "-1", nil, 0, ErrLimit},
		{"no access", "", zk.ErrNoAuth, 0, zk.ErrNoAuth},
	}
	s := &Semaphore{max: 3}
	for _, test := range tests {
		got, _, err := s.recorded([]byte(test.data), &zk.Stat{}, test.err)
		if got != test.want || !errors.Is(err, test.fails) || (err == nil) != (test.fails == nil) {
			t.Errorf("%s: got %d, %v; want %d, %v", test.story, got, err, test.want, test.fails)
		}
	}
}
