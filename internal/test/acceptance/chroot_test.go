package acceptance_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// chrootKinds are all kinds, and those whose directories are persistent.
var chrootKinds = append(slices.Clip(kinds),
	kind{name: "mutex for Kazoo", make: func(c *framework.Client, path string) (recipes.Acquirer, error) {
		return locks.NewMutex(c, path, locks.WithLayout(locks.LayoutKazoo))
	}},
	kind{name: "write lock for Kazoo", make: func(c *framework.Client, path string) (recipes.Acquirer, error) {
		rw, err := rwlock.New(c, path, rwlock.WithLayout(rwlock.LayoutKazoo))
		if err != nil {
			return nil, err
		}
		return rw.Writer(), nil
	}})

// belowApp returns a client with the chroot /app.
func belowApp(t *testing.T, w *bubble.World, opts ...framework.Option) *framework.Client {
	t.Helper()
	return below(t, w, "/app", opts...)
}

func below(t *testing.T, w *bubble.World, chroot string, opts ...framework.Option) *framework.Client {
	t.Helper()
	c, err := framework.New(w.Servers()+chroot, append(opts, framework.WithDialer(w.Dial))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Each recipe created a chroot that did not exist. Two processes that spelled
// it differently both held "the" lock. It is an error that names the chroot, at
// once and for all who wait, and nothing is created. It does not matter how
// deep the path is.
func TestARecipeCreatesNoChroot(t *testing.T) {
	for _, k := range chrootKinds {
		for _, path := range []string{"/lock", "/locks/of/mine"} {
			t.Run(k.name+" "+path, func(t *testing.T) {
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					missing := func(what string, err error) {
						t.Helper()
						if !errors.Is(err, zk.ErrNoNode) || !strings.Contains(err.Error(), "chroot /app does not exist, and the client was made without WithCreateChroot") {
							t.Errorf("%s: %v", what, err)
						}
					}
					a := k.of(t, belowApp(t, w), path)
					began := time.Now()
					_, err := a.Acquire(t.Context())
					missing("Acquire", err)
					_, err = a.TryAcquire(t.Context())
					missing("TryAcquire", err)
					if took := time.Since(began); took > time.Second {
						t.Errorf("it took %v", took)
					}
					if tree := w.Tree(); tree != "" {
						t.Errorf("created:\n%s", tree)
					}

					ok := k.of(t, belowApp(t, w, framework.WithCreateChroot()), path)
					bubble.Release(t, bubble.Acquire(t, t.Context(), ok))
					bubble.Release(t, bubble.Acquire(t, t.Context(), a))
					if !strings.Contains("\n"+w.Tree(), "\n/app\n") {
						t.Errorf("the chroot is no plain persistent znode:\n%s", w.Tree())
					}
				})
			})
		}
	}
}

// The chroot is deleted with all that is in it while others hold and wait. The
// holder loses its lease, those who wait get the error, and once the chroot is
// there again all go on. A client that may create it goes on at once.
func TestTheChrootIsDeletedUnderRecipes(t *testing.T) {
	for _, k := range chrootKinds {
		t.Run(k.name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				plain := w.Connect("plain")
				makeApp := func() {
					t.Helper()
					if err := plain.MakePersistentPath(t.Context(), "/app"); err != nil {
						t.Fatal(err)
					}
				}
				makeApp()
				held := bubble.Acquire(t, t.Context(), k.of(t, belowApp(t, w), "/lock"))
				waits := k.of(t, belowApp(t, w), "/lock")
				waiting := bubble.Acquiring(t.Context(), waits)
				time.Sleep(time.Second)
				wipe(t, plain, "/app")
				bubble.Await(t, "the loss", held.Lost())
				select {
				case r := <-waiting:
					if !errors.Is(r.Err, zk.ErrNoNode) || !strings.Contains(r.Err.Error(), "chroot /app does not exist") {
						t.Errorf("the waiter gets %v, %v", r.Lease, r.Err)
					}
				case <-time.After(time.Minute):
					t.Fatal("the waiter still waits")
				}
				makeApp()
				bubble.Release(t, bubble.Acquire(t, t.Context(), waits))
				wipe(t, plain, "/app")
				bubble.Release(t, bubble.Acquire(t, t.Context(), k.of(t, belowApp(t, w, framework.WithCreateChroot()), "/lock")))
			})
		})
	}
}

