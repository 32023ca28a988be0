package acceptance_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// verbs are the calls of all recipes that need the ensemble.
type verbs struct {
	values []any // of the recipes
	do     map[string]func(ctx context.Context) error
}

// verbsOf returns the verbs of values that a client has made. Those that keep
// something have ended when they return.
func verbsOf(t *testing.T, c *framework.Client) verbs {
	simple := made[*barrier.Barrier](t)(barrier.New(c, "/barrier"))
	double := made[*barrier.Double](t)(barrier.NewDouble(c, "/double", 2))
	number := made[*counter.Counter](t)(counter.New(c, "/number"))
	mutex := made[*locks.Mutex](t)(locks.NewMutex(c, "/mutex"))
	keyed := made[*locks.Keyed](t)(locks.NewKeyed(c, "/keyed"))
	rw := made[*rwlock.RWLock](t)(rwlock.New(c, "/rw"))
	permits := made[*semaphore.Semaphore](t)(semaphore.New(c, "/semaphore", 2))
	election := made[*leader.Election](t)(leader.New(c, "/election"))
	line := made[*recipes.Line](t)(recipes.NewLine(c, "/line", "test", "", func(_, _ string) bool { return true }))
	group := made[*presence.Group](t)(presence.NewGroup(c, "/group"))
	node := made[*presence.Node](t)(presence.New(c, "/node", nil))
	services := made[*discovery.Discovery[string]](t)(discovery.New(c, "/services", discovery.JSON[string]("")))
	service := made[*discovery.Service[string]](t)(services.Service("web"))
	tree := made[*cache.Cache](t)(cache.New(c, "/tree"))
	tree.Start()
	roster := group.Follow()
	t.Cleanup(func() {
		tree.Close()
		roster.Close()
		services.Close()
		if err := node.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	release := func(l *recipes.Lease, err error) error {
		if err == nil {
			err = l.Release(context.Background())
		}
		return err
	}
	gone := func(path, base string) recipes.Participant {
		return recipes.Participant{Path: path + "/" + layout.Protect("2f1b6a5e-9c0d-4e4f-8a39-0f4f6f2c1d77", base+"0000000042")}
	}
	v := verbs{values: []any{simple, double, number, mutex, keyed, rw, permits, election, line, group, node, services, service, tree, roster}}
	v.do = map[string]func(ctx context.Context) error{
		"Barrier.Set":    simple.Set,
		"Barrier.Remove": simple.Remove,
		"Barrier.Wait":   simple.Wait,
		"Double.Enter":   func(ctx context.Context) error { _, err := double.Enter(ctx); return err },
		"Counter.Get":    func(ctx context.Context) error { _, err := number.Get(ctx); return err },
		"Counter.Add":    func(ctx context.Context) error { _, err := number.Add(ctx, 1); return err },
		"Counter.AddOnce": func(ctx context.Context) error {
			_, err := number.AddOnce(ctx, "id", 1)
			return err
		},
		"Counter.Reserve":       func(ctx context.Context) error { _, err := number.Reserve(ctx, 1); return err },
		"Counter.CompareAndSet": func(ctx context.Context) error { _, err := number.CompareAndSet(ctx, 5, 6); return err },
		"Counter.Set":           func(ctx context.Context) error { return number.Set(ctx, 1) },
		"Counter.Listen": func(ctx context.Context) error {
			stop, err := number.Listen(ctx, func(int64, error) {})
			if err == nil {
				stop()
			}
			return err
		},
		"Keyed.Keys":          func(ctx context.Context) error { _, err := keyed.Keys(ctx); return err },
		"Mutex.Revoke":        func(ctx context.Context) error { return mutex.Revoke(ctx, gone("/mutex", "lock-")) },
		"RWLock.Participants": func(ctx context.Context) error { _, err := rw.Participants(ctx); return err },
		"RWLock.Revoke":       func(ctx context.Context) error { return rw.Revoke(ctx, gone("/rw", "host-R-")) },
		"Semaphore.Available": func(ctx context.Context) error { _, err := permits.Available(ctx); return err },
		"Semaphore.SetMax":    func(ctx context.Context) error { return permits.SetMax(ctx, 3) },
		"Line.First":          func(ctx context.Context) error { _, _, err := line.First(ctx); return err },
		"Line.Revoke":         func(ctx context.Context) error { return line.Revoke(ctx, gone("/line", "test~~")) },
		"Election.Leader":     func(ctx context.Context) error { _, err := election.Leader(ctx); return err },
		"Election.Run": func(ctx context.Context) error {
			return election.Run(ctx, func(context.Context, *recipes.Lease) error { return leader.ErrStop })
		},
		"Group.Members": func(ctx context.Context) error { _, err := group.Members(ctx); return err },
		"Group.Read":    func(ctx context.Context) error { _, _, err := group.Read(ctx); return err },
		"Group.Join": func(ctx context.Context) error {
			n, err := group.Join(ctx, "id", nil)
			if err == nil {
				err = n.Close(context.Background())
			}
			return err
		},
		"Node.Standing": func(ctx context.Context) error {
			if err := node.Start(); err != nil {
				return err
			}
			return node.Standing(ctx)
		},
		"Discovery.All":       func(ctx context.Context) error { _, err := services.All(ctx); return err },
		"Discovery.Names":     func(ctx context.Context) error { _, err := services.Names(ctx); return err },
		"Discovery.Instances": func(ctx context.Context) error { _, err := services.Instances(ctx, "web"); return err },
		"Discovery.Register": func(ctx context.Context) error {
			r, err := services.Register(ctx, discovery.Instance[string]{Name: "web"})
			if err == nil {
				err = r.Close(context.Background())
			}
			return err
		},
		"Service.All":    func(ctx context.Context) error { _, err := service.All(ctx); return err },
		"Service.Fresh":  func(ctx context.Context) error { _, err := service.Fresh(ctx); return err },
		"Service.Pick":   func(ctx context.Context) error { _, err := service.Pick(ctx); return err },
		"Cache.Known":    func(ctx context.Context) error { _, err := tree.Known(ctx); return err },
		"Cache.Synced":   func(ctx context.Context) error { _, err := tree.Synced(ctx); return err },
		"Cache.Fresh":    func(ctx context.Context) error { _, err := tree.Fresh(ctx); return err },
		"Cache.Reach":    func(ctx context.Context) error { _, err := tree.Reach(ctx, 1); return err },
		"Roster.Members": func(ctx context.Context) error { _, err := roster.Members(ctx); return err },
		"Roster.Fresh":   func(ctx context.Context) error { _, err := roster.Fresh(ctx); return err },

		// A loop that has no iteration leaves the reason to the status.
		"Cache.Views": func(ctx context.Context) error {
			for range tree.Views(ctx) {
				return nil
			}
			return tree.Status().Err
		},
		"Roster.Changes": func(ctx context.Context) error {
			for range roster.Changes(ctx) {
				return nil
			}
			return roster.Status().Err
		},
		"Service.Changes": func(ctx context.Context) error {
			for range service.Changes(ctx) {
				return nil
			}
			return service.Status().Err
		},

		"Read":          func(ctx context.Context) error { _, err := inspect.Read(ctx, c, "/mutex"); return err },
		"Tree":          func(ctx context.Context) error { _, err := inspect.Tree(ctx, c, "/"); return err },
		"FindDeadlocks": func(ctx context.Context) error { _, err := inspect.FindDeadlocks(ctx, c, "/app"); return err },
	}
	for name, a := range map[string]recipes.Acquirer{
		"Mutex": mutex, "Keyed": keyed.Key("key"), "RWLock.Reader": rw.Reader(), "RWLock.Writer": rw.Writer(),
		"Semaphore": permits, "Semaphore.Permits": permits.Permits(2), "Election": election, "Line": line,
	} {
		v.do[name+".Acquire"] = func(ctx context.Context) error { return release(a.Acquire(ctx)) }
		v.do[name+".TryAcquire"] = func(ctx context.Context) error { return release(a.TryAcquire(ctx)) }
		if list, ok := a.(interface {
			Participants(context.Context) ([]recipes.Participant, error)
		}); ok {
			v.do[name+".Participants"] = func(ctx context.Context) error { _, err := list.Participants(ctx); return err }
		}
	}
	return v
}

// noVerbs are the methods with a context that need no ensemble, or are tested
// elsewhere.
var noVerbs = []string{
	"Mutex.Held", "Semaphore.Held", "Election.Held", "Line.Held", // make no request
	"Node.Set", "Node.Close", "Keyed.Close", "Counter.AwaitRemoval", // belong to what was made before
	"Election.Observe", // TestLookingBelowAMissingChroot
}

// areAll fails the test if a method is neither a verb nor one of noVerbs.
func (v verbs) areAll(t *testing.T) {
	t.Helper()
	for _, value := range v.values {
		of := reflect.TypeOf(value)
		name, _, _ := strings.Cut(of.Elem().Name(), "[")
		for i := range of.NumMethod() {
			m := of.Method(i)
			_, isVerb := v.do[name+"."+m.Name]
			if m.Type.NumIn() > 1 && m.Type.In(1) == reflect.TypeFor[context.Context]() && !isVerb && !slices.Contains(noVerbs, name+"."+m.Name) {
				t.Errorf("%s.%s is not tried", name, m.Name)
			}
		}
	}
}

// Below a chroot that does not exist everything seems to be missing. Who took
// that for an answer passed a barrier that stood elsewhere, counted from zero,
// or saw all permits free. Each verb of each recipe fails, and says which
// chroot is missing, unless the client may create it.
func TestEveryVerbBelowAMissingChroot(t *testing.T) {
	for name, opts := range map[string][]framework.Option{"it must exist": nil, "the client may create it": {framework.WithCreateChroot()}} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				all := verbsOf(t, belowApp(t, w))
				all.areAll(t)
				for i, name := range slices.Sorted(maps.Keys(all.do)) {
					chroot := fmt.Sprint("/app-", i)
					v := verbsOf(t, below(t, w, chroot, opts...))
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					err := v.do[name](ctx)
					cancel()
					says := err != nil && strings.Contains(err.Error(), "chroot "+chroot+" does not exist, and the client was made without WithCreateChroot")
					switch {
					case says != (opts == nil), says && framework.Absent(err):
						t.Errorf("%s: %v", name, err)
					case opts == nil && w.Tree() != "":
						t.Fatalf("%s has created:\n%s", name, w.Tree())
					}
				}
			})
		})
	}
}

