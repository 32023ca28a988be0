package locks_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Bubbles check their goroutines. This checks those of the examples.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
