package semaphore

import (
	"errors"
	"strconv"
	"testing"

	"github.com/go-zookeeper/zk"
)

// FuzzRecorded: any data of the path is read as a valid limit or as ErrLimit,
// and what SetMax writes is read as the same limit.
func FuzzRecorded(f *testing.F) {
	for _, data := range []string{"", "1", "0", "-1", "9223372036854775808", "5\n", " 5", "+5", "0x5", "5.0", "__REVOKE__", "\x00\x00\x00\x05", "\u0665"} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &Semaphore{max: 7}
		n, stat, err := s.recorded(data, &zk.Stat{DataLength: int32(len(data))}, nil)
		switch {
		case err != nil && !errors.Is(err, ErrLimit), err != nil && (n != 0 || stat != nil):
			t.Errorf("%q: %d, %v, %v", data, n, stat, err)
		case err == nil && n < 1, len(data) == 0 && n != s.max:
			t.Errorf("%q was read as limit %d", data, n)
		}
		if err == nil {
			again, _, err := s.recorded([]byte(strconv.Itoa(n)), stat, nil)
			if err != nil || again != n {
				t.Errorf("limit %d was read as %d, %v", n, again, err)
			}
		}
	})
}
