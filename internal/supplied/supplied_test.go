package supplied_test

import (
	"errors"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// A panic and the end of the goroutine are errors, and only a panic is logged.
func TestGo(t *testing.T) {
	mine := errors.New("mine")
	for _, test := range []struct {
		name, want string
		fn         func() error
		logged     int
	}{
		{"it succeeds", "", func() error { return nil }, 0},
		{"it fails", "mine", func() error { return mine }, 0},
		{"it panics", "panic: why not", func() error { panic("why not") }, 1},
		{"it ends its goroutine", "it has ended its goroutine", func() error { runtime.Goexit(); return nil }, 0},
	} {
		core, lines := observer.New(zap.DebugLevel)
		got := ""
		err := <-supplied.Go(zap.New(core), test.fn)
		if err != nil {
			got = err.Error()
		}
		if got != test.want || errors.Is(err, mine) != (test.want == "mine") {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
		if lines.Len() != test.logged {
			t.Errorf("%s: %d lines logged, want %d", test.name, lines.Len(), test.logged)
		}
	}
}

// Every value comes, in order, whatever the function does with the others.
func TestListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []int
		l := supplied.NewListener(zap.NewNop(), 0, func(i int) {
			got = append(got, i)
			switch i % 3 {
			case 1:
				panic(i)
			case 2:
				runtime.Goexit()
			}
		})
		var want []int
		for i := range 30 {
			want = append(want, i)
			l.Put(i)
			if i == 20 {
				synctest.Wait() // its goroutine has ended
			}
		}
		synctest.Wait()
		if !slices.Equal(got, want) {
			t.Errorf("%v", got)
		}
	})
}

// The oldest values are dropped for a function that is slow, and all that wait
// when it is stopped, also by itself.
func TestListenerThatIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []int
		blocked := make(chan struct{})
		var l *supplied.Listener[int]
		l = supplied.NewListener(zap.NewNop(), 2, func(i int) {
			<-blocked
			got = append(got, i)
			if i == 5 {
				l.Stop()
			}
		})
		l.Put(0)
		synctest.Wait() // it is called with 0
		for i := range 5 {
			l.Put(i + 1)
		}
		close(blocked)
		synctest.Wait()
		if want := []int{0, 4, 5}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		l.Put(6)
		l.Stop()
		synctest.Wait()
		if len(got) != 3 {
			t.Errorf("after Stop: %v", got)
		}
	})
}

// What waits when Stop is called does not come.
func TestStopDropsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, blocked := 0, make(chan struct{})
		l := supplied.NewListener(zap.NewNop(), 0, func(int) { calls++; <-blocked })
		l.Put(1)
		l.Put(2)
		synctest.Wait()
		l.Stop()
		close(blocked)
		synctest.Wait()
		if calls != 1 {
			t.Errorf("%d calls, want 1", calls)
		}
	})
}
