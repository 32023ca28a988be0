package cache_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// provisioned is the script of an ensemble, after some other transactions.
func provisioned(t bubble.T, others int, data string) func(c *framework.Client) {
	return func(c *framework.Client) {
		bubble.Padding(t, others)(c)
		bubble.Tree(t, root, data, root+"/a", data, root+"/b", data)(c)
	}
}

// An ensemble is rebuilt from nothing by the same script, with other data: the
// transactions have the ids that they had, or smaller ones, or greater ones.
func TestARebuiltEnsemble(t *testing.T) {
	for name, opts := range map[string][]cache.Option{"a recursive watch": nil, "one-shot watches": {cache.WithOneShotWatches()}} {
		for when, others := range bubble.Rebuilt {
			t.Run(name+", "+when, func(t *testing.T) {
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					w.Provision(provisioned(t, 10, "old"))
					c := w.Connect("reader")
					k, before := synced(t, c, opts...), w.SessionID(c)
					text := func(data []byte) (string, error) { return string(data), nil }
					value, dir := cache.NewValue(k, root+"/a", text), cache.NewDir(k, root, text)
					shown, kinds := map[string]string{}, map[cache.Kind]int{}
					k.Listen(func(b cache.Batch) {
						for _, c := range b.Changes {
							kinds[c.Kind]++
							if c.New != nil {
								shown[c.Path()] = string(c.New.Data)
							}
						}
					})
					synctest.Wait()
					clear(kinds)

					w.Rebuild(provisioned(t, others, "new"), "reader")
					w.AwaitNext(c, before)
					shows(t, w, k)
					synctest.Wait()
					if got, err := value.Get(); got != "new" || err != nil {
						t.Errorf("the Value is %q, %v", got, err)
					}
					if all := dir.All(); len(all) != 2 || all[0].Value != "new" || all[1].Value != "new" {
						t.Errorf("the Dir has %+v", all)
					}
					if want := (map[cache.Kind]int{cache.Removed: 3, cache.Added: 3}); len(shown) != 3 || shown[root] != "new" || kinds[cache.Removed] != want[cache.Removed] || kinds[cache.Added] != want[cache.Added] || len(kinds) != 2 {
						t.Errorf("the listener was told of %v, and has %v", kinds, shown)
					}
				})
			})
		}
	}
}

// Reach shows the caller's own Set, in whatever history. The view of the one
// before had a greater Zxid, as soon as it is asked for and after it was read
// again.
func TestReachInARebuiltEnsemble(t *testing.T) {
	for when, others := range bubble.Rebuilt {
		for _, soon := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, soon %t", when, soon), func(t *testing.T) {
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					w.Provision(provisioned(t, 10, "old"))
					c := w.Connect("reader")
					k, before := synced(t, c), w.SessionID(c)
					w.Rebuild(provisioned(t, others, "new"), "reader")
					w.AwaitNext(c, before)
					for i := range 3 {
						if !soon {
							await(t, k, cache.Synced)
						}
						data := fmt.Sprint("mine ", i)
						stat := set(t, c, root+"/a", data)
						v, err := k.Reach(t.Context(), stat.Mzxid)
						if n, _ := v.Get(root + "/a"); err != nil || string(n.Data) != data || v.Zxid() < stat.Mzxid {
							t.Errorf("%d: Reach(%x) has returned %q at %x, %v", i, stat.Mzxid, n.Data, v.Zxid(), err)
						}
					}
					if latest, _ := w.Stat(root + "/a"); k.View().Zxid() > latest.Mzxid+5 {
						t.Errorf("the view is at %x, and the ensemble at about %x", k.View().Zxid(), latest.Mzxid)
					}
				})
			})
		}
	}
}

// What a restore takes back: the session is in the copy, and the epoch is
// higher. Nobody hangs up, and setWatches tells of later transactions only.
var takenBack = map[string]func(t *testing.T, c *framework.Client){
	"a write":              func(t *testing.T, c *framework.Client) { set(t, c, root+"/a", "newer") },
	"a write of the root":  func(t *testing.T, c *framework.Client) { set(t, c, root, "newer") },
	"a create":             func(t *testing.T, c *framework.Client) { create(t, c, root+"/c", "newer") },
	"a delete":             func(t *testing.T, c *framework.Client) { remove(t, c, root+"/a") },
	"a delete of the root": func(t *testing.T, c *framework.Client) { remove(t, c, root) },
	"several": func(t *testing.T, c *framework.Client) {
		create(t, c, root+"/a/c", "newer")
		remove(t, c, root+"/b")
		set(t, c, root+"/a", "newer")
		create(t, c, root+"/d", "newer")
		remove(t, c, root+"/a")
	},
}

func TestARestoreWithTheSession(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	for name, opts := range map[string][]cache.Option{"a recursive watch": nil, "one-shot watches": {cache.WithOneShotWatches()}} {
		for what, change := range takenBack {
			for _, since := range []string{"", "a write", "a delete"} {
				t.Run(fmt.Sprintf("%s, %s, since then %s", name, what, since), func(t *testing.T) {
					bubble.Run(t, func(t *testing.T, w *bubble.World) {
						c, other := w.Connect("reader"), w.Connect("writer")
						provisioned(t, 0, "old")(other)
						k := synced(t, c, append(opts, cache.WithRecheck(0))...)
						id, copied := w.SessionID(c), w.Snapshot()
						change(t, other)
						shows(t, w, k)
						w.ClientNet("reader").Cut()
						w.Restore(copied)
						if since != "" { // the znode that was seen last is written, or gone
							bubble.AwaitTrue(t, "the writer", func() bool { return other.State() == framework.Connected })
							takenBack[since](t, other)
						}
						w.ClientNet("reader").Heal()
						w.ClientNet("reader").Drop()
						shows(t, w, k)
						if w.SessionID(c) != id {
							t.Error("the session has not been resumed")
						}
						for i := range 3 { // it goes on
							set(t, other, root, fmt.Sprint(i))
							shows(t, w, k)
						}
					}, testutil.WithMembers(3))
				})
			}
		}
	}
}

