package ratelimit

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// At most so many begin in each second, those that come late too: what was not
// used is not made up for.
func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(100)
		began := time.Now()
		for range 101 {
			if err := l.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("101 requests took %v", took)
		}
		time.Sleep(time.Minute)
		began = time.Now()
		for range 11 {
			if err := l.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != 100*time.Millisecond {
			t.Errorf("11 requests took %v", took)
		}
	})
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Millisecond, func() { cancel(why) })
		l := New(1)
		if err := l.Wait(ctx); err != nil {
			t.Error(err)
		}
		if err := l.Wait(ctx); !errors.Is(err, why) {
			t.Errorf("error %v", err)
		}
		if err := New(0).Wait(ctx); !errors.Is(err, why) {
			t.Errorf("without a limit: error %v", err)
		}
		if err := New(0).Wait(t.Context()); err != nil {
			t.Errorf("without a limit: error %v", err)
		}
	})
}
