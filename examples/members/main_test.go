package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The command as a user runs it: each shard has one worker, before and after
// one of them ends.
func TestExample(t *testing.T) {
	ens := testutil.Start(t, testutil.WithMembers(3))
	var out strings.Builder
	if err := run(t.Context(), ens.Servers(), &out); err != nil {
		t.Fatal(err)
	}
	const want = `a has the shards [0 3 6 9]
b has the shards [1 4 7 10]
c has the shards [2 5 8 11]
b ends
a has the shards [0 2 4 6 8 10]
c has the shards [1 3 5 7 9 11]
`
	if out.String() != want {
		t.Errorf("it printed\n%s", out.String())
	}
	if left := ens.Children(path); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A worker that is cut off is a member until its session has expired. Then the
// others have its shards, until it is back. In virtual time: each sleep takes
// no time.
func TestWorkerThatIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := testutil.Start(t, testutil.InMemory(), testutil.WithMembers(3))
		var all []*worker
		for _, id := range []string{"a", "b", "c"} {
			client, err := framework.New(ens.Servers(), framework.WithDialer(ens.ClientNet(id).Dial))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close() })
			w, err := newWorker(t.Context(), client, id)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = w.stop(t.Context()) })
			all = append(all, w)
		}
		// covered fails the test unless each shard has one of the workers.
		covered := func(workers ...*worker) {
			t.Helper()
			var taken []int
			for _, w := range workers {
				members, err := w.roster.Members(t.Context()) // no request
				if err != nil {
					t.Fatal(err)
				}
				taken = append(taken, w.shardsOf(members)...)
			}
			slices.Sort(taken)
			if fmt.Sprint(taken) != "[0 1 2 3 4 5 6 7 8 9 10 11]" {
				t.Errorf("the shards of the workers are %v", taken)
			}
		}
		time.Sleep(time.Second)
		covered(all...)
		ens.ClientNet("b").Cut()
		time.Sleep(5 * time.Second) // less than its session
		covered(all...)
		time.Sleep(time.Minute)
		covered(all[0], all[2])
		ens.ClientNet("b").Heal()
		time.Sleep(time.Minute)
		covered(all...)
	})
}
