package cache_test

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
)

// A znode comes and goes that the cache may not read. Nothing that is shown
// changes by that, and listeners were not told. Each is told once.
func TestListenersHearOfUnreadableZnodes(t *testing.T) {
	for _, opts := range [][]cache.Option{nil, {cache.WithOneShotWatches()}} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			c, owner := w.Connect("reader"), w.Connect("owner", framework.WithAuth("digest", []byte("owner:secret")))
			create(t, owner, root, "")
			k := synced(t, c, append(opts, cache.WithRecheck(time.Minute))...)
			batches := make(chan cache.Batch, 100)
			defer k.Listen(func(b cache.Batch) { batches <- b })()
			var values atomic.Int64
			value := cache.NewValue(k, root+"/secret", func(data []byte) (string, error) { return string(data), nil })
			defer value.Listen(func(string, error) { values.Add(1) })()
			wants := func(n int64, why error, unreadable ...string) {
				t.Helper()
				time.Sleep(5 * time.Minute) // some rechecks
				synctest.Wait()
				if len(batches) != 1 || values.Load() != n {
					t.Fatalf("%d batches, %d calls of the value's listener", len(batches), values.Load())
				}
				b := <-batches
				if !slices.Equal(b.Status.Unreadable, unreadable) || !slices.Equal(slices.Collect(b.View.Unreadable(root)), unreadable) || b.Status.State != cache.Synced {
					t.Errorf("told of %+v", b.Status)
				}
				if _, err := value.Get(); !errors.Is(err, why) {
					t.Errorf("the value: %v, want %v", err, why)
				}
			}
			wants(1, zk.ErrNoNode)
			for i := range 2 {
				made := make([]string, 3)
				for j, name := range []string{"secret", "secret-a", "secret-b"} {
					made[j] = root + "/" + name
					if _, err := owner.Create(t.Context(), made[j], nil, zk.FlagPersistent, zk.DigestACL(zk.PermAll, "owner", "secret")...); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(5 * time.Minute) // they may be found one after the other
				synctest.Wait()
				for len(batches) > 1 {
					<-batches
				}
				wants(int64(2+2*i), zk.ErrNoAuth, made...)
				if all := fmt.Sprint(slices.Collect(k.View().Unreadable(made[1]))); all != "["+made[1]+"]" {
					t.Errorf("of one: %s", all)
				}
				ops := make([]any, len(made))
				for j, path := range made {
					ops[j] = &zk.DeleteRequest{Path: path, Version: -1}
				}
				if _, err := owner.Multi(t.Context(), ops...); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				for len(batches) > 1 {
					<-batches
				}
				wants(int64(3+2*i), zk.ErrNoNode)
			}
		})
	}
}