// wipe deletes a znode and all below it, in one transaction: a waiter cannot
// come back in between.
func wipe(t *testing.T, c *framework.Client, path string) {
	t.Helper()
	var all []any
	var collect func(path string)
	collect = func(path string) {
		names, _, err := c.Children(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			collect(path + "/" + name)
		}
		all = append(all, &zk.DeleteRequest{Path: path, Version: -1})
	}
	collect(path)
	if _, err := c.Multi(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
}

// A candidate below a chroot that does not exist campaigned without end and
// without a word.
func TestRunEndsWithoutAChroot(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		e, err := leader.New(belowApp(t, w), "/leader")
		if err != nil {
			t.Fatal(err)
		}
		ran := make(chan error, 1)
		go func() {
			ran <- e.Run(t.Context(), func(context.Context, *recipes.Lease) error { return leader.ErrStop })
		}()
		select {
		case err := <-ran:
			if !errors.Is(err, zk.ErrNoNode) || !strings.Contains(err.Error(), "chroot /app does not exist") {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(time.Hour):
			t.Fatal("Run still campaigns")
		}
	})
}

// Those who only look took a missing chroot for an empty line, without end. It
// is an error for them as well, and an empty line for a client that may create
// it.
func TestLookingBelowAMissingChroot(t *testing.T) {
	onBoth(t, 1, func(t *testing.T, ens testutil.Ensemble) {
		below := func(opts ...framework.Option) *framework.Client {
			c, err := framework.New(ens.Servers()+"/app", append(opts, framework.WithDialer(ens.Dial))...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		type looks struct {
			name string
			look func() error
		}
		looksOf := func(c *framework.Client) []looks {
			of := []looks{
				{"WatchData", func() error { _, err := c.WatchData(t.Context(), "/a"); return err }},
				{"WatchChildren", func() error { _, err := c.WatchChildren(t.Context(), "/a"); return err }},
				{"Leader", func() error {
					_, err := made[*leader.Election](t)(leader.New(c, "/leader")).Leader(t.Context())
					if errors.Is(err, leader.ErrNoLeader) {
						return nil
					}
					return err
				}},
			}
			for _, k := range kinds {
				list := k.of(t, c, "/line").(interface {
					Participants(context.Context) ([]recipes.Participant, error)
				})
				of = append(of, looks{"Participants of a " + k.name, func() error { _, err := list.Participants(t.Context()); return err }})
			}
			return of
		}
		plain, creates := below(), below(framework.WithCreateChroot())
		for _, l := range looksOf(plain) {
			if err := l.look(); !errors.Is(err, zk.ErrNoNode) || !strings.Contains(err.Error(), "chroot /app does not exist, and the client was made without WithCreateChroot") {
				t.Errorf("%s: %v", l.name, err)
			}
		}
		election := made[*leader.Election](t)(leader.New(plain, "/leader"))
		leaders := election.Observe(t.Context())
		if _, err := election.Acquire(t.Context()); !errors.Is(err, zk.ErrNoNode) || !strings.Contains(err.Error(), "chroot /app does not exist") {
			t.Errorf("Acquire: %v", err)
		}
		for _, l := range looksOf(creates) {
			if err := l.look(); err != nil {
				t.Errorf("%s of a client that may create the chroot: %v", l.name, err)
			}
		}
		select {
		case now := <-leaders:
			t.Errorf("Observe reports %+v", now)
		default:
		}
		if _, err := creates.Create(t.Context(), "/a", nil, 0); err != nil {
			t.Fatal(err)
		}
		for _, l := range looksOf(plain) {
			if err := l.look(); err != nil {
				t.Errorf("%s below the chroot: %v", l.name, err)
			}
		}
		select {
		case now := <-leaders:
			if now.Path != "" {
				t.Errorf("Observe reports %+v", now)
			}
		case <-time.After(time.Minute):
			t.Error("Observe does not go on once the chroot is there")
		}
	})
}

// An observer that has told of a leader tells that there is none when the
// chroot is deleted with it, and who leads once it is there again.
func TestTheChrootIsDeletedUnderAnObserver(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		plain := w.Connect("plain")
		creates := belowApp(t, w, framework.WithCreateChroot())
		candidate := made[*leader.Election](t)(leader.New(creates, "/leader"))
		bubble.Acquire(t, t.Context(), candidate)
		leaders := made[*leader.Election](t)(leader.New(belowApp(t, w), "/leader")).Observe(t.Context())
		next := func() (now recipes.Participant) {
			t.Helper()
			select {
			case now = <-leaders:
			case <-time.After(time.Minute):
				t.Fatal("nothing is reported")
			}
			return now
		}
		if now := next(); now.Path == "" {
			t.Error("no leader is reported")
		}
		wipe(t, plain, "/app")
		if now := next(); now.Path != "" {
			t.Errorf("a deleted leader is reported: %+v", now)
		}
		bubble.Release(t, bubble.Acquire(t, t.Context(), candidate))
		bubble.Acquire(t, t.Context(), candidate)
		if now := next(); now.Path == "" {
			t.Error("the next leader is not reported")
		}
	})
}

