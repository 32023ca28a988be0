package supplied_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// Listeners get the present value and those that follow, until they stop or the
// audience ends.
func TestListenersOfAnAudience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var audience supplied.Audience[int]
		present := 1
		var hearing sync.Mutex
		heard := map[string][]int{}
		listen := func(name string) (stop func()) {
			l := supplied.NewListener(zap.NewNop(), 0, func(n int) {
				hearing.Lock()
				defer hearing.Unlock()
				heard[name] = append(heard[name], n)
			})
			return audience.Listen(&mu, l, func() int { return present })
		}
		tell := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			present = n
			audience.Tell(n)
			synctest.Wait()
		}
		listen("all")
		stop := listen("some")
		tell(2)
		listen("late")
		stop()
		stop()
		tell(3)
		mu.Lock()
		audience.End()
		mu.Unlock()
		tell(4)
		defer listen("too late")()
		synctest.Wait()
		for name, want := range map[string][]int{"all": {1, 2, 3}, "some": {1, 2}, "late": {2, 3}, "too late": {4}} {
			if !slices.Equal(heard[name], want) {
				t.Errorf("%s: %v, want %v", name, heard[name], want)
			}
		}
	})
}

// A channel is closed by the next change, and by no later one.
func TestChannelsOfAnAudience(t *testing.T) {
	var audience supplied.Audience[int]
	for name, change := range map[string]func(){"Wake": audience.Wake, "Tell": func() { audience.Tell(1) }} {
		first, second := audience.Changed(), audience.Changed()
		if closed.Is(first) || closed.Is(second) {
			t.Fatalf("%s: closed before", name)
		}
		change()
		change() // nobody waits
		if !closed.Is(first) || !closed.Is(second) {
			t.Errorf("%s: not closed", name)
		}
		if closed.Is(audience.Changed()) {
			t.Errorf("%s: the next one is closed", name)
		}
	}
}
