package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
)

// AWhile is how long zkr waits before it says on stderr that it waits, or that
// it is not connected. Only tests change it.
var AWhile = time.Second

// LookTimeout limits a look after a wait that has failed: it must not keep the
// caller waiting.
const LookTimeout = 2 * time.Second

// SayDisconnects prints to errs when the client has had no connection for a
// while, and when it has one again, until stop is called. What happens in the
// meantime is not seen: what says what that means.
func SayDisconnects(c *framework.Client, errs io.Writer, what string) (stop func()) {
	changes := make(chan framework.StateChange)
	over, ended := make(chan struct{}), make(chan struct{})
	unlisten := c.Listen(func(change framework.StateChange) {
		select {
		case changes <- change:
		case <-over:
		}
	})
	go func() { // ends with stop
		defer close(ended)
		out := StartPrinter(errs)
		defer out.Finish(100 * time.Millisecond) // a grant may wait for it
		var due <-chan time.Time
		said := false
		for {
			select {
			case change := <-changes:
				switch {
				case change.To == framework.Connected && said:
					out.Offer("zkr: connected again\n")
					due, said = nil, false
				case change.To == framework.Connected:
					due = nil
				case due == nil && !said:
					due = time.After(AWhile)
				}
			case <-due:
				due, said = nil, true
				out.Offer(fmt.Sprintf("zkr: not connected, no server answers: %s\n", what))
			case <-over:
				return
			}
		}
	}()
	return func() {
		unlisten()
		close(over)
		<-ended
	}
}

// IsAnswered reports whether a request got an answer, although it may have
// failed.
func IsAnswered(err error) bool {
	for _, silent := range []error{
		context.DeadlineExceeded, context.Canceled, zk.ErrNoServer, zk.ErrConnectionClosed, zk.ErrClosing,
		framework.ErrSessionLost, framework.ErrNoSession, framework.ErrClosed,
	} {
		if errors.Is(err, silent) {
			return false
		}
	}
	return true
}

// Waiting returns a context that ends after the time of --wait, if that is set.
func Waiting(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	if wait <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, wait, fmt.Errorf("timed out after %v", wait))
}

// EndOfWait gives the end of a wait its exit code: 111, or 113 if no server
// answers. For then nobody knows whether the wait would have been over.
func EndOfWait(c *framework.Client, timedOut error) error {
	ctx, cancel := context.WithTimeout(context.Background(), LookTimeout)
	defer cancel()
	if err := c.Sync(ctx, "/"); !IsAnswered(err) {
		return NoAnswer(timedOut)
	}
	return &Exit{ExitNotAcquired, timedOut}
}

func NoAnswer(timedOut error) error {
	return &Exit{ExitNoEnsemble, fmt.Errorf("%w: no server answers", timedOut)}
}
