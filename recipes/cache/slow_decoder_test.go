package cache_test

import (
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
)

// While a decoder takes its time, others who want the value wait for it. None
// of them holds a mutex, which would stop virtual time.
func TestASlowDecoder(t *testing.T) {
	const slow = time.Minute
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		create(t, c, root, "")
		create(t, c, root+"/a", "")
		k := synced(t, c)
		decode := func(data []byte) (string, error) {
			time.Sleep(slow)
			return string(data), nil
		}
		value, dir := cache.NewValue(k, root+"/a", decode), cache.NewDir(k, root, decode)
		for _, want := range []string{"one", "two"} {
			set(t, c, root+"/a", want)
			shows(t, w, k)
			began := time.Now()
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					if got, err := value.Get(); got != want || err != nil {
						t.Errorf("got %q, %v, want %q", got, err, want)
					}
				})
				all.Go(func() {
					if got := dir.All(); len(got) != 1 || got[0].Value != want {
						t.Errorf("got %v, want %q", got, want)
					}
				})
			}
			all.Wait()
			if took := time.Since(began); took > slow {
				t.Errorf("it has taken %v", took)
			}
		}
	})
}
