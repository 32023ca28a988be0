package clock

import (
	"testing"
	"time"
	"unsafe"
)

// A machine was suspended for a minute: its monotonic clock stood still, its
// wall clock did not. Another one had its wall clock set back.
func TestElapsedIsTheLargerOfBothClocks(t *testing.T) {
	from := time.Now()
	for _, tt := range []struct{ monotonic, wall, want time.Duration }{
		{time.Second, time.Second, time.Second},
		{time.Second, time.Minute, time.Minute},
		{time.Minute, -time.Hour, time.Minute},
	} {
		if got := Elapsed(from, shiftWall(from.Add(tt.monotonic), tt.wall-tt.monotonic)); got != tt.want {
			t.Errorf("monotonic %v, wall %v: got %v, want %v", tt.monotonic, tt.wall, got, tt.want)
		}
	}
}

// shiftWall moves only the wall clock's reading, by whole seconds. The package
// time has no function for that; the seconds begin at bit 30 of the first word.
func shiftWall(at time.Time, by time.Duration) time.Time {
	word := (*uint64)(unsafe.Pointer(&at))
	*word += uint64(by/time.Second) << 30
	return at
}
