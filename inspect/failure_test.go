package inspect_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/inspect"
)

// synced is a fake that can sync.
type synced struct{ *fake }

func (s synced) Sync(_ context.Context, path string) error {
	defer s.leave()
	return s.enter("sync", path)
}

// If any one request fails, or any one call of a rule, the result is that
// error: what could not be read is never taken for what is not there.
func TestAnyFailureIsReturned(t *testing.T) {
	tree := synced{&fake{}}
	for i, contender := range []string{
		"/x/" + id(1) + "lock-0000000001", "/y/" + id(2) + "lock-0000000001",
		"/y/" + id(1) + "lock-0000000002", "/x/" + id(2) + "lock-0000000002", // 1 and 2 wait for each other
		"/kind/" + id(3) + "odd~a~0000000001", "/kind/" + id(4) + "odd~b~0000000002", "/kind/" + id(5) + "odd~c~0000000003",
		"/sem/leases/" + id(6) + "lease-0000000001", "/sem/locks/" + id(7) + "lock-0000000001",
		"/kazoo/0123456789abcdef0123456789abcdef", "/kazoo-__lock__/0123456789abcdef0123456789abcdef__lock__0000000001",
		"/idle/" + id(8) + "lock-0000000001",
	} {
		data := ""
		if i == 3 {
			data = "web-1 pid 4711: sh parent=0x9" // whose contenders are in lines in which nobody waits
		}
		owners := []int64{1, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
		tree.add(contender, data, owners[i])
	}
	tree.add("/unused/limit", "", 0)
	asked, failing := atomic.Int64{}, int64(-1)
	rule := inspect.WithKind("odd", func(mine, theirs string) bool {
		if asked.Add(1)-1 == failing {
			panic("the rule")
		}
		return mine != theirs
	})
	opts := []inspect.Option{rule, inspect.WithPause(time.Millisecond), inspect.WithConcurrency(1)}
	read := func(path string) func(r inspect.Reader) error {
		return func(r inspect.Reader) error {
			_, err := inspect.Read(t.Context(), r, path, opts...)
			return err
		}
	}
	calls := map[string]func(r inspect.Reader) error{
		"Read a mutex": read("/x"), "Read a kind": read("/kind"), "Read a semaphore": read("/sem"),
		"Read Kazoo's semaphore": read("/kazoo"), "Read an unused semaphore": read("/unused"),
		"Tree": func(r inspect.Reader) error {
			_, err := inspect.Tree(t.Context(), r, "/", opts...)
			return err
		},
		"Fill": func(r inspect.Reader) error {
			l, err := inspect.Read(t.Context(), tree, "/kind", append(slices.Clone(opts), inspect.WithoutDetails())...)
			if err == nil {
				err = inspect.Fill(t.Context(), r, &l, 0, opts...)
			}
			return err
		},
		"FindDeadlocks": func(r inspect.Reader) error {
			d, err := inspect.FindDeadlocks(t.Context(), r, "/", opts...)
			if err == nil && len(d.Cycles) != 1 {
				t.Errorf("deadlocks: %v", d.Cycles)
			}
			return err
		},
	}
	broken := errors.New("broken")
	for name, call := range calls {
		requests := int64(0)
		tree.before = func(string, string) error { requests++; return nil }
		asked.Store(0)
		if err := call(tree); err != nil || requests == 0 {
			t.Fatalf("%s: %d requests, %v", name, requests, err)
		}
		questions := asked.Load()
		for n := range requests {
			at, number := "", int64(0)
			tree.before = func(op, path string) error {
				if number++; number-1 == n {
					at = op + " " + path
					return broken
				}
				return nil
			}
			if err := call(tree); !errors.Is(err, broken) {
				t.Errorf("%s, request %d, %s: %v", name, n, at, err)
			}
		}
		tree.before = nil
		for failing = range questions {
			asked.Store(0)
			if err := call(tree); err == nil {
				t.Errorf("%s: the rule failed at call %d of %d", name, failing, questions)
			}
		}
		failing = -1
	}
}