// Clients of a real server that come at once find no chroot. With the option
// they make it, once, and contend in the same lines. Without it one gets an
// error, before the chroot is there, and stands in line after that.
func TestMissingChrootsOnTheRealServer(t *testing.T) {
	t.Parallel()
	ens := apache.Start(t, 1)
	servers := ens.Servers() + "/team/app"
	open := func(opts ...framework.Option) *framework.Client {
		c, err := framework.New(servers, append(opts, framework.WithSessionTimeout(timeout))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	plain, all := open(), client(t, ens)
	for _, k := range chrootKinds {
		if _, err := k.of(t, plain, "/"+k.name[:5]).Acquire(t.Context()); !errors.Is(err, zk.ErrNoNode) ||
			!strings.Contains(err.Error(), "chroot /team/app does not exist, and the client was made without WithCreateChroot") {
			t.Errorf("%s: %v", k.name, err)
		}
	}
	if made, _, err := all.Exists(t.Context(), "/team"); err != nil || made {
		t.Fatalf("a client without the option made the chroot: %v, %v", made, err)
	}
	ready := make(chan struct{})
	var first []<-chan grant
	for range 4 {
		c := open(framework.WithCreateChroot())
		if err := c.WaitConnected(t.Context()); err != nil {
			t.Fatal(err)
		}
		ended := make(chan grant, 1)
		lock := kinds[0].of(t, c, "/first")
		go func() {
			<-ready
			l, err := lock.Acquire(t.Context())
			if err == nil {
				err = l.Release(t.Context())
			}
			ended <- grant{l, err, time.Now()}
		}()
		first = append(first, ended)
	}
	close(ready)
	for _, ended := range first {
		if g := outcome(t, ended); g.err != nil {
			t.Error(g.err)
		}
	}
	for _, path := range []string{"/team", "/team/app"} {
		_, stat, err := all.Get(t.Context(), path)
		if err != nil || stat.EphemeralOwner != 0 { // a container shows the least possible one
			t.Errorf("%s: owner %#x, %v", path, stat.EphemeralOwner, err)
		}
	}
	c := muster(t, &stage{ens, "/crew", open(framework.WithCreateChroot())}, servers, timeout, framework.WithCreateChroot())
	waiting := acquiring(t.Context(), kinds[0].of(t, plain, c.held[0].at.path))
	inLine(t, plain, c.held[0].at.path, 3)
	c.keeps(t)
	release(t, c.held[0].lease)
	release(t, granted(t, c.held[0].next))
	release(t, granted(t, waiting))
	c.held[0].lease = acquire(t, t.Context(), kinds[0].of(t, c.peers[0].Client, c.held[0].at.path))
	c.held[0].next = acquiring(t.Context(), kinds[0].of(t, c.peers[1].Client, c.held[0].at.path))
	c.disband(t)
}
