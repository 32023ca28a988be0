package acceptance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// readers are a kind, too, for tests that need no exclusion.
var readers = kind{"read lock", func(c *framework.Client, path string) (recipes.Acquirer, error) {
	rw, err := rwlock.New(c, path)
	if err != nil {
		return nil, err
	}
	return rw.Reader(), nil
}, "", "", false, false}

// Other clients have left znodes at the path, deny access, or leave no room.
// The result is an error that says so, or none, and nothing is left. Known
// failures elsewhere: go-zookeeper, Curator.
func TestHostileSurroundings(t *testing.T) {
	var all []scenario
	for _, k := range append(slices.Clone(kinds), readers) {
		for _, sc := range []struct {
			name string
			play func(t *testing.T, s *stage, k kind)
		}{
			{"foreign children", foreignChildren},
			{"an ACL forbids a step", forbidden},
			{"an ACL forbids to make the path", forbiddenPath},
			{"an ACL hides who is ahead", hiddenPredecessor},
			{"a quota is exceeded", quotaExceeded},
		} {
			all = append(all, scenario{k.name + "/" + sc.name, func(t *testing.T, s *stage) { sc.play(t, s, k) }})
		}
	}
	for _, k := range kinds[:3] {
		all = append(all, scenario{k.name + "/numbers of older servers", func(t *testing.T, s *stage) { oldNumbers(t, s, k) }})
	}
	play(t, 1, all)
}

const foreignID = "_c_2f1b6a5e-9c0d-4e4f-8a39-0f4f6f2c1d77-"

