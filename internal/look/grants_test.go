package look

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/version"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// watched is a collector with a model that looks once a second.
type watched struct {
	t     *testing.T
	from  *Collector
	model Model
}

// look looks a second later, and returns the grants per second at a path, and
// how many requests that has cost.
func (w *watched) look(path string) (grants float64, requests int) {
	w.t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	before := w.from.Sent()
	found, err := w.from.Collect(w.t.Context(), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.model.Update(found)
	for _, r := range w.model.Rows(ByPath, "") {
		if r.Path == path {
			grants = r.Grants
		}
	}
	return grants, w.from.Sent() - before
}

// sequential creates a contender as recipes do, and returns its path.
func sequential(t *testing.T, c *framework.Client, prefix string) string {
	t.Helper()
	at, err := c.Create(t.Context(), prefix, nil, zk.FlagEphemeral|zk.FlagSequence)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// Every grant is counted, however many there are between two looks, for the one
// list that a changed directory costs. Those that give up are told from those
// that were granted, where the line says it.
func TestCountsEveryGrant(t *testing.T) {
	const lock = zkrtest.SomeID + "lock-"
	for _, test := range []struct {
		name string
		dir  string
		each func(t *testing.T, c *framework.Client, dir string) // 780 of it a second
		want float64
	}{
		{"a lock that is free between", "/locks/a", func(t *testing.T, c *framework.Client, dir string) {
			zkrtest.Away(t, c, sequential(t, c, dir+"/"+lock))
		}, 780},
		{"one behind a holder gives up", "/locks/00000", func(t *testing.T, c *framework.Client, dir string) {
			zkrtest.Away(t, c, sequential(t, c, dir+"/"+lock))
		}, 0},
		{"readers share", "/locks/a", func(t *testing.T, c *framework.Client, dir string) {
			first, second := sequential(t, c, dir+"/h-R-"), sequential(t, c, dir+"/h-R-")
			zkrtest.Away(t, c, first)
			zkrtest.Away(t, c, second)
		}, 2 * 780},
		{"permits", "/locks/a", func(t *testing.T, c *framework.Client, dir string) {
			waits := sequential(t, c, dir+"/locks/"+lock)
			held := sequential(t, c, dir+"/leases/lease-")
			zkrtest.Away(t, c, waits)
			zkrtest.Away(t, c, held)
		}, 780},
		{"directories above", "/locks/00000", func(t *testing.T, c *framework.Client, dir string) {
			zkrtest.Away(t, c, sequential(t, c, "/locks/b"))
		}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			zkrtest.WithHeld(t, 1, func(t *testing.T, e *testutil.Embedded, c *framework.Client) {
				for _, dir := range []string{"/locks/a", "/locks/a/leases", "/locks/a/locks"} {
					if test.name == "permits" || dir == "/locks/a" {
						if _, err := c.Create(t.Context(), dir, nil, 0); err != nil {
							t.Fatal(err)
						}
					}
				}
				// In the first look it is seen that there is a line.
				kind := lock
				switch test.name {
				case "permits":
					kind = "leases/lease-"
				case "readers share":
					kind = "h-R-"
				}
				held := sequential(t, c, "/locks/a/"+kind)
				w := &watched{t: t, from: collectorOf(t, e, 0)}
				w.look(test.dir)
				if test.name != "permits" {
					zkrtest.Away(t, c, held)
				}
				for range bubble.Few(2, 5) {
					for range 780 {
						test.each(t, c, test.dir)
					}
					got, requests := w.look(test.dir)
					if math.Abs(got-test.want) > 0.5 || requests > 2 { // one of the permits' and one of the waiters' directory
						t.Errorf("%v grants/s, want %v, in %d requests", got, test.want, requests)
					}
				}
			})
		})
	}
}

// A line whose holder changes again and again while others wait: each that has
// left was granted.
func TestCountsALineThatMovesOn(t *testing.T) {
	zkrtest.WithHeld(t, 0, func(t *testing.T, e *testutil.Embedded, c *framework.Client) {
		if _, err := c.Create(t.Context(), "/locks/a", nil, 0); err != nil {
			t.Fatal(err)
		}
		var line []string
		join := func() { line = append(line, sequential(t, c, "/locks/a/"+zkrtest.SomeID+"lock-")) }
		for range 3 {
			join()
		}
		w := &watched{t: t, from: collectorOf(t, e, 0)}
		w.look("/locks/a")
		for i := range 3 {
			for range 100 {
				zkrtest.Away(t, c, line[0])
				line = line[1:]
				join()
			}
			if i == 0 {
				zkrtest.Away(t, c, sequential(t, c, "/locks/a/"+zkrtest.SomeID+"lock-")) // it gives up
			}
			if got, _ := w.look("/locks/a"); math.Abs(got-100) > 0.01 {
				t.Errorf("%v grants/s", got)
			}
		}
		// The directory is deleted and created again, as the ensemble does it with
		// those of unused locks.
		for _, at := range line {
			zkrtest.Away(t, c, at)
		}
		zkrtest.Away(t, c, "/locks/a")
		if _, err := c.Create(t.Context(), "/locks/a", nil, 0); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			zkrtest.Away(t, c, sequential(t, c, "/locks/a/"+zkrtest.SomeID+"lock-"))
		}
		sequential(t, c, "/locks/a/"+zkrtest.SomeID+"lock-")
		w.model.seen["/locks/a"].grants = 0
		got, _ := w.look("/locks/a")
		if got *= w.model.weight / (1 - math.Exp(-0.1)); math.Abs(got-6) > 0.01 {
			t.Errorf("%v grants of the new directory", got)
		}
	})
}

