// Package supplied calls functions that a user has supplied: a listener, a
// filter, a decoder, a health check. Such a function may block for as long as
// it likes, panic, or end its goroutine.
package supplied

import (
	"errors"
	"fmt"

	"go.uber.org/zap"
)

// errExited is the error of a function that has not returned.
var errExited = errors.New("it has ended its goroutine")

// Call calls fn on this goroutine. It recovers from a panic of fn, logs it, and
// returns it as an error.
func Call(log *zap.Logger, fn func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("a user-supplied function panicked", zap.Any("panic", p), zap.Stack("stack"))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	fn()
	return nil
}

// Go calls fn on a goroutine of its own, and returns a channel that gets its
// error, once. It is an error if fn panics, which is also logged, and if it
// ends the goroutine. What fn has written can be read after that.
func Go(log *zap.Logger, fn func() error) <-chan error {
	result := make(chan error, 1)
	go func() {
		err := errExited
		defer func() { result <- err }()
		var returned error
		if err = Call(log, func() { returned = fn() }); err == nil {
			err = returned
		}
	}()
	return result
}
