package main

import (
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// All ids are different, and a process makes a request for a thousand of them.
func TestExample(t *testing.T) {
	ens := testutil.Start(t, testutil.WithMembers(3))
	var out strings.Builder
	different, err := run(t.Context(), ens.Servers(), &out)
	if err != nil || different != processes*each {
		t.Errorf("%d different ids, %v", different, err)
	}
	form := regexp.MustCompile(`^(process [123]: 2500 ids with 3 requests\n){3}$`)
	if !form.MatchString(out.String()) {
		t.Error(out.String())
	}
}

// Every third answer is lost, and sessions expire. No id is given out twice,
// whatever the errors say.
func TestIDsAreUniqueUnderFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := testutil.Start(t, testutil.InMemory(), testutil.WithMembers(3), testutil.WithLogger(func(string, ...any) {}))
		var mu sync.Mutex // guards what follows
		writes, lost := 0, 0
		given := map[int64]bool{}
		defer ens.Control(func(r testutil.Request) testutil.Action {
			if r.Op != testutil.OpMulti {
				return testutil.Pass()
			}
			mu.Lock()
			defer mu.Unlock()
			writes++
			switch {
			case writes%10 == 0:
				go func() { _ = ens.ExpireSession(r.Session) }()
				return testutil.DropAfter()
			case writes%3 == 0:
				lost++
				return testutil.DropAfter()
			}
			return testutil.Pass()
		})()
		var all sync.WaitGroup
		for range processes {
			client, err := framework.New(ens.Servers(), framework.WithDialer(ens.Dial))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			orders, err := counter.New(client, path)
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				ids := source{counter: orders}
				for range 10 * each {
					id, err := ids.Next(t.Context())
					mu.Lock()
					if err == nil && given[id] {
						t.Errorf("id %d was given out twice", id)
					}
					given[id] = given[id] || err == nil
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if lost < 10 {
			t.Errorf("only %d answers were lost", lost)
		}
	})
}
