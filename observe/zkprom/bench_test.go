package zkprom_test

import (
	"context"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/observe/zkprom"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// BenchmarkAcquire measures an acquire and a release, with metrics and without:
// of a lock that needs the ensemble, and of one that is re-entered in memory.
func BenchmarkAcquire(b *testing.B) {
	for _, way := range []string{"unobserved", "observed", "observed with LockLabel"} {
		b.Run(way, func(b *testing.B) {
			var opts []framework.Option
			switch way {
			case "observed":
				_, metrics := newOption(b)
				opts = append(opts, metrics.Option())
			case "observed with LockLabel":
				_, metrics := newOption(b, zkprom.LockLabel(func(path string) string { return path }))
				opts = append(opts, metrics.Option())
			}
			ens := testutil.Start(b, testutil.InMemory())
			client, err := framework.New(ens.Servers(), append(opts, framework.WithDialer(ens.Dial))...)
			if err != nil {
				b.Fatal(err)
			}
			defer client.Close()
			mutex, err := locks.NewMutex(client, "/lock")
			if err != nil {
				b.Fatal(err)
			}
			b.Run("from the ensemble", func(b *testing.B) {
				for b.Loop() {
					cycle(b.Context(), b, mutex)
				}
			})
			b.Run("re-entered", func(b *testing.B) {
				lease, err := mutex.Acquire(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					cycle(lease.Context(), b, mutex)
				}
				if err := lease.Release(b.Context()); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

func cycle(ctx context.Context, b *testing.B, mutex *locks.Mutex) {
	lease, err := mutex.Acquire(ctx)
	if err != nil {
		b.Fatal(err)
	}
	if err := lease.Release(ctx); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkHooks measures what zkprom itself does at an acquire and its
// release.
func BenchmarkHooks(b *testing.B) {
	_, o := newMetrics(b)
	a, ctx := mutex("/locks/report"), context.Background()
	b.ReportAllocs()
	for b.Loop() {
		g := recipes.Grant{
			How: recipes.GrantedByEnsemble, At: time.Now(), Token: "1-2-3",
			Znode: "/locks/report/_c_2f1b6a5e-9c0d-4e4f-8a39-0f4f6f2c1d77-lock-0000000042",
		}
		o.AcquireEnd(o.AcquireStart(ctx, a), a, recipes.AcquireResult{Grant: g})
		o.Released(ctx, recipes.Release{Acquire: a, Grant: g, Held: time.Millisecond})
	}
}
