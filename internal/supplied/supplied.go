// Package supplied calls what a user has supplied: a listener, a filter, a
// decoder, a health check, a logger, an observer. Such a function may block for
// as long as it likes, panic, or end its goroutine.
//
// Callers can rely on this: no function here lets a panic through, and all but
// Call and Queue.Call leave the function to another goroutine.
//
// supplied.go calls a function once, and get.go waits for what it returns.
// listener.go passes values to one function; queue.go makes many calls, in
// order. policy.go is a retry policy. logger.go is a logger behind such a
// queue, and slog.go makes a logger of one of log/slog's.
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
