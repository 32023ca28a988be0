package inspect

// lacksAParent reports whether a waiter of lines descends from a session that
// has no contender in lines. Such a session may have a parent of its own, which
// only the data of its contenders says.
func lacksAParent(lines []*Line) bool {
	parents := map[int64]int64{} // of each session that was read
	for _, l := range lines {
		for _, c := range l.inOrder() {
			if c.read && parents[c.Session] == 0 {
				parents[c.Session] = c.Parent
			}
		}
	}
	climbed := map[int64]bool{0: true}
	for _, l := range lines {
		for _, c := range l.Waiting {
			for s := c.Session; !climbed[s]; s = parents[s] {
				if _, ok := parents[s]; !ok {
					return true
				}
				climbed[s] = true
			}
		}
	}
	return false
}

// isNested reports whether a contender of the line has a parent.
func (l *Line) isNested() bool {
	for _, c := range l.inOrder() {
		if c.Parent != 0 {
			return true
		}
	}
	return false
}
