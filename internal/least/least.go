// Package least checks durations that a user sets. WithAge(7) compiles, and is
// seven nanoseconds.
package least

import (
	"fmt"
	"time"
)

// HealthCheck is the least interval of health checks.
const HealthCheck = 10 * time.Millisecond

// Duration returns an error if d is less than least. what names the setting.
func Duration(what string, d, least time.Duration) error {
	if d >= least {
		return nil
	}
	return fmt.Errorf("%s %v: must be at least %v; a number without a unit counts nanoseconds", what, d, least)
}

// OrZero is Duration for a setting that 0 turns off, or leaves at its default.
func OrZero(what string, d, least time.Duration) error {
	if d == 0 || d >= least {
		return nil
	}
	return fmt.Errorf("%s %v: must be 0, or at least %v; a number without a unit counts nanoseconds", what, d, least)
}
