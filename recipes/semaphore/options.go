package semaphore

import (
	"fmt"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// An Option configures a Semaphore: WithRecordedLimit, and of package recipes
// WithData, WithACL, WithMaxHold and WithAsyncRelease. A bad value is an error
// of New.
type Option interface{ ForSemaphore() }

// WithRecordedLimit makes New's maxLeases count only where no limit is recorded
// at the path yet. Default: if another number is recorded, Acquire fails with
// ErrLimit.
// For New.
func WithRecordedLimit() Option { return recordedLimit{} }

type recordedLimit struct{}

func (recordedLimit) ForSemaphore() {}

// split returns what is any line's, and whether the recorded limit is taken.
func split(opts []Option) (lineOpts []recipes.LineOption, adopt bool, err error) {
	for _, opt := range opts {
		switch opt := opt.(type) {
		case recordedLimit:
			adopt = true
		case recipes.LineOption:
			lineOpts = append(lineOpts, opt)
		default:
			return nil, false, fmt.Errorf("option %T: unknown", opt)
		}
	}
	return lineOpts, adopt, nil
}
