package closed_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/closed"
)

func TestIs(t *testing.T) {
	if closed.Is(nil) {
		t.Error("a nil channel")
	}
	channel := make(chan struct{})
	if closed.Is(channel) {
		t.Error("an open channel")
	}
	close(channel)
	for range 2 {
		if !closed.Is(channel) {
			t.Error("a closed channel is open")
		}
	}
}

// The context ends with the channel, and with its cancel, and no goroutine is
// left.
func TestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		ctx, cancel := closed.Context(stop)
		defer cancel()
		if synctest.Wait(); ctx.Err() != nil {
			t.Error("it ends with nothing")
		}
		close(stop)
		if synctest.Wait(); ctx.Err() == nil {
			t.Error("it does not end with the channel")
		}
		other, cancel := closed.Context(make(chan struct{}))
		cancel()
		if synctest.Wait(); other.Err() == nil {
			t.Error("it does not end with cancel")
		}
	})
}

// The wait ends with the channel, or after the time.
func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		channel, began := make(chan struct{}), time.Now()
		if closed.Within(time.Second, channel) || time.Since(began) != time.Second {
			t.Errorf("an open channel is closed, or was waited for during %s", time.Since(began))
		}
		time.AfterFunc(time.Second, func() { close(channel) })
		for range 2 {
			if !closed.Within(time.Minute, channel) || time.Since(began) != 2*time.Second {
				t.Errorf("a closed channel is open, or was waited for during %s", time.Since(began))
			}
		}
		if !closed.Within(0, channel) {
			t.Error("a closed channel is open after no time")
		}
	})
}
