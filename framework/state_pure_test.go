package framework

import (
	"testing"
)

// The state matches the connection. The next session ends the state LOST, and
// no late event brings it back. A known failure elsewhere: CURATOR-525.
func TestNextState(t *testing.T) {
	for _, tt := range []struct {
		from State
		h    stateEvent
		to   State
	}{
		{Connecting, connected, Connected},
		{Connecting, disconnected, Connecting},
		{Connecting, lost, Connecting}, // it was never usable: no news
		{Connected, connected, Connected},
		{Connected, disconnected, Suspended},
		{Connected, lost, Lost}, // a member answers, but proof of the leader stalls
		{Suspended, connected, Connected},
		{Suspended, disconnected, Suspended},
		{Suspended, lost, Lost},
		{Lost, connected, Connected},
		{Lost, disconnected, Lost},
		{Lost, lost, Lost},
		{Connecting, closed, Closed},
		{Connected, closed, Closed},
		{Suspended, closed, Closed},
		{Lost, closed, Closed},
		{Closed, connected, Closed},
		{Closed, disconnected, Closed},
		{Closed, lost, Closed},
		{Closed, closed, Closed},
	} {
		if got := next(tt.from, tt.h); got != tt.to {
			t.Errorf("next(%v, %d) = %v, want %v", tt.from, tt.h, got, tt.to)
		}
	}
}