// An event comes, and what it tells of is taken back before it is read. That is
// no reason to distrust recursive watches.
func TestARestoreBetweenAnEventAndItsRead(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // is about recursive watches
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("reader"), w.Connect("writer")
		provisioned(t, 0, "old")(other)
		k, copied := synced(t, c), w.Snapshot()
		w.ClientNet("reader").CutOneWay(true)
		set(t, other, root, "newer")
		synctest.Wait()
		w.Restore(copied)
		w.ClientNet("reader").Heal()
		await(t, k, cache.Stale)
		shows(t, w, k)
		if got := w.Watches(); len(got) != 1 || got[root] == 0 {
			t.Errorf("the cache has the watches %v", got)
		}
	}, testutil.WithMembers(3))
}

// After an election alone nothing is read but the znode that was seen last.
func TestAnElectionCostsAOneShotCacheOneRead(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("reader"), w.Connect("writer")
		fill(t, other, 3, 50)
		k := synced(t, c, cache.WithOneShotWatches(), cache.WithRecheck(0))
		for i := range 5 {
			set(t, other, root+"/dir-001", fmt.Sprint(i))
			shows(t, w, k)
			asked(w)
			leader := w.Leader()
			if err := errors.Join(w.Stop(leader), w.WaitServing(context.Background()), w.Restart(leader), w.WaitServing(context.Background())); err != nil {
				t.Fatal(err)
			}
			set(t, other, "/", "") // the members' numbers are those of the new epoch now
			w.ClientNet("reader").Drop()
			await(t, k, cache.Stale)
			await(t, k, cache.Synced)
			got := asked(w)
			delete(got, testutil.OpSetWatches)
			if len(got) != 1 || got[testutil.OpExists] == 0 || got[testutil.OpExists] > 2 { // of each connection with another epoch
				t.Errorf("%d: requests %v", i, got)
			}
			shows(t, w, k)
		}
	}, testutil.WithMembers(3))
}

// /zookeeper/config is written by each member itself, with a stat of its own.
func TestTheServersOwnZnodesAreComparedByTheirData(t *testing.T) {
	bubble.Usual(t, bubble.Below) // they are not below it
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		for member := range w.Members() {
			time.Sleep(time.Second)
			if err := errors.Join(w.Stop(member), w.WaitServing(t.Context()), w.Restart(member), w.WaitServing(t.Context())); err != nil {
				t.Fatal(err)
			}
		}
		c := w.Connect("reader")
		k := startAt(t, c, "/zookeeper")
		view(t, k.Synced)
		times := map[int64]bool{}
		var changes []cache.Change
		k.Listen(func(b cache.Batch) { changes = append(changes, b.Changes...) })
		synctest.Wait()
		changes = nil
		for range 10 {
			w.ClientNet("reader").Drop()
			await(t, k, cache.Synced)
			_, stat, err := c.Exists(t.Context(), "/zookeeper/config")
			if err != nil {
				t.Fatal(err)
			}
			times[stat.Mtime] = true
		}
		synctest.Wait()
		if len(changes) > 0 || len(times) < 2 {
			t.Errorf("%d times of a write, and changes: %+v", len(times), changes)
		}
	}, testutil.WithMembers(3))
}

// A write of the same data to the root of all, which has czxid 0, is no reason
// to distrust its event.
func TestTheSameDataOfTheRootOfAll(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead, or recursive watches
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("reader"), w.Connect("writer")
		k := startAt(t, c, "/", cache.WithDepth(0))
		view(t, k.Synced)
		for range 3 {
			set(t, other, "/", "")
			view(t, k.Fresh)
			w.ResetRequests()
			w.ClientNet("reader").Drop()
			await(t, k, cache.Stale)
			await(t, k, cache.Synced)
			if w.Requests()[testutil.OpAddWatch] == 0 {
				t.Error("no recursive watch")
			}
		}
	})
}

// The servers' own znodes are of no transaction, so nothing can be looked at
// after an election. A cache of them reads them again.
func TestOneShotWatchesOfTheServersOwnZnodes(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("reader"), w.Connect("writer")
		k, err := cache.New(c, "/zookeeper", cache.WithOneShotWatches())
		if err != nil {
			t.Fatal(err)
		}
		k.Start()
		t.Cleanup(k.Close)
		view(t, k.Synced)
		leader := w.Leader()
		if err := errors.Join(w.Stop(leader), w.WaitServing(t.Context()), w.Restart(leader), w.WaitServing(t.Context())); err != nil {
			t.Fatal(err)
		}
		set(t, other, "/", "")
		w.ClientNet("reader").Drop()
		bubble.AwaitTrue(t, "the cache is synced again", func() bool { return k.Status().State == cache.Synced && c.State() == framework.Connected })
		time.Sleep(time.Minute)
		if s := k.Status(); s.State != cache.Synced {
			t.Errorf("%+v", s)
		}
	}, testutil.WithMembers(3))
}
