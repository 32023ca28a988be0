package supplied_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// Get ends with the function, with its time, with its context and when it is
// stopped, also while it waits for its turn. What has hung returns its token.
func TestGet(t *testing.T) {
	mine := errors.New("mine")
	type get = func(context.Context) (int, error)
	hangs := func(context.Context) (int, error) { time.Sleep(time.Hour); return 1, nil }
	for name, tt := range map[string]struct {
		fn       get
		busy     bool // other calls have all tokens
		canceled bool // the context ends after a second
		stopped  bool // stop is closed after a second
		fails    bool
		want     error // nil: any
		took     time.Duration
	}{
		"it returns":                {fn: func(context.Context) (int, error) { return 1, nil }},
		"it fails":                  {fn: func(context.Context) (int, error) { return 0, mine }, fails: true, want: mine},
		"it hangs":                  {fn: hangs, fails: true, want: supplied.ErrNoResult, took: time.Minute},
		"its context ends":          {fn: hangs, canceled: true, fails: true, want: supplied.ErrNoResult, took: time.Second},
		"it is stopped":             {fn: hangs, stopped: true, fails: true, want: supplied.ErrStopped, took: time.Second},
		"others hang":               {fn: hangs, busy: true, fails: true, want: supplied.ErrNoResult, took: time.Minute},
		"others hang, canceled":     {fn: hangs, busy: true, canceled: true, fails: true, want: supplied.ErrNoResult, took: time.Second},
		"others hang, stopped":      {fn: hangs, busy: true, stopped: true, fails: true, want: supplied.ErrStopped, took: time.Second},
		"it hears of the end":       {fn: func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, mine }, fails: true, want: supplied.ErrNoResult, took: time.Minute},
		"it panics":                 {fn: func(context.Context) (int, error) { panic(mine) }, fails: true},
		"it ends its own goroutine": {fn: func(context.Context) (int, error) { runtime.Goexit(); return 0, nil }, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tokens := supplied.NewTokens(1, zap.NewNop())
				if tt.busy {
					go func() { _, _ = supplied.Get(t.Context(), tokens, nil, time.Second, hangs) }()
					synctest.Wait()
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stop := make(chan struct{})
				time.AfterFunc(time.Second, func() {
					if tt.canceled {
						cancel()
					}
					if tt.stopped {
						close(stop)
					}
				})
				began := time.Now()
				got, err := supplied.Get(ctx, tokens, stop, time.Minute, tt.fn)
				if took := time.Since(began); took != tt.took {
					t.Errorf("it took %v, want %v", took, tt.took)
				}
				if (err != nil) != tt.fails || tt.want != nil && !errors.Is(err, tt.want) || (got == 1) == tt.fails {
					t.Errorf("%d, %v, want %v", got, err, tt.want)
				}
				time.Sleep(2 * time.Hour) // what has hung returns
				if got, err := supplied.Get(t.Context(), tokens, nil, time.Second, func(context.Context) (int, error) { return 2, nil }); got != 2 || err != nil {
					t.Errorf("the next call: %d, %v", got, err)
				}
			})
		})
	}
}
