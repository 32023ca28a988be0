package managed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// below returns a client with a chroot.
func below(t *testing.T, ens *testutil.Embedded, chroot string, opts ...framework.Option) *framework.Client {
	t.Helper()
	network := ens.ClientNet(fmt.Sprint("client ", clients.Add(1)))
	opts = append([]framework.Option{framework.WithSessionTimeout(timeout), framework.WithDialer(network.Dial)}, opts...)
	c, err := framework.New(ens.Servers()+chroot, opts...)
	must(t, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	must(t, c.WaitConnected(within(t, time.Minute)))
	return c
}

// creates are the ways to create a znode below the root of a client.
var creates = map[string]func(t *testing.T, c *framework.Client, path string) error{
	"Create": func(t *testing.T, c *framework.Client, path string) error {
		_, err := c.Create(t.Context(), path, nil, zk.FlagSequence)
		return err
	},
	"CreateTTL": func(t *testing.T, c *framework.Client, path string) error {
		_, err := c.CreateTTL(t.Context(), path, nil, zk.FlagTTL, time.Hour)
		return err
	},
	"Multi": func(t *testing.T, c *framework.Client, path string) error {
		_, err := c.Multi(t.Context(), &zk.CreateRequest{Path: path}, &zk.DeleteRequest{Path: path, Version: -1})
		return err
	},
	"MakeContainerPath": func(t *testing.T, c *framework.Client, path string) error {
		return c.MakeContainerPath(t.Context(), path)
	},
	"MakePersistentPath": func(t *testing.T, c *framework.Client, path string) error {
		return c.MakePersistentPath(t.Context(), path+"/b/c")
	},
	"the root": func(t *testing.T, c *framework.Client, path string) error {
		return c.MakeContainerPath(t.Context(), "/")
	},
}

// The connection is lost between an answer that says that there is no znode and
// the look at the chroot. Who took that for an empty line took a missing chroot
// for one.
func TestAMissingChrootIsLookedForAgain(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := below(t, w.Embedded, "/app")
		lost := testutil.NewFault(testutil.Match{Op: testutil.OpExists, Path: "/app"}, testutil.DropBefore())
		defer w.Control(lost.Control)()
		if _, _, err := c.Children(t.Context(), "/locks"); !errors.As(err, new(interface{ MissingChroot() string })) || !errors.Is(err, zk.ErrNoNode) {
			t.Error(err)
		}
		bubble.Await(t, "the look", lost.Hit())
	})
}

// The look at the chroot ends without an answer. Then the error does not say
// that there is no znode: the chroot may be missing.
func TestNobodyKnowsWhetherTheChrootExists(t *testing.T) {
	for _, canceled := range []bool{false, true} {
		t.Run(fmt.Sprint("canceled ", canceled), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c := below(t, w.Embedded, "/app")
				var s *framework.Session
				reads := map[string]func(context.Context) error{
					"Get":      func(ctx context.Context) error { _, _, err := s.Get(ctx, "/a"); return err },
					"Watch":    func(ctx context.Context) error { _, err := s.Watch(ctx, "/a"); return err },
					"Children": func(ctx context.Context) error { _, _, err := s.Children(ctx, "/a"); return err },
					"ReadAll": func(ctx context.Context) error {
						results, err := s.ReadAll(ctx, framework.Read{Path: "/a"})
						if err == nil {
							err = results[0].Err
						}
						return err
					},
				}
				for name, read := range reads {
					must(t, c.WaitConnected(t.Context()))
					s = session(t, c)
					ctx, cancel := context.WithCancel(t.Context())
					defer w.Control(func(r testutil.Request) testutil.Action {
						switch {
						case r.Op != testutil.OpExists || r.Path != "/app":
							return testutil.Pass()
						case canceled:
							cancel()
							return testutil.DropBefore()
						}
						return testutil.Fail(testutil.CodeSessionExpired)
					})()
					if err := read(ctx); err == nil || errors.Is(err, zk.ErrNoNode) {
						t.Errorf("%s: %v", name, err)
					}
				}
			})
		})
	}
}

