package main

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Every assignment is balanced, and moves no more shards than the best of all
// balanced ones, which are tried one after the other.
func TestAssignMovesAsFewAsPossible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 7).Draw(t, "shards")
		ids := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 1, 4, rapid.ID).Draw(t, "members")
		old := assignment(rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b", "c", "d", "x"}), 0, 9).Draw(t, "old"))
		before := slices.Clone(old)
		next := assign(old, ids, n)
		if !slices.Equal(old, before) {
			t.Errorf("the old assignment was changed to %v", old)
		}
		if len(next) != n || !balanced(next, ids) {
			t.Fatalf("%v is not balanced", next)
		}
		best := n
		each(make(assignment, n), ids, func(a assignment) {
			if balanced(a, ids) {
				best = min(best, moved(old, a, ids))
			}
		})
		if got := moved(old, next, ids); got != best {
			t.Errorf("%v moves %d shards, %d would do", next, got, best)
		}
		if again := assign(next, ids, n); !slices.Equal(again, next) {
			t.Errorf("without a change of members it becomes %v", again)
		}
		if none := assign(next, nil, n); !slices.Equal(none, next) {
			t.Errorf("without members it becomes %v", none)
		}
	})
}

// A member that comes gets its share, from the others alone, and nothing else
// moves; the shards of one that goes, and no others, get other members.
func TestMembersComeAndGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 100).Draw(t, "shards")
		ids := rapid.SliceOfNDistinct(rapid.StringN(1, 3, -1), 1, 20, rapid.ID).Draw(t, "members")
		var now assignment
		var present []string
		for _, id := range ids {
			present = append(present, id)
			next := assign(now, present, n)
			for shard, was := range now {
				if next[shard] != was && next[shard] != id {
					t.Fatalf("%q comes, and shard %d moves from %q to %q", id, shard, was, next[shard])
				}
			}
			if got := count(next)[id]; got != n/len(present) && len(present) > 1 {
				t.Fatalf("%q gets %d of %d shards, with %d members", id, got, n, len(present))
			}
			now = next
		}
		for len(present) > 1 {
			i := rapid.IntRange(0, len(present)-1).Draw(t, "goes")
			gone := present[i]
			present = slices.Delete(present, i, i+1)
			next := assign(now, present, n)
			for shard, was := range now {
				if was != gone && next[shard] != was {
					t.Fatalf("%q goes, and shard %d moves from %q to %q", gone, shard, was, next[shard])
				}
			}
			now = next
		}
	})
}

// each calls fn with every assignment to ids.
func each(a assignment, ids []string, fn func(assignment)) {
	var fill func(shard int)
	fill = func(shard int) {
		if shard == len(a) {
			fn(a)
			return
		}
		for _, id := range ids {
			a[shard] = id
			fill(shard + 1)
		}
	}
	fill(0)
}

// moved returns how many shards that a present member had have another one.
func moved(old, next assignment, ids []string) (n int) {
	for shard, id := range next {
		if shard < len(old) && slices.Contains(ids, old[shard]) && old[shard] != id {
			n++
		}
	}
	return n
}

func count(a assignment) map[string]int {
	has := make(map[string]int)
	for _, id := range a {
		has[id]++
	}
	return has
}

func balanced(a assignment, ids []string) bool {
	has := count(a)
	least, most := len(a), 0
	for _, id := range ids {
		least, most = min(least, has[id]), max(most, has[id])
		delete(has, id)
	}
	return most-least <= 1 && len(slices.Collect(maps.Keys(has))) == 0
}