// All of a line have left between its list and the reads of its contenders.
func TestReadsALineThatHasLeft(t *testing.T) {
	zkrtest.WithHeld(t, 1, func(t *testing.T, e *testutil.Embedded, c *framework.Client) {
		w := &watched{from: collectorOf(t, e, 1)} // a request a second
		if _, err := w.from.Collect(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		zkrtest.Create(t, c, zkrtest.HeldNode(0, 1))
		time.Sleep(5 * time.Second) // the next request may begin at once, and the one behind it a second later
		synctest.Wait()
		go func() { // ends before collect does
			time.Sleep(500 * time.Millisecond)
			zkrtest.Away(t, c, zkrtest.HeldNode(0, 0))
			zkrtest.Away(t, c, zkrtest.HeldNode(0, 1))
		}()
		found, err := w.from.Collect(t.Context(), map[string]int{zkrtest.HeldDir(0): 10})
		if err != nil || len(found.Lines) != 0 || found.stands[zkrtest.HeldDir(0)].holders != 1 {
			t.Errorf("%+v, error %v", found, err)
		}
		w.model.Update(found)
		if rows := w.model.Rows(ByPath, ""); len(rows) != 0 {
			t.Errorf("%+v", rows)
		}
	})
}

// The counts of a directory wrap: its creates in 32 bits, and twice as many
// less its children in its cversion.
func TestCountsOverTheWrap(t *testing.T) {
	at := func(created int64, children int32) childCount {
		return childCount{directory: version.Created{Czxid: 1}, changes: int32(2*created - int64(children)), children: children}
	}
	for _, base := range []int64{0, 5, math.MaxInt32/2 - 1, math.MaxInt32 / 2, math.MaxInt32 - 1, math.MaxInt32, math.MaxUint32} {
		before, now := at(base+2, 2), at(base+1002, 7)
		if created, deleted := now.since(before); created != 1000 || deleted != 995 {
			t.Errorf("%d: %d created, %d deleted", base, created, deleted)
		}
		// The holder's number, and that of all that were created.
		l := inspect.Line{Path: "/x", Holders: []inspect.Contender{{Path: fmt.Sprintf("/x/lock-%010d", int32(base+1001)), Holds: true}}}
		if passed := turnOf(&l, now).since(turnOf(nil, before)); passed != 1000 {
			t.Errorf("%d: %d passed", base, passed)
		}
		if passed := turnOf(nil, now).since(turnOf(&l, before)); passed != 0 {
			t.Errorf("%d: %d passed", base, passed)
		}
		if passed := turnOf(nil, before).since(turnOf(nil, now)); passed != 0 {
			t.Errorf("%d: %d passed backwards", base, passed)
		}
	}
}

// One holder of two permits is not two holders, also while its details are
// read.
func TestPermitsOfOneHolder(t *testing.T) {
	zkrtest.WithHeld(t, 0, func(t *testing.T, e *testutil.Embedded, c *framework.Client) {
		for _, dir := range []string{"/locks/s", "/locks/s/leases", "/locks/s/locks"} {
			if _, err := c.Create(t.Context(), dir, []byte("3"), 0); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			sequential(t, c, "/locks/s/leases/lease-")
		}
		w := &watched{t: t, from: collectorOf(t, e, 0)}
		w.look("/locks/s")
		if r := w.model.Rows(ByPath, "")[0]; r.HolderText() != "2 permits" {
			t.Errorf("unread: %q", r.HolderText())
		}
		found, err := w.from.Collect(t.Context(), map[string]int{"/locks/s": 10})
		if err != nil {
			t.Fatal(err)
		}
		w.model.Update(found)
		if r := w.model.Rows(ByPath, "")[0]; r.HolderText() != "2 of 3 permits" || r.Sessions != 1 {
			t.Errorf("read: %q of %d sessions", r.HolderText(), r.Sessions)
		}
	})
}

// The host of a holder, from what each library writes.
func TestHosts(t *testing.T) {
	for _, test := range []struct{ name, data, want string }{
		{"lock-0000000001", "web-1 pid 4711: sh", "web-1"},
		{"lock-0000000001", "web-1 pid 4711", "web-1"},
		{"lock-0000000001", "web-1 pid 4711: sh parent=0x1", "web-1"},
		{"lock-0000000001", "__REVOKE__ web-1 pid 4711: sh", "web-1"},
		{"lock-0000000001", "10.1.2.3", "10.1.2.3"},
		{"lock-0000000001", "2001:db8::1", "2001:db8::1"},
		{zkrtest.SomeID + "web-2-R-0000000001", "", "web-2"},
		{zkrtest.SomeID + "web-2-W-0000000001", "web-1 pid 1", "web-1"},
		{zkrtest.SomeID + "R-0000000001", "", ""},
		{"lock-0000000001", "__REVOKE__", ""},
		{"lock-0000000001", "worker 7", ""},
		{"lock-0000000001", "", ""},
	} {
		if got := HostOf(&inspect.Contender{Path: "/x/" + test.name, Data: []byte(test.data)}); got != test.want {
			t.Errorf("%s with %q: %q, want %q", test.name, test.data, got, test.want)
		}
	}
}
