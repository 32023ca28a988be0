package testutil_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// The operation makes a container, whatever the mode. Inside a multi the mode
// does. Only the sweep shows the difference.
func TestWhatMakesAContainer(t *testing.T) {
	plant := func(p *peer) {
		t.Helper()
		in := func(op wire.Op, mode int32, path string) wire.MultiOp {
			return wire.MultiOp{Op: op, Request: create(path, "", mode)}
		}
		p.ok(wire.OpCreateContainer, create("/container-4", "", 4))
		p.ok(wire.OpCreateContainer, create("/container-0", "", 0))
		p.ok(wire.OpCreate, create("/create-4", "", 4))
		p.ok(wire.OpCreate2, create("/create2-4", "", 4))
		p.ok(wire.OpMulti, multi(
			in(wire.OpCreateContainer, 4, "/multi-container-4"), in(wire.OpCreateContainer, 0, "/multi-container-0"),
			in(wire.OpCreate, 4, "/multi-create-4"), in(wire.OpCreate2, 4, "/multi-create2-4"),
		))
		for _, path := range slices.Concat(kept, swept) {
			p.ok(wire.OpCreate, create(path+"/x", "", 0))
			p.ok(wire.OpDelete, version(path+"/x", 0))
		}
	}
	look := func(p *peer, path string) wire.Code {
		p.send(wire.OpExists, look(path, false))
		code, answered := p.answer(patience)
		if !answered {
			t.Fatal("no answer")
		}
		return code
	}
	t.Run("embedded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			e := testutil.Start(t, testutil.InMemory(), testutil.WithContainerInterval(2*time.Second))
			clock := newClock(t)
			p := single(t, e, 0, 20*time.Second)
			plant(p)
			clock.at(2 * time.Second)
			for _, path := range swept {
				if code := look(p, path); code != wire.NoNode {
					t.Errorf("%s: %v", path, code)
				}
			}
			for _, path := range kept {
				if code := look(p, path); code != wire.OK {
					t.Errorf("%s: %v", path, code)
				}
			}
		})
	})
	t.Run("real", func(t *testing.T) {
		e := apache.Start(t, 1, apache.WithProperty("znode.container.checkIntervalMs", "200"))
		s := &script{t: t, ens: e, log: &transcript{sessions: map[int64]string{}}}
		p := s.peer("P", 20*time.Second)
		plant(p)
		for _, path := range swept {
			for began := time.Now(); look(p, path) != wire.NoNode; {
				if time.Since(began) > 30*time.Second {
					t.Fatalf("%s is still there", path)
				}
			}
		}
		for _, path := range kept {
			if code := look(p, path); code != wire.OK {
				t.Errorf("%s: %v", path, code)
			}
		}
	})
}

var (
	swept = []string{"/container-4", "/container-0", "/multi-container-4", "/multi-create-4", "/multi-create2-4"}
	kept  = []string{"/create-4", "/create2-4", "/multi-container-0"}
)