// A chroot that was found is looked for again in the next connection: somebody
// may have removed it, or the ensemble was made anew.
func TestAChrootThatIsGoneAfterAReconnect(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		operator, _ := connect(t, ens)
		must(t, operator.MakePersistentPath(t.Context(), "/app"))
		c := below(t, ens, "/app")
		look := func() (isMissing bool) {
			_, _, err := c.Children(t.Context(), "/locks")
			return errors.As(err, new(interface{ MissingChroot() string }))
		}
		if look() {
			t.Error("it exists")
		}
		must(t, operator.Delete(t.Context(), "/app", -1))
		must(t, ens.DropConnections(session(t, c).ID()))
		time.Sleep(timeout)
		ens.ResetRequests()
		if !look() {
			t.Error("it does not exist")
		}
		must(t, operator.MakePersistentPath(t.Context(), "/app"))
		look()
		before := ens.Requests()[testutil.OpExists]
		if look(); ens.Requests()[testutil.OpExists] != before {
			t.Error("it is looked for twice")
		}
	})
}

// The recipes, and MakeContainerPath, created a chroot that did not exist. Two
// services that spelled it differently had two locks instead of one.
func TestAMissingChrootIsNotCreated(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		ens := w.Embedded
		c := below(t, ens, "/team/app")
		ns, err := c.Namespace("ns")
		must(t, err)
		for name, create := range creates {
			for _, c := range []*framework.Client{c, ns} {
				err := create(t, c, "/a")
				if !errors.Is(err, zk.ErrNoNode) || framework.MaybeApplied(err) ||
					!strings.Contains(err.Error(), "chroot /team/app does not exist, and the client was made without WithCreateChroot: ") {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		if tree := ens.Tree(); tree != "" {
			t.Errorf("created:\n%s", tree)
		}
	}, testutil.WithMembers(3), testutil.WithExtendedTypes())
}

// With the option, every way to create a znode creates the chroot, as
// persistent znodes, with the client's ACL; also if it is deleted while the
// client is in use.
func TestWithCreateChroot(t *testing.T) {
	for name, create := range creates {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				ens := w.Embedded
				acl := zk.DigestACL(zk.PermAll, "app", "pw")
				c := below(t, ens, "/team/app", framework.WithCreateChroot(), framework.WithAuth("digest", []byte("app:pw")), framework.WithACL(acl...))
				owner, _ := connect(t, ens, framework.WithAuth("digest", []byte("app:pw")))
				for range 2 {
					if _, _, err := c.Get(t.Context(), "/a"); !errors.Is(err, zk.ErrNoNode) || ens.Exists("/team") {
						t.Fatalf("a read: %v; tree:\n%s", err, ens.Tree())
					}
					must(t, create(t, c, "/a"))
					for _, path := range []string{"/team", "/team/app"} {
						if !strings.Contains("\n"+ens.Tree(), "\n"+path+"\n") { // anything behind the path says that it is no plain persistent znode
							t.Errorf("%s is not persistent:\n%s", path, ens.Tree())
						}
						if got, _, err := owner.GetACL(t.Context(), path); err != nil || len(got) != 1 || got[0].ID != acl[0].ID {
							t.Errorf("%s has the ACL %v, %v", path, got, err)
						}
					}
					wipe(t, owner, "/team")
				}
			}, testutil.WithMembers(3), testutil.WithExtendedTypes())
		})
	}
}

// wipe deletes a znode and all below it.
func wipe(t *testing.T, c *framework.Client, path string) {
	t.Helper()
	names, _, err := c.Children(t.Context(), path)
	must(t, err)
	for _, name := range names {
		wipe(t, c, path+"/"+name)
	}
	must(t, c.Delete(t.Context(), path, -1))
}

