package cache_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// Three real members are replaced behind their addresses: rebuilt from nothing
// by the same script with other data, and restored from a copy that has the
// session, in which a later leader has a higher epoch.
func TestAnotherHistoryOfTheRealServers(t *testing.T) {
	ens := apache.Start(t, 3)
	script := func(data string) {
		c := realClient(t, ens, "provisioner")
		provisioned(t, 0, data)(c)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	script("old")
	c := realClient(t, ens, "reader")
	caches := map[string]*cache.Cache{"a recursive watch": synced(t, c), "one-shot watches": synced(t, c, cache.WithOneShotWatches())}
	check := func(t *testing.T) {
		t.Helper()
		want := realTruth(t, c, root)
		for name, k := range caches {
			if got := text(view(t, k.Fresh)); got != want {
				t.Errorf("%s: the view is\n%s\nand the truth\n%s", name, got, want)
			}
			stat := set(t, c, root+"/a", name)
			v, err := k.Reach(t.Context(), stat.Mzxid)
			if n, _ := v.Get(root + "/a"); err != nil || string(n.Data) != name {
				t.Errorf("%s: Reach has returned %q, %v", name, n.Data, err)
			}
			want = realTruth(t, c, root)
		}
	}
	t.Run("rebuilt", func(t *testing.T) {
		for try := 1; ; try++ { // members that start at different times may have elected twice
			_, before, err := c.Exists(t.Context(), root)
			id := realSession(t, c)
			ens.ClientNet("reader").Cut()
			replaceReal(t, ens, "")
			script(fmt.Sprint("new ", try))
			ens.ClientNet("reader").Heal()
			ens.ClientNet("reader").Drop()
			for realSession(t, c) == id { // its servers hang up on it for a session timeout
				time.Sleep(100 * time.Millisecond)
			}
			_, now, existsErr := c.Exists(t.Context(), root)
			if err = errors.Join(err, existsErr); err != nil {
				t.Fatal(err)
			}
			check(t)
			if t.Logf("czxid %x, and before %x", now.Czxid, before.Czxid); now.Czxid == before.Czxid || t.Failed() {
				break
			}
			if try == 5 {
				t.Fatal("the script has never made the same transactions, so the test shows nothing")
			}
		}
	})
	t.Run("restored", func(t *testing.T) {
		id := realSession(t, c)
		if err := c.Sync(t.Context(), "/"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // the followers have written all of it
		copied := t.TempDir()
		for member := range ens.Members() {
			if err := os.CopyFS(filepath.Join(copied, fmt.Sprint(member)), os.DirFS(filepath.Join(ens.DataDir(member), "version-2"))); err != nil {
				t.Fatal(err)
			}
		}
		create(t, c, root+"/late", "")
		remove(t, c, root+"/b")
		last := set(t, c, root, "late")
		check(t)
		replaceReal(t, ens, copied)
		if err := c.Sync(t.Context(), "/"); err != nil {
			t.Fatal(err)
		}
		if realSession(t, c) != id {
			t.Fatal("the session has not been resumed, so the test shows nothing")
		}
		check(t)
		if now := set(t, c, root, "again"); now.Mzxid>>32 <= last.Mzxid>>32 {
			t.Errorf("transaction %x after %x: the epoch is no higher", now.Mzxid, last.Mzxid)
		}
		check(t)
	})
}

// replaceReal restarts all members with copies of their data, or with none.
func replaceReal(t *testing.T, ens *apache.Ensemble, copies string) {
	t.Helper()
	for member := range ens.Members() {
		if err := ens.Stop(member); err != nil {
			t.Fatal(err)
		}
	}
	for member := range ens.Members() {
		data := filepath.Join(ens.DataDir(member), "version-2")
		err := os.RemoveAll(data)
		if copies != "" {
			err = errors.Join(err, os.CopyFS(data, os.DirFS(filepath.Join(copies, fmt.Sprint(member)))))
		}
		if err = errors.Join(err, ens.Restart(member)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := ens.WaitServing(ctx); err != nil {
		t.Fatal(err)
	}
}

func realClient(t *testing.T, ens *apache.Ensemble, name string) *framework.Client {
	t.Helper()
	c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(30*time.Second), framework.WithRetry(retry.Forever(50*time.Millisecond)),
		framework.WithDialer(ens.ClientNet(name).Dial))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.WaitConnected(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func realSession(t *testing.T, c *framework.Client) int64 {
	t.Helper()
	s, err := c.AwaitSession(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s.ID()
}