// directories creates the directories of a kind and returns them.
func (k kind) directories(t *testing.T, s *stage) []string {
	t.Helper()
	dirs := []string{s.path}
	if k.line != k.hold {
		dirs = append(dirs, s.path+k.line, s.path+k.hold)
	}
	for _, dir := range dirs {
		if err := s.watcher.MakeContainerPath(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
	}
	return dirs
}

// Names of no known form, however similar to ours, stay as they are and have no
// effect.
func foreignChildren(t *testing.T, s *stage, k kind) {
	k.directories(t, s)
	foreign := []string{
		"config", "_c_", "_c_x", "lock", "lock-12", "clock-0000000001", "0000000000", "-0000000001", "x-lock-00000000000", "lock--0000000001",
		"lock-2147483648", "lock-9999999999", "lock--2147483649", "lock-+000000001", "lock-00000000x1", "lock-0000000001-",
		foreignID, foreignID + "lock-", foreignID + "lock-000000001", foreignID + "R-000000001", foreignID + "latch-00000000001", foreignID + "lease-4294967296",
		"lock-\u0661\u0662\u0663\u0664\u0665\u0666\u0667\u0668\u0669\u0660", "\u9396-0000000001", "l\u00f6ck-0000000001", "lock\u20110000000001", "LOCK-0000000001",
		strings.Repeat("x", 300<<10), strings.Repeat("lock-", 50<<10), strings.Repeat("\u9396", 100<<10),
	}
	for _, name := range foreign {
		if _, err := s.watcher.Create(t.Context(), s.path+k.line+"/"+name, nil, zk.FlagPersistent); err != nil {
			t.Fatal(err)
		}
	}
	first, second := k.of(t, s.join(t).Client, s.path), k.of(t, s.join(t).Client, s.path)
	held := acquire(t, t.Context(), first)
	if k.name != readers.name {
		busy(t, second)
		waiting := acquiring(t.Context(), second)
		pending(t, waiting)
		release(t, held)
		held = granted(t, waiting)
	}
	release(t, held)
	l, err := second.TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	release(t, l)
	s.inLine(t, k.line, len(foreign))
	s.sweep(t, s.path+k.line)
}

// sweep removes the children of a directory.
func (s *stage) sweep(t *testing.T, dir string) {
	t.Helper()
	names, _, err := s.watcher.Children(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := s.watcher.Delete(t.Context(), dir+"/"+name, -1); err != nil {
			t.Fatal(err)
		}
	}
}

// Servers before 3.5 counted on below zero. By its number such a contender came
// long before us or long after us, and is waited for or not.
func oldNumbers(t *testing.T, s *stage, k kind) {
	lasting(t, s.watcher, s.path)
	base := map[string]string{"mutex": "lock-", "election": "latch-", "write lock": "host-W-"}[k.name]
	a := k.of(t, s.join(t).Client, s.path)
	for number, ahead := range map[string]bool{"-000000001": true, "-1073741824": true, "2147483647": false, "1073741824": false} {
		name := s.path + "/" + foreignID + base + number
		if _, err := s.watcher.Create(t.Context(), name, nil, zk.FlagPersistent); err != nil {
			t.Fatal(err)
		}
		if ahead {
			waiting := acquiring(t.Context(), a)
			k.standing(t, s, 0, 2)
			pending(t, waiting)
			if err := s.watcher.Delete(t.Context(), name, -1); err != nil {
				t.Fatal(err)
			}
			release(t, granted(t, waiting))
			continue
		}
		release(t, acquire(t, t.Context(), a))
		if err := s.watcher.Delete(t.Context(), name, -1); err != nil {
			t.Fatal(err)
		}
	}
	release(t, acquire(t, t.Context(), a))
	k.standing(t, s, 0, 0)
}

// without returns an ACL that denies one permission to everybody. A client with
// the credentials of s.operator may restore it.
func without(perm int32) []zk.ACL {
	return append(zk.WorldACL(zk.PermAll&^perm&^zk.PermAdmin), zk.DigestACL(zk.PermAll, "operator", "password")...)
}

// operator is a client to which without denies nothing.
func (s *stage) operator(t *testing.T) *framework.Client {
	t.Helper()
	c, err := framework.New(s.Servers(), framework.WithDialer(s.Dial), framework.WithSessionTimeout(timeout), framework.WithAuth("digest", []byte("operator:password")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // the servers may be gone
	return c
}

// Any step of an Acquire or a Release is forbidden. The call fails at once and
// says so, or did not need the step. If deletes were allowed, nothing is left;
// otherwise it is deleted once that is allowed. Afterwards the lock works as
// before.
func forbidden(t *testing.T, s *stage, k kind) {
	dirs := k.directories(t, s)
	keep(t, s, dirs)
	operator := s.operator(t)
	p := s.join(t)
	a := k.of(t, p.Client, s.path)
	refusals := 0
	for _, dir := range dirs {
		for perm, what := range map[int32]string{zk.PermCreate: "create", zk.PermRead: "read", zk.PermWrite: "write", zk.PermDelete: "delete"} {
			if _, err := operator.SetACL(t.Context(), dir, without(perm), -1); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), load.Patience)
			l, err := a.Acquire(ctx)
			if err == nil {
				err = l.Release(ctx)
			}
			cancel()
			if err != nil {
				refusals++
			}
			if err != nil && !errors.Is(err, zk.ErrNoAuth) {
				t.Errorf("without %s at %s: %v", what, dir, err)
			}
			if took := time.Since(began); took > load.Patience/2 {
				t.Errorf("without %s at %s: it took %v", what, dir, took)
			}
			if perm != zk.PermDelete {
				s.onlyKept(t, operator, dirs)
			}
			if _, err := operator.SetACL(t.Context(), dir, zk.WorldACL(zk.PermAll), -1); err != nil {
				t.Fatal(err)
			}
			s.onlyKept(t, operator, dirs)
			release(t, acquire(t, t.Context(), a))
		}
	}
	if refusals < 2 {
		t.Errorf("%d refusals", refusals)
	}
	if _, err := p.Session(); err != nil {
		t.Errorf("the session was lost: %v", err)
	}
	s.onlyKept(t, operator, dirs)
	s.release(t, dirs)
}

// keep makes the directories stay, though they are containers: each gets a
// child.
func keep(t *testing.T, s *stage, dirs []string) {
	t.Helper()
	for _, dir := range dirs {
		if strings.HasSuffix(dir, "/leases") {
			continue // whatever stands there is a permit that is held
		}
		if _, err := s.watcher.Create(t.Context(), dir+"/kept", nil, zk.FlagPersistent); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *stage) release(t *testing.T, dirs []string) {
	t.Helper()
	for _, dir := range dirs {
		if err := s.watcher.Delete(t.Context(), dir+"/kept", -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
			t.Fatal(err)
		}
	}
}

// onlyKept waits until no contender stands in the directories.
func (s *stage) onlyKept(t *testing.T, c *framework.Client, dirs []string) {
	t.Helper()
	for _, dir := range dirs {
		var left []string
		for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			names, _, err := c.Children(t.Context(), dir)
			if err != nil && !errors.Is(err, zk.ErrNoNode) {
				t.Fatal(err)
			}
			left = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, "_c_") })
			if len(left) == 0 {
				break
			}
			if time.Since(began) > load.Patience {
				judge.Fatalf(t, "left in %s: %v", dir, left)
			}
		}
	}
}

