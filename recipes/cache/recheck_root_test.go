package cache_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
)

// A root that was missing is made, and its event is lost: one that may be read
// is shown, and one that may not makes the cache stale.
func TestALostEventOfAMissingRoot(t *testing.T) {
	for name, opts := range map[string][]cache.Option{"recursive watch": nil, "one-shot watches": {cache.WithOneShotWatches()}} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, other := w.Connect("reader"), w.Connect("writer", framework.WithAuth("digest", []byte("owner:secret")))
				k := synced(t, c, opts...)
				loses(w, func() { create(t, other, root, "new") })
				within(t, k, root, "new", 2*bubble.Timeout)
				loses(w, func() { remove(t, other, root) })
				time.Sleep(2 * bubble.Timeout)
				if n := k.View().Len(); n != 0 {
					t.Fatalf("%d znodes are shown", n)
				}
				loses(w, func() {
					if _, err := other.Create(t.Context(), root, nil, 0, zk.DigestACL(zk.PermAll, "owner", "secret")...); err != nil {
						t.Fatal(err)
					}
				})
				time.Sleep(2 * bubble.Timeout)
				if s := k.Status(); s.State != cache.Stale {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}
