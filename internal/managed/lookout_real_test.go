package managed_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// Lost events, a change that could not be seen, and a lost right, on the real
// server.
func TestWatchesOnTheRealServer(t *testing.T) {
	ens := apache.Start(t, 1)
	connect := func(opts ...framework.Option) *framework.Client {
		opts = append([]framework.Option{framework.WithSessionTimeout(4 * time.Second)}, opts...)
		c, err := framework.New(ens.Servers(), opts...)
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		must(t, c.WaitConnected(t.Context()))
		return c
	}
	network := ens.ClientNet("watcher")
	owner, c := connect(framework.WithAuth("digest", []byte("owner:secret"))), connect(framework.WithDialer(network.Dial))
	readable := func(yes bool) {
		t.Helper()
		acl := zk.DigestACL(zk.PermAll, "owner", "secret")
		if yes {
			acl = append(acl, zk.WorldACL(zk.PermRead)...)
		}
		_, err := owner.SetACL(t.Context(), "/a", acl, -1)
		must(t, err)
	}
	_, err := owner.Create(t.Context(), "/a", []byte("[]"), 0)
	must(t, err)
	for _, w := range watchings {
		told := w.watch(t, t.Context(), c)
		await := func(what string, reached func(value) bool) {
			t.Helper()
			timer := time.NewTimer(time.Minute)
			defer timer.Stop()
			for {
				select {
				case v := <-told:
					if reached(v) {
						return
					}
				case <-timer.C:
					t.Fatalf("%s: %s is not told within a minute", w.name, what)
				}
			}
		}
		await("the first value", func(value) bool { return true })
		network.LoseEvents(true)
		must(t, w.change(owner, "[1]"))
		await("a change without an event", func(v value) bool { return v.text == "[1]" })
		network.LoseEvents(false)
		readable(false)
		must(t, w.change(owner, "[2]"))
		readable(true)
		await("a change that could not be seen", func(v value) bool {
			if errors.Is(v.err, zk.ErrNoAuth) {
				t.Log("this release sends the event of a znode that may not be read")
				told = w.watch(t, t.Context(), c)
			}
			return v.text == "[2]" || v.text == "[1 2]"
		})
		readable(false)
		await("a lost right", func(v value) bool { return errors.Is(v.err, zk.ErrNoAuth) })
		readable(true)
	}
}
