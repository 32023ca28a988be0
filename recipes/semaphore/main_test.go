package semaphore_test

import (
	"testing"

	"go.uber.org/goleak"
)

// The bubbles see to their own goroutines; this is for the examples.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