// Several clients create the chroot at once, while answers are lost or late.
// All succeed, each create is executed once, and none is said to be doubtful.
func TestTheChrootIsCreatedByManyAtOnce(t *testing.T) {
	for fault, action := range map[string]testutil.Action{
		"none":              testutil.Pass(),
		"late":              testutil.Delay(time.Second),
		"request lost":      testutil.DropBefore(),
		"answer lost":       testutil.DropAfter(),
		"answer comes late": testutil.DelayReply(time.Second),
	} {
		t.Run(fault, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				var mu sync.Mutex
				disturbed := map[string]bool{}
				defer ens.Control(func(r testutil.Request) testutil.Action {
					mu.Lock()
					defer mu.Unlock()
					if who := fmt.Sprint(r.Session, r.Path); r.Op == testutil.OpCreate && (r.Path == "/team" || r.Path == "/team/app") && !disturbed[who] {
						disturbed[who] = true
						return action
					}
					return testutil.Pass()
				})()
				const many = 4
				errs := make(chan error, 2*many)
				for range many {
					one := below(t, ens, "/team/app", framework.WithCreateChroot())
					two := below(t, ens, "/team/app", framework.WithCreateChroot())
					go func() {
						_, err := one.Create(t.Context(), "/s-", nil, zk.FlagSequence)
						errs <- err
					}()
					go func() { errs <- two.MakeContainerPath(t.Context(), "/lines/x") }()
				}
				for range 2 * many {
					if err := <-errs; err != nil {
						t.Error(err)
					}
				}
				if n := strings.Count(ens.Tree(), "/team/app/s-"); n != many {
					t.Errorf("%d sequential znodes of %d:\n%s", n, many, ens.Tree())
				}
			})
		})
	}
}

// Another client creates the chroot right after a create has missed it. The
// create is made again, although the chroot is there by then.
func TestTheChrootComesMeanwhile(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		other, _ := connect(t, ens)
		c := below(t, ens, "/app", framework.WithCreateChroot())
		defer ens.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpCreate && r.Path == "/app" && r.Session == session(t, c).ID() {
				return testutil.Delay(time.Second)
			}
			return testutil.Pass()
		})()
		time.AfterFunc(time.Second/2, func() {
			if _, err := other.Create(t.Context(), "/app", nil, 0); err != nil {
				t.Error(err)
			}
		})
		if path, err := c.Create(t.Context(), "/a", nil, 0); err != nil || path != "/a" {
			t.Errorf("Create: %q, %v", path, err)
		}
	})
}

// Where the chroot exists, nothing is asked about it. Namespaces are created on
// demand, as containers, with and without the option.
func TestAnExistingChrootCostsNothing(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		all, _ := connect(t, ens)
		must(t, all.MakePersistentPath(t.Context(), "/team/app"))
		for name, opts := range map[string][]framework.Option{"without": nil, "with": {framework.WithCreateChroot()}} {
			c := below(t, ens, "/team/app", opts...)
			ns, err := c.Namespace(name)
			must(t, err)
			ens.ResetRequests()
			must(t, ns.MakeContainerPath(t.Context(), "/"))
			must(t, ns.MakeContainerPath(t.Context(), "/a"))
			_, err = ns.Create(t.Context(), "/b", nil, 0)
			must(t, err)
			asked := ens.Requests()
			if n := asked[testutil.OpCreate] + asked[testutil.OpCreateContainer]; n != 3 || asked[testutil.OpExists] != 0 {
				t.Errorf("%s: asked %v for three creates", name, asked)
			}
			if !strings.Contains(ens.Tree(), "/team/app/"+name+" container") {
				t.Errorf("%s: the namespace is no container:\n%s", name, ens.Tree())
			}
		}
	})
}

