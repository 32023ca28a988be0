package recipes_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// Whoever looks at a lock sees who holds it: each recipe writes the host's name
// and the process id by default, WithData what it is told, and WithData(nil)
// nothing.
func TestTheHolderCanBeSeen(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	process := fmt.Sprintf("%s pid %d", host, os.Getpid())
	for name, make := range everyRecipe {
		t.Run(name, func(t *testing.T) {
			for want, data := range map[string][]recipes.ZnodeOption{
				process: nil,
				"me":    {recipes.WithData([]byte("me")).ZnodeOption},
				"":      {recipes.WithData(nil).ZnodeOption},
			} {
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					a, err := make(w.Connect("a"), data...)
					if err != nil {
						t.Fatal(err)
					}
					l := bubble.Acquire(t, t.Context(), a)
					seen := 0
					for _, s := range w.Sessions() {
						for _, znode := range s.Ephemerals {
							seen++
							if got, _ := w.Embedded.Data(znode); string(got) != want {
								t.Errorf("%s has data %q, want %q", znode, got, want)
							}
						}
					}
					if seen == 0 {
						t.Error("no znode seen")
					}
					bubble.Release(t, l)
				})
			}
		})
	}
}

// everyRecipe makes an acquirer of each recipe, at /app.
var everyRecipe = map[string]func(c *framework.Client, opts ...recipes.ZnodeOption) (recipes.Acquirer, error){
	"mutex": func(c *framework.Client, data ...recipes.ZnodeOption) (recipes.Acquirer, error) {
		return locks.NewMutex(c, "/app", optionsOf[locks.Option](data)...)
	},
	"key": func(c *framework.Client, data ...recipes.ZnodeOption) (recipes.Acquirer, error) {
		k, err := locks.NewKeyed(c, "/app", optionsOf[locks.Option](data)...)
		return k.Key("a key"), err
	},
	"reader": func(c *framework.Client, data ...recipes.ZnodeOption) (recipes.Acquirer, error) {
		rw, err := rwlock.New(c, "/app", optionsOf[rwlock.Option](data)...)
		return rw.Reader(), err
	},
	"downgraded reader": func(c *framework.Client, data ...recipes.ZnodeOption) (recipes.Acquirer, error) {
		rw, err := rwlock.New(c, "/app", optionsOf[rwlock.Option](data)...)
		return downgrading{rw.Writer(), rw.Reader()}, err
	},
	"writer": func(c *framework.Client, data ...recipes.ZnodeOption) (recipes.Acquirer, error) {
		rw, err := rwlock.New(c, "/app", optionsOf[rwlock.Option](data)...)
		return rw.Writer(), err
	},
	"permits": func(c *framework.Client, data ...recipes.ZnodeOption) (recipes.Acquirer, error) {
		s, err := semaphore.New(c, "/app", 2, optionsOf[semaphore.Option](data)...)
		return s.Permits(2), err
	},
	"election": func(c *framework.Client, data ...recipes.ZnodeOption) (recipes.Acquirer, error) {
		return leader.New(c, "/app", optionsOf[leader.Option](data)...)
	},
	"line": func(c *framework.Client, data ...recipes.ZnodeOption) (recipes.Acquirer, error) {
		return recipes.NewLine(c, "/app", "kind", "name", func(string, string) bool { return true }, optionsOf[recipes.LineOption](data)...)
	},
}

func optionsOf[T any](data []recipes.ZnodeOption) (opts []T) {
	for _, option := range data {
		opts = append(opts, any(option).(T))
	}
	return opts
}

// downgrading is the reader that was a writer.
type downgrading struct {
	recipes.Acquirer
	reader recipes.Acquirer
}

func (d downgrading) Acquire(ctx context.Context) (*recipes.Lease, error) {
	writing, err := d.Acquirer.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = writing.Release(ctx) }()
	return d.reader.Acquire(writing.Context())
}