// Each listing of all recipes shows what may be read, whatever else is there,
// and says what may not be read. One znode without the right failed them as a
// whole, or was shown as absence.
func TestEveryListingWithAnUnreadableZnode(t *testing.T) {
	core, logged := observer.New(zap.WarnLevel)
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader", framework.WithLogger(zap.New(core)))
		open := w.Connect("open", framework.WithAuth("digest", []byte("owner:secret")))
		shut := w.Connect("shut", framework.WithAuth("digest", []byte("owner:secret")), framework.WithACL(zk.AuthACL(zk.PermAll)...))
		lock := func(c *framework.Client) *locks.Mutex { return made[*locks.Mutex](t)(locks.NewMutex(c, "/mutex")) }
		services := func(c *framework.Client) *discovery.Discovery[string] {
			return made[*discovery.Discovery[string]](t)(discovery.New(c, "/services", discovery.JSON[string]("")))
		}
		group := func(c *framework.Client) *presence.Group {
			return made[*presence.Group](t)(presence.NewGroup(c, "/group"))
		}
		holder := bubble.Acquire(t, t.Context(), lock(open))
		waiter := bubble.Acquiring(t.Context(), lock(shut))
		join := func(c *framework.Client, id string) {
			made[*presence.Node](t)(group(c).Join(t.Context(), id, nil))
			made[*discovery.Registration[string]](t)(services(c).Register(t.Context(), discovery.Instance[string]{Name: "web", ID: id}))
		}
		join(open, "a") // makes the directories
		join(shut, "secret")
		roster, found := group(c).Follow(), services(c)
		defer roster.Close()
		defer found.Close()
		web := made[*discovery.Service[string]](t)(found.Service("web"))
		tree := made[*cache.Cache](t)(cache.New(c, "/group"))
		tree.Start()
		defer tree.Close()
		ofGroup := func(all []presence.Member, err error) (shown string, _ error) {
			for _, m := range all {
				shown += m.ID
			}
			return shown, err
		}
		ofWeb := func(all []discovery.Instance[string], err error) (shown string, _ error) {
			for _, i := range all {
				shown += i.ID
			}
			return shown, err
		}
		for name, list := range map[string]func(ctx context.Context) (shown string, err error){
			"Group.Members": func(ctx context.Context) (string, error) { return ofGroup(group(c).Members(ctx)) },
			"Group.Read": func(ctx context.Context) (string, error) {
				all, unreadable, err := group(c).Read(ctx)
				if !slices.Equal(unreadable, []string{"/group/secret"}) {
					t.Errorf("Group.Read: %q may not be read", unreadable)
				}
				return ofGroup(all, err)
			},
			"Roster.Members":      func(ctx context.Context) (string, error) { return ofGroup(roster.Members(ctx)) },
			"Roster.Fresh":        func(ctx context.Context) (string, error) { return ofGroup(roster.Fresh(ctx)) },
			"Discovery.Instances": func(ctx context.Context) (string, error) { return ofWeb(found.Instances(ctx, "web")) },
			"Service.All":         func(ctx context.Context) (string, error) { return ofWeb(web.All(ctx)) },
			"Service.Fresh":       func(ctx context.Context) (string, error) { return ofWeb(web.Fresh(ctx)) },
			"Service.Pick": func(ctx context.Context) (string, error) {
				one, err := web.Pick(ctx)
				return one.ID, err
			},
			"Cache.Synced": func(ctx context.Context) (string, error) {
				view, err := tree.Synced(ctx)
				shown := ""
				for n := range view.Children("/group") {
					shown += path.Base(n.Path)
				}
				return shown, err
			},
			"Mutex.Participants": func(ctx context.Context) (string, error) {
				// Without one of them the line would be another one.
				if _, err := lock(c).Participants(ctx); !errors.Is(err, zk.ErrNoAuth) {
					return "", fmt.Errorf("want that it may not be read: %w", err)
				}
				return "a", nil
			},
			"inspect.Read": func(ctx context.Context) (string, error) {
				line, err := inspect.Read(ctx, c, "/mutex")
				if len(line.Holders) != 1 || len(line.Waiting) != 1 {
					t.Errorf("inspect.Read: %+v", line)
				}
				return "a", err
			},
		} {
			if shown, err := list(t.Context()); err != nil || shown != "a" {
				t.Errorf("%s shows %q: %v", name, shown, err)
			}
		}
		if got := roster.Status().Unreadable; !slices.Equal(got, []string{"/group/secret"}) {
			t.Errorf("the roster may not read %q", got)
		}
		if got := slices.Collect(tree.View().Unreadable("/")); !slices.Equal(got, tree.Status().Unreadable) || len(got) != 1 {
			t.Errorf("the cache may not read %q", got)
		}
		if got := web.Status(); got.Instances != 1 || len(got.Unreadable) != 1 || !errors.Is(got.Unreadable[0], zk.ErrNoAuth) || !strings.Contains(got.Unreadable[0].Error(), "/services/web/secret") {
			t.Errorf("the service is %+v", got)
		}
		synctest.Wait() // lines are written in the background
		for _, at := range []string{"/group/secret", "/services/web/secret"} {
			if logged.FilterField(zap.String("path", at)).Len() != 1 {
				t.Errorf("%s is not in the log: %+v", at, logged.All())
			}
		}
		bubble.Release(t, holder)
		bubble.Release(t, bubble.Await(t, "the grant", waiter).Lease)
	})
}
