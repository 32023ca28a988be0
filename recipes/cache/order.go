package cache

import (
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// The order of paths is that of a walk: a znode, then all that is below it, and
// then its next sibling. So a slash sorts before every other character.

// compare returns a number below, equal to or above 0, as a sorts before b, is
// b, or sorts behind it.
func compare(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return rank(a[i]) - rank(b[i])
		}
	}
	return len(a) - len(b)
}

func rank(c byte) int {
	if c == '/' {
		return -1
	}
	return int(c)
}

// isBelow reports whether path is below dir, at any depth.
func isBelow(dir, path string) bool {
	if dir == "/" {
		return len(path) > 1
	}
	return len(path) > len(dir) && path[len(dir)] == '/' && path[:len(dir)] == dir
}

// compareTree compares path with dir and all that is below it: 0 means that it
// is one of these.
func compareTree(path, dir string) int {
	if isBelow(dir, path) {
		return 0
	}
	return compare(path, dir)
}

// parent returns the path of the znode above. The root has none: "".
func parent(path string) string {
	if path == "/" {
		return ""
	}
	above, _ := layout.Split(path)
	return above
}

// depth returns how many levels path is below root: 0 for root itself.
func depth(root, path string) int {
	if path == root {
		return 0
	}
	levels := strings.Count(path[len(root):], "/")
	if root == "/" {
		levels++
	}
	return levels
}
