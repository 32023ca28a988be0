package session

import (
	"testing"
	"time"
)

// A step of closing a session may take T/3, and 2s at most.
func TestCloseStepTimeout(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{3 * time.Second: time.Second, 6 * time.Second: 2 * time.Second, time.Minute: 2 * time.Second} {
		if got := opening(timeout).StepTimeout(); got != want {
			t.Errorf("T = %v: %v, want %v", timeout, got, want)
		}
	}
}
