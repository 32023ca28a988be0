//go:build !unix

package measure_test

import "time"

// processorTime is not known on this system.
func processorTime() time.Duration { return 0 }
