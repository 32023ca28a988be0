package managed

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
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
		{Connecting, shut, Closed},
		{Connected, shut, Closed},
		{Suspended, shut, Closed},
		{Lost, shut, Closed},
		{Closed, connected, Closed},
		{Closed, disconnected, Closed},
		{Closed, lost, Closed},
		{Closed, shut, Closed},
	} {
		if got := next(tt.from, tt.h); got != tt.to {
			t.Errorf("next(%v, %d) = %v, want %v", tt.from, tt.h, got, tt.to)
		}
	}
}

// When the ensemble rejects the credentials, those who wait for a connection
// are told.
func TestRejected(t *testing.T) {
	s := idle(6 * time.Second)
	changed := s.core.changed
	client{s}.Rejected(zk.ErrAuthFailed)
	select {
	case <-changed:
	default:
		t.Error("nobody is told")
	}
	if !errors.Is(s.core.rejected, zk.ErrAuthFailed) {
		t.Errorf("rejected for %v", s.core.rejected)
	}
}
