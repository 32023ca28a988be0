package semaphore

import (
	"fmt"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
)

// An Option configures a Semaphore: WithRecordedLimit, and of package recipes
// WithData, WithACL, WithMaxHold and WithAsyncRelease. A bad value is an error
// of New.
type Option = option.ForSemaphore

// WithRecordedLimit makes New's maxLeases count only where no limit is recorded
// at the path yet. Default: if another number is recorded, Acquire fails with
// ErrLimit.
// For New.
func WithRecordedLimit() Option { return setting(func(adopt *bool) { *adopt = true }) }

// setting is an option of New alone.
type setting = option.Semaphore[bool]

// split returns what is any line's, and whether the recorded limit is taken.
func split(opts []Option) (lineOpts []recipes.LineOption, adopt bool, err error) {
	for _, opt := range opts {
		switch opt := opt.(type) {
		case setting:
			opt(&adopt)
		case recipes.LineOption:
			lineOpts = append(lineOpts, opt)
		default:
			return nil, false, fmt.Errorf("option %T: unknown", opt)
		}
	}
	return lineOpts, adopt, nil
}