// The chroot is deleted while a client is in use. Its creates fail until
// somebody has created it again, and then the client goes on.
func TestTheChrootIsDeletedMeanwhile(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		all, _ := connect(t, ens)
		c := below(t, ens, "/app")
		for range 2 {
			must(t, all.MakePersistentPath(t.Context(), "/app"))
			must(t, c.MakeContainerPath(t.Context(), "/locks/x"))
			if _, _, err := c.Get(t.Context(), "/nothing"); !errors.Is(err, zk.ErrNoNode) || strings.Contains(err.Error(), "chroot") {
				t.Errorf("a read: %v", err)
			}
			wipe(t, all, "/app")
			if err := c.MakeContainerPath(t.Context(), "/locks/x"); !errors.Is(err, zk.ErrNoNode) || !strings.Contains(err.Error(), "chroot /app does not exist") {
				t.Errorf("MakeContainerPath: %v", err)
			}
			if _, _, err := c.Get(t.Context(), "/nothing"); !errors.Is(err, zk.ErrNoNode) || !strings.Contains(err.Error(), "chroot /app does not exist") {
				t.Errorf("a read: %v", err)
			}
		}
	})
}

// A client that may not create the chroot says so. A chroot that it may not
// read is there.
func TestTheChrootMayNotBeCreated(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		owner, _ := connect(t, ens, framework.WithAuth("digest", []byte("app:pw")))
		_, err := owner.Create(t.Context(), "/secret", nil, 0, zk.DigestACL(zk.PermAll, "app", "pw")...)
		must(t, err)
		_, err = owner.Create(t.Context(), "/secret/app", nil, 0, zk.WorldACL(zk.PermCreate)...)
		must(t, err)
		stranger := below(t, ens, "/secret/none", framework.WithCreateChroot())
		for name, create := range creates {
			if name == "CreateTTL" {
				continue // this ensemble has none
			}
			if err := create(t, stranger, "/a"); !errors.Is(err, zk.ErrNoAuth) || !strings.Contains(err.Error(), "/secret/none") {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, opt := range [][]framework.Option{nil, {framework.WithCreateChroot()}} {
			c := below(t, ens, "/secret/app", opt...)
			must(t, c.MakePersistentPath(t.Context(), fmt.Sprint("/a", len(opt), "/b")))
			if err := c.MakePersistentPath(t.Context(), "/"); opt == nil && err != nil {
				t.Errorf("the chroot may not be read: %v", err)
			}
		}
	})
}

// Under a chroot and a namespace every operation uses the paths of the
// namespace. The chroot and the server list survive an expiry. An empty list is
// an error. Known failures elsewhere: CURATOR-455, -593, -583.
func TestChrootAndNamespace(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		network := ens.ClientNet("chrooted")
		root, err := framework.New(ens.Servers()+"/apps/one", framework.WithDialer(network.Dial), framework.WithCreateChroot())
		must(t, err)
		defer root.Close()
		c, err := root.Namespace("locks")
		must(t, err)
		ctx := t.Context()
		must(t, c.MakeContainerPath(ctx, "/a/b"))
		if !ens.Exists("/apps/one/locks/a/b") {
			t.Fatalf("tree:\n%s", ens.Tree())
		}
		if path, err := c.Create(ctx, "/a/b/s-", nil, zk.FlagSequence); err != nil || path != "/a/b/s-0000000000" {
			t.Errorf("Create: %q, %v", path, err)
		}
		if path, err := root.Create(ctx, "/locks/x", nil, 0); err != nil || path != "/locks/x" {
			t.Errorf("Create: %q, %v", path, err)
		}
		ops := []any{&zk.CreateRequest{Path: "/y"}}
		for range 2 { // the caller's ops stay as they are
			if r, err := c.Multi(ctx, ops...); err == nil && r[0].String != "/y" || err != nil && !errors.Is(err, zk.ErrNodeExists) {
				t.Errorf("Multi: %+v, %v", r, err)
			}
		}
		s := session(t, c)
		made, err := s.CreateProtected(ctx, "/a/b", "lock-", nil, zk.FlagEphemeral|zk.FlagSequence)
		if err != nil || !ens.Exists("/apps/one/locks"+made.Path) || len(made.Children) != 2 {
			t.Errorf("CreateProtected: %+v, %v", made, err)
		}
		values, err := c.WatchData(ctx, "/y")
		must(t, err)
		<-values
		if _, err := c.Set(ctx, "/y", []byte("new"), -1); err != nil {
			t.Error(err)
		}
		if v := <-values; string(v.Data) != "new" {
			t.Errorf("watched %+v", v)
		}
		if got := c.Resolve("/y"); got != "/apps/one/locks/y" {
			t.Errorf("Resolve: %s", got)
		}
		if names, _, err := c.Children(ctx, "/"); err != nil || len(names) != 3 {
			t.Errorf("Children of the root: %v, %v", names, err)
		}
		// The next session has the same chroot, and the same servers to go to.
		must(t, ens.ExpireSession(s.ID()))
		<-s.Done()
		must(t, c.WaitConnected(ctx))
		must(t, ens.Stop(memberOf(t, ens, session(t, c).ID())))
		synctest.Wait() // the client knows that the connection has ended
		if path, err := c.Create(ctx, "/later", nil, 0); err != nil || path != "/later" || !ens.Exists("/apps/one/locks/later") {
			t.Errorf("Create in the next session: %q, %v", path, err)
		}
	})
}

