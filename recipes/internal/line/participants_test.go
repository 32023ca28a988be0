package line_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/testutil"
)

type listing func(context.Context) ([]recipes.Participant, error)

// lookers are ways to learn who stands in line.
var lookers = map[string]func(*framework.Client) (recipes.Acquirer, listing, error){
	"a mutex": func(c *framework.Client) (recipes.Acquirer, listing, error) {
		m, err := locks.NewMutex(c, lockPath)
		return m, m.Participants, err
	},
	"a semaphore": func(c *framework.Client) (recipes.Acquirer, listing, error) {
		s, err := semaphore.New(c, lockPath, 1)
		return s, s.Participants, err
	},
	"the first of an election": func(c *framework.Client) (recipes.Acquirer, listing, error) {
		e, err := leader.New(c, lockPath)
		return e, func(ctx context.Context) ([]recipes.Participant, error) {
			first, err := e.Leader(ctx)
			return []recipes.Participant{first}, err
		}, err
	},
}

// inLine has a client hold a lock and another one wait, and returns a listing
// of a third one.
func inLine(t *testing.T, w *bubble.World, looker func(*framework.Client) (recipes.Acquirer, listing, error), opts ...framework.Option) (_ *framework.Client, leave func(), list listing) {
	t.Helper()
	holder, waiter, c := w.ConnectNext(opts...), w.ConnectNext(opts...), w.ConnectNext()
	all := make([]recipes.Acquirer, 0, 3)
	for _, c := range []*framework.Client{holder, waiter, c} {
		a, l, err := looker(c)
		if err != nil {
			t.Fatal(err)
		}
		all, list = append(all, a), l
	}
	l := bubble.Acquire(t, t.Context(), all[0])
	next := bubble.Acquiring(t.Context(), all[1])
	synctest.Wait()
	return c, func() {
		bubble.Release(t, l)
		bubble.Granted(t, next)
	}, list
}

// Whichever read the ensemble refuses, the caller is told so. Many reads in one
// request are made one by one then.
func TestParticipantsRefused(t *testing.T) {
	for name, looker := range lookers {
		t.Run(name, func(t *testing.T) {
			survived := bubble.EachRefused(t, func(t *testing.T, w *bubble.World) (*framework.Client, func(context.Context) error) {
				c, _, list := inLine(t, w, looker)
				return c, func(ctx context.Context) error {
					_, err := list(ctx)
					return err
				}
			})
			if len(survived) > 0 && !slices.Equal(survived, []testutil.Op{testutil.OpMultiRead}) {
				t.Errorf("refused without an error: %v", survived)
			}
		})
	}
}

// A contender that may not be read is an error: it is not left out.
func TestParticipantsThatAreHidden(t *testing.T) {
	for name, looker := range lookers {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				_, _, list := inLine(t, w, looker, framework.WithAuth("digest", []byte("a:b")), framework.WithACL(zk.AuthACL(zk.PermAll)...))
				if all, err := list(t.Context()); !errors.Is(err, zk.ErrNoAuth) {
					t.Errorf("%v, error %v", all, err)
				}
			})
		})
	}
}

// Who leaves between the list and the read of its znode is left out. The next
// holder of a permit makes another znode, which the list does not have.
func TestParticipantsThatLeave(t *testing.T) {
	for name, looker := range lookers {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, leave, list := inLine(t, w, looker)
				id, left := w.SessionID(c), false
				stop := w.Control(func(r testutil.Request) testutil.Action {
					if r.Session != id || !slices.Contains([]testutil.Op{testutil.OpGetData, testutil.OpMultiRead}, r.Op) || left {
						return testutil.Pass()
					}
					left = true
					gone := make(chan struct{})
					go func() { leave(); close(gone) }()
					return testutil.Hold(gone)
				})
				all, err := list(t.Context())
				stop()
				want := map[string]int{"a mutex": 1, "the first of an election": 1}[name]
				if err != nil || !left || len(all) != want {
					t.Errorf("%v, error %v", all, err)
				}
			})
		})
	}
}