func forbiddenPath(t *testing.T, s *stage, k kind) {
	if err := s.watcher.MakeContainerPath(t.Context(), s.path[:strings.LastIndexByte(s.path, '/')]); err != nil {
		t.Fatal(err)
	}
	operator := s.operator(t)
	if _, err := operator.Create(t.Context(), s.path, nil, zk.FlagPersistent, without(zk.PermCreate)...); err != nil {
		t.Fatal(err)
	}
	a := k.of(t, s.join(t).Client, s.path+"/below/it")
	for _, acquire := range []func(context.Context) (*recipes.Lease, error){a.Acquire, a.TryAcquire} {
		if _, err := acquire(t.Context()); !errors.Is(err, zk.ErrNoAuth) || !strings.Contains(err.Error(), s.path+"/below/it") {
			t.Errorf("acquire below a path that denies creates: %v", err)
		}
	}
	if names, _, err := operator.Children(t.Context(), s.path); err != nil || len(names) > 0 {
		t.Errorf("%v was created, %v", names, err)
	}
}

// A contender that may not read the znode ahead cannot wait for it, says so,
// and leaves.
func hiddenPredecessor(t *testing.T, s *stage, k kind) {
	if k.name == readers.name || k.line != k.hold {
		t.Skip("the znode ahead is not watched")
	}
	k.directories(t, s)
	net := s.ClientNet(fmt.Sprint("hidden ", t.Name()))
	c, err := framework.New(s.Servers(), framework.WithDialer(net.Dial), framework.WithSessionTimeout(timeout),
		framework.WithACL(without(zk.PermRead)...), framework.WithAuth("digest", []byte("operator:password")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	held := acquire(t, t.Context(), k.of(t, c, s.path))
	other := k.of(t, s.join(t).Client, s.path)
	refused(t, acquiring(t.Context(), other), zk.ErrNoAuth)
	s.inLine(t, "", 1)
	busy(t, other)
	release(t, held)
	release(t, acquire(t, t.Context(), other))
	k.standing(t, s, 0, 0)
}

// codeQuotaExceeded is the error code of a server that enforces quotas.
const codeQuotaExceeded testutil.Code = -125

func quotaExceeded(t *testing.T, s *stage, k kind) {
	p := s.join(t)
	a := k.of(t, p.Client, s.path)
	release(t, acquire(t, t.Context(), a))
	ops := []testutil.Op{testutil.OpCreate}
	if k.line != k.hold {
		ops = append(ops, testutil.OpMulti)
	}
	for _, op := range ops {
		p.upon(t, testutil.Match{Op: op, Path: s.path + "/"}, testutil.Fail(codeQuotaExceeded))
		_, err := a.Acquire(t.Context())
		if !isQuota(err) {
			t.Errorf("%v: %v", op, err)
		}
		k.standing(t, s, 0, 0)
		release(t, acquire(t, t.Context(), a))
	}
	k.standing(t, s, 0, 0)
}

func isQuota(err error) bool { return err != nil && strings.Contains(err.Error(), "quota exceeded") }