// If the chroot was missing, the error named the znode below it, and users
// looked for its parent.
func TestAMissingChrootIsNamed(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		network := ens.ClientNet("below a chroot")
		root, err := framework.New(ens.Servers()+"/app", framework.WithSessionTimeout(timeout), framework.WithDialer(network.Dial))
		must(t, err)
		defer root.Close()
		all, _ := connect(t, ens)
		ns, err := root.Namespace("ns")
		must(t, err)
		ops := map[string]func(c *framework.Client) error{
			"create": func(c *framework.Client) error { _, err := c.Create(t.Context(), "/a", nil, 0); return err },
			"get":    func(c *framework.Client) error { return second(c.Get(t.Context(), "/a")) },
			"set":    func(c *framework.Client) error { _, err := c.Set(t.Context(), "/a", nil, -1); return err },
			"delete": func(c *framework.Client) error { return c.Delete(t.Context(), "/a", -1) },
			"list":   func(c *framework.Client) error { return second(c.Children(t.Context(), "/a")) },
			"multi": func(c *framework.Client) error {
				_, err := c.Multi(t.Context(), &zk.CreateRequest{Path: "/a"})
				return err
			},
		}
		named := func(c *framework.Client, text string) {
			t.Helper()
			for op, do := range ops {
				err := do(c)
				prefix := op + " /a: "
				if op == "multi" {
					prefix = "multi: create /a: "
				}
				if !errors.Is(err, zk.ErrNoNode) || !strings.HasPrefix(err.Error(), prefix+text) || framework.MaybeApplied(err) ||
					text == "" && err.Error() != prefix+zk.ErrNoNode.Error() {
					t.Errorf("%s: %v, want %q in it", op, err, text)
				}
			}
		}
		const missing = "chroot /app does not exist, and the client was made without WithCreateChroot: "
		named(root, missing)
		named(ns, missing)
		_, err = all.Create(t.Context(), "/app", nil, 0)
		must(t, err)
		delete(ops, "create")
		delete(ops, "multi")
		named(root, "")
		named(ns, "namespace /app/ns does not exist")
		must(t, ns.MakeContainerPath(t.Context(), "/"))
		named(ns, "")
		ens.ResetRequests()
		named(ns, "")
		if n := ens.Requests()[testutil.OpExists]; n != 0 {
			t.Errorf("%d more requests to look for what is known", n)
		}
	})
}
