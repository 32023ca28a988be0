package main

import "slices"

// assignment has the member of each shard, or "" where there is none.
type assignment []string

// assign gives n shards to members: to each as many as to any other, or one
// more. Of the shards that a present member has, it moves as few as that
// allows. Without members all stays as it is.
func assign(old assignment, members []string, n int) assignment {
	next := make(assignment, n)
	copy(next, old)
	if len(members) == 0 {
		return next
	}
	has := make(map[string]int)
	for shard, id := range next {
		if slices.Contains(members, id) {
			has[id]++
		} else {
			next[shard] = ""
		}
	}
	by := func(a, b string) int { return has[a] - has[b] }
	for {
		least, most := slices.MinFunc(members, by), slices.MaxFunc(members, by)
		shard := slices.Index(next, "") // first those that nobody has
		if shard < 0 && has[most] > has[least]+1 {
			shard = slices.Index(next, most)
			has[most]--
		}
		if shard < 0 {
			return next
		}
		next[shard] = least
		has[least]++
	}
}
