package proof

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// An outage begins T/3 after the connection has ended, and not again where the
// next attempt fails.
func TestOnline(t *testing.T) {
	start := time.Now()
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	o := NewOnline(start)
	var got []string
	note := func(s float64) { got = append(got, fmt.Sprint(at(s).Sub(start)-o.For(at(s), 6*time.Second))) }
	note(5)
	o.Down(at(10))
	note(11)
	note(12)
	o.Down(at(12.5))
	note(13)
	o.Up(at(14), 6*time.Second)
	note(20)
	o.Up(at(20), 6*time.Second)
	o.Down(at(30))
	note(33)
	o.Up(at(34), 6*time.Second)
	note(40)
	if want := []string{"0s", "0s", "0s", "1s", "2s", "3s", "4s"}; !slices.Equal(got, want) {
		t.Errorf("outages %v, want %v", got, want)
	}
	o = Online{began: start.Add(-time.Minute), downSince: start.Add(-12 * time.Second), outages: 20 * time.Second}
	if d := o.For(start, 6*time.Second); d != 30*time.Second {
		t.Errorf("online for %v, want 30s", d)
	}
}
