package sim

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/recipes"
)

func tokenOf(t *testing.T, n string) recipes.Token {
	t.Helper()
	token, err := recipes.ParseToken("000000000000000" + n + "0000000000000000")
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// The model accepts possible histories and rejects all others.
func TestModel(t *testing.T) {
	grant := func(id int, token string) input {
		return input{kind: acquire, id: id, root: id, token: tokenOf(t, token), order: true}
	}
	read := func(id int, token string) input {
		in := grant(id, token)
		in.shared = true
		return in
	}
	permits := func(id, n int) input { return input{kind: acquire, id: id, root: id, permits: n} }
	ends := func(id int) input { return input{kind: end, id: id} }
	writes := func(id int, version int32) input { return input{kind: write, id: id, version: version} }
	may := func(id int) input { return input{kind: write, id: id, unknown: true} }
	under := func(in input, root int) input { in.root = root; return in }
	for _, one := range []struct {
		what  string
		limit int
		ops   []op
		wrong bool
	}{
		{what: "one after the other", ops: []op{{in: grant(0, "1"), call: 1, ret: 2}, {in: ends(0), call: 3, ret: 4}, {in: grant(1, "2"), call: 1, ret: 5}}},
		{what: "two at once", ops: []op{{in: grant(0, "1"), call: 1, ret: 2}, {in: grant(1, "2"), call: 1, ret: 3}, {in: ends(0), call: 4, ret: 5}}, wrong: true},
		{what: "an end that is under way", ops: []op{{in: grant(0, "1"), call: 1, ret: 2}, {in: ends(0), call: 3, ret: 6}, {in: grant(1, "2"), call: 4, ret: 5}}},
		{what: "an end that nobody has seen", ops: []op{{in: grant(0, "1"), call: 1, ret: 2}, {in: ends(0), call: 3, ret: never}, {in: grant(1, "2"), call: 4, ret: 5}}},
		{what: "before the end that nobody has seen", ops: []op{{in: grant(0, "1"), call: 1, ret: 2}, {in: grant(1, "2"), call: 3, ret: 4}, {in: ends(0), call: 5, ret: never}}, wrong: true},
		{what: "a token again", ops: []op{{in: grant(0, "1"), call: 1, ret: 2}, {in: ends(0), call: 3, ret: 4}, {in: grant(1, "1"), call: 5, ret: 6}}, wrong: true},
		{what: "two readers", ops: []op{{in: read(0, "1"), call: 1, ret: 2}, {in: read(1, "1"), call: 3, ret: 4}}},
		{what: "a writer beside a reader", ops: []op{{in: read(0, "1"), call: 1, ret: 2}, {in: grant(1, "2"), call: 3, ret: 4}}, wrong: true},
		{what: "a reader beside a writer", ops: []op{{in: grant(0, "1"), call: 1, ret: 2}, {in: read(1, "2"), call: 3, ret: 4}}, wrong: true},
		{what: "a downgrade", ops: []op{{in: grant(0, "1"), call: 1, ret: 2}, {in: under(read(1, "1"), 0), call: 3, ret: 4}, {in: ends(0), call: 5, ret: 6}, {in: read(2, "2"), call: 7, ret: 8}}},
		{what: "a writer after a downgrade", ops: []op{{in: grant(0, "1"), call: 1, ret: 2}, {in: under(read(1, "1"), 0), call: 3, ret: 4}, {in: ends(0), call: 5, ret: 6}, {in: grant(2, "2"), call: 7, ret: 8}}, wrong: true},
		{what: "three permits of three", limit: 3, ops: []op{{in: permits(0, 1), call: 1, ret: 2}, {in: permits(1, 2), call: 3, ret: 4}}},
		{what: "four permits of three", limit: 3, ops: []op{{in: permits(0, 2), call: 1, ret: 2}, {in: permits(1, 2), call: 3, ret: 4}}, wrong: true},
		{what: "four permits of a raised limit", limit: 3, ops: []op{{in: permits(0, 2), call: 1, ret: 2}, {in: input{kind: setLimit, permits: 4}, call: 1, ret: never}, {in: permits(1, 2), call: 3, ret: 4}}},
		{what: "two permits of a lowered limit", limit: 3, ops: []op{{in: input{kind: setLimit, permits: 1}, call: 1, ret: 2}, {in: permits(1, 2), call: 3, ret: 4}}, wrong: true},
		{what: "a write of a holder", ops: []op{{in: grant(0, "1"), call: 1, ret: 2}, {in: writes(0, 1), call: 3, ret: 4}}},
		{what: "a write after the end", ops: []op{{in: grant(0, "1"), call: 1, ret: 2}, {in: ends(0), call: 3, ret: 4}, {in: writes(0, 1), call: 5, ret: 6}}, wrong: true},
		{what: "a write that another's share of the znode guards", ops: []op{{in: read(0, "1"), call: 1, ret: 2}, {in: read(1, "1"), call: 1, ret: 2}, {in: ends(1), call: 3, ret: 4}, {in: input{kind: write, id: 1, shared: true, version: 1}, call: 5, ret: 6}}},
		{what: "a write that another's znode does not guard", ops: []op{{in: read(0, "1"), call: 1, ret: 2}, {in: read(1, "1"), call: 1, ret: 2}, {in: ends(1), call: 3, ret: 4}, {in: input{kind: write, id: 1, znode: 1, shared: true, version: 1}, call: 5, ret: 6}}, wrong: true},
		{what: "a write that nobody has made", ops: []op{{in: grant(0, "1"), call: 1, ret: 2}, {in: writes(0, 2), call: 3, ret: 4}}, wrong: true},
		{what: "a write that may have been made, and was", ops: []op{{in: grant(0, "1"), call: 1, ret: 2}, {in: may(0), call: 3, ret: never}, {in: writes(0, 2), call: 4, ret: 5}}},
		{what: "a write that may have been made, and was not", ops: []op{{in: grant(0, "1"), call: 1, ret: 2}, {in: may(0), call: 3, ret: never}, {in: writes(0, 1), call: 4, ret: 5}, {in: ends(0), call: 6, ret: 7}}},
	} {
		pictures := t.TempDir()
		err := (&resource{path: "/lock", ops: one.ops}).judge(one.limit, pictures)
		if (err != nil) != one.wrong {
			t.Errorf("%s: %v", one.what, err)
		}
		drawn, globErr := filepath.Glob(filepath.Join(pictures, "*.html"))
		if globErr != nil || one.wrong != (len(drawn) == 1) {
			t.Errorf("%s: pictures %v, %v", one.what, drawn, globErr)
			continue
		}
		if !one.wrong {
			continue
		}
		if text, readErr := os.ReadFile(drawn[0]); readErr != nil || !strings.Contains(string(text), "#0 granted") && one.limit == 0 || !strings.Contains(err.Error(), drawn[0]) {
			t.Errorf("%s: the picture shows nothing, or is not named: %v, %v", one.what, err, readErr)
		}
	}
}

// A history with bounds for its ends is possible if and only if it is without.
func TestBoundsOfEnds(t *testing.T) {
	possible := func(ops []op) bool {
		var history []porcupine.Operation
		for _, o := range ops {
			history = append(history, porcupine.Operation{ClientId: len(history), Input: o.in, Call: o.call, Return: o.ret})
		}
		return porcupine.CheckOperations(model(0), history)
	}
	seen := make(map[bool]int)
	rapid.Check(t, func(t *rapid.T) {
		var ops []op
		until := func(from int64) int64 { return from + int64(rapid.IntRange(1, 12).Draw(t, "long")) }
		for id := range rapid.IntRange(2, 4).Draw(t, "grants") {
			in := input{kind: acquire, id: id, root: id, znode: id, shared: rapid.Bool().Draw(t, "shared")}
			if in.shared && id > 0 && ops[0].in.shared && rapid.Bool().Draw(t, "one znode") {
				in.znode = 0
			}
			call := int64(rapid.IntRange(0, 20).Draw(t, "acquire"))
			granted := until(call)
			ops = append(ops, op{in: in, call: call, ret: granted})
			for range rapid.IntRange(0, 2).Draw(t, "writes") {
				w := input{kind: write, id: id, znode: in.znode, shared: in.shared, version: int32(rapid.IntRange(1, 3).Draw(t, "version"))}
				call, ret := until(granted), Never
				if w.unknown = rapid.IntRange(0, 3).Draw(t, "unknown") == 0; !w.unknown {
					ret = until(call)
				}
				ops = append(ops, op{in: w, call: call, ret: ret})
			}
			ended := until(granted)
			ops = append(ops, op{in: input{kind: end, id: id}, call: ended, ret: rapid.SampledFrom([]int64{never, ended + 1}).Draw(t, "ended")})
		}
		slices.SortStableFunc(ops, func(a, b op) int { return int(a.in.kind - b.in.kind) }) // ops[0] is the first grant
		is := possible(ops)
		bounded := &resource{ops: slices.Clone(ops)}
		bounded.boundEnds()
		seen[is]++
		if possible(bounded.ops) != is {
			t.Fatalf("possible: %v without bounds, and not with them:\n%v\n%v", is, ops, bounded.ops)
		}
	})
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("drawn: %v", seen)
	}
}

// A lock has many readers whose ends nobody has seen. Without bounds, it takes
// longer than anybody waits until no order of them explains the last version.
func TestManyEnds(t *testing.T) {
	r := &resource{path: "/lock"}
	for id := range 60 {
		at := int64(10 * id)
		in := input{kind: acquire, id: id, root: id, znode: id, shared: true}
		r.ops = append(r.ops, op{in: in, call: at, ret: at + 15}, op{in: input{kind: end, id: id}, call: at + 16, ret: never})
	}
	r.ops = append(r.ops, op{in: input{kind: write, id: 59, version: 2}, call: 610, ret: 611})
	began := time.Now()
	if err := r.judge(0, ""); err == nil || strings.Contains(err.Error(), NotJudged) {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}
