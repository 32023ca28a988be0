package acceptance_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// The transaction that ends a session lists the paths of its ephemeral znodes.
// Members that cannot read it stop, and do not start again. Here one client
// makes znodes until it is refused, or has tried to make too many by far, and
// is closed. The members go on, and also start again with that in their logs.
func TestNoSessionIsTooLargeForItsMembers(t *testing.T) {
	if os.Getenv("ZKR_WHOLE") == "" {
		t.Skip("takes five minutes: to run it, set ZKR_REAL=1 ZKR_WHOLE=1")
	}
	const below = "/a-directory-as-services-have-them/with/one/more/level"
	for _, use := range []struct {
		name    string
		each    int  // how many znodes one call makes, about 120 bytes each
		refused bool // at the limit; otherwise what lingers makes room
		more    func(t *testing.T, c *framework.Client) func(ctx context.Context, i int) error
	}{
		{"locks that linger", 1, false, func(t *testing.T, c *framework.Client) func(context.Context, int) error {
			k, err := locks.NewKeyed(c, below+"/locks", recipes.WithLinger(time.Hour))
			must(t, err)
			return func(ctx context.Context, i int) error {
				l, err := k.Key(fmt.Sprint("key-", i)).Acquire(ctx)
				if err == nil {
					err = l.Release(ctx)
				}
				return err
			}
		}},
		{"locks", 1, true, func(t *testing.T, c *framework.Client) func(context.Context, int) error {
			k, err := locks.NewKeyed(c, below+"/locks")
			must(t, err)
			return func(ctx context.Context, i int) error {
				_, err := k.Key(fmt.Sprint("key-", i)).Acquire(ctx)
				return err
			}
		}},
		{"permits", 100, true, func(t *testing.T, c *framework.Client) func(context.Context, int) error {
			return func(ctx context.Context, i int) error {
				s, err := semaphore.New(c, fmt.Sprint(below, "/semaphores/", i), 100)
				must(t, err)
				_, err = s.Permits(100).Acquire(ctx)
				return err
			}
		}},
		{"presences", 1, true, func(t *testing.T, c *framework.Client) func(context.Context, int) error {
			return func(ctx context.Context, i int) error {
				n, err := presence.New(c, below+"/members/"+strings.Repeat("m", 50)+fmt.Sprint(i), nil)
				must(t, err)
				must(t, n.Start())
				var status presence.Status
				bubble.AwaitTrue(t, "an answer", func() bool {
					status = n.Status()
					return status.State == presence.Standing || status.Err != nil
				})
				return status.Err
			}
		}},
		{"a user's own", 100, true, func(t *testing.T, c *framework.Client) func(context.Context, int) error {
			must(t, c.MakePersistentPath(t.Context(), below+"/own"))
			return func(ctx context.Context, i int) error {
				var ops []any
				for j := range 100 {
					ops = append(ops, &zk.CreateRequest{Path: fmt.Sprint(below, "/own/", strings.Repeat("o", 50), i, "-", j), Flags: zk.FlagEphemeral})
				}
				_, err := c.Multi(ctx, ops...)
				return err
			}
		}},
	} {
		t.Run(use.name, func(t *testing.T) {
			ens := apache.Start(t, 3)
			c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(30*time.Second))
			must(t, err)
			t.Cleanup(func() { _ = c.Close() })
			more := use.more(t, c)
			const most, callers = 20_000, 64
			var made, refused atomic.Int64
			var next atomic.Int64
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					for refused.Load() == 0 {
						i := int(next.Add(1))
						if i*use.each > most {
							return
						}
						switch err := more(t.Context(), i); {
						case err == nil:
							made.Add(int64(use.each))
						case errors.Is(err, framework.ErrTooLarge):
							refused.Add(1)
						default:
							t.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			t.Logf("%d made, %d refused", made.Load(), refused.Load())
			if got := refused.Load() > 0; got != use.refused {
				t.Errorf("refused: %v", got)
			}
			must(t, c.Close())
			serves := func(when string) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				other, err := framework.New(ens.Servers())
				must(t, err)
				defer other.Close()
				if err := other.MakePersistentPath(ctx, "/serves/"+when); err != nil {
					t.Fatalf("%s: %v", when, err)
				}
			}
			serves("after the end of the session")
			for member := range 3 {
				must(t, ens.Stop(member))
			}
			for member := range 3 {
				must(t, ens.Restart(member))
			}
			must(t, ens.WaitServing(t.Context()))
			serves("after a restart of all members")
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
