package bubble

import (
	"context"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
)

// Provision runs a script with a client that nobody else uses.
func (w *World) Provision(script func(c *framework.Client)) {
	w.T.Helper()
	c := w.Connect("provisioner")
	script(c)
	if err := c.Close(); err != nil {
		w.T.Fatal(err)
	}
}

// Rebuild replaces the ensemble by an empty one, and runs a script there before
// the clients of these networks come back. If the script is the first that is
// done in either ensemble, its transactions have the same ids.
func (w *World) Rebuild(script func(c *framework.Client), nets ...string) {
	w.T.Helper()
	for _, name := range nets {
		w.ClientNet(name).Cut()
	}
	time.Sleep(time.Second)
	w.Restore(nil)
	w.makeBase(w.T)
	w.Provision(script)
	for _, name := range nets {
		w.ClientNet(name).Heal()
		w.ClientNet(name).Drop()
	}
	synctest.Wait()
}

// AwaitNext waits until a client is connected with another session.
func (w *World) AwaitNext(c *framework.Client, than int64) {
	w.T.Helper()
	AwaitTrue(w.T, "another session", func() bool {
		s, err := c.Session()
		return err == nil && s.ID() != than && c.State() == framework.Connected
	})
}

// Padding returns a script that makes n transactions.
func Padding(t T, n int) func(c *framework.Client) {
	return func(c *framework.Client) {
		for range n {
			if _, err := c.Set(context.Background(), "/", nil, -1); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// PadTo returns a script that makes transactions until the next one has an id.
func PadTo(t T, zxid int64) func(c *framework.Client) {
	return func(c *framework.Client) {
		for {
			stat, err := c.Set(context.Background(), "/", nil, -1)
			if err != nil || stat.Mzxid >= zxid {
				t.Fatalf("transaction %x, before %x: %v", stat.Mzxid, zxid, err)
			}
			if stat.Mzxid == zxid-1 {
				return
			}
		}
	}
}

// Tree returns a script that creates znodes, one after the other: paths and
// their data.
func Tree(t T, znodes ...string) func(c *framework.Client) {
	return func(c *framework.Client) {
		for i := 0; i < len(znodes); i += 2 {
			if _, err := c.Create(context.Background(), znodes[i], []byte(znodes[i+1]), zk.FlagPersistent); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Rebuilt are the numbers of transactions that a script of a rebuilt ensemble
// makes before it does what the first script did, which has made ten: fewer, as
// many and more.
var Rebuilt = map[string]int{"fewer transactions": 0, "as many": 10, "more": 20}
