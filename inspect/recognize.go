package inspect

import (
	"context"
	"path"
	"slices"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// Names below a semaphore's path, or next to it.
const (
	queueDir   = "locks"                   // the waiters of a semaphore of ours or Curator's
	leaseDir   = "leases"                  // its permits
	limitNode  = "limit"                   // keeps the path, and with it the limit, while the semaphore is unused
	kazooQueue = layout.KazooSemaphoreLine // appended to the path of Kazoo's semaphore: its waiters; the permits are at the path itself
)

// Directories returns the directories whose children are the contenders of a
// line at path, whichever recipe that is: path itself, and those of semaphores.
// They need not exist.
func Directories(at string) []string {
	return []string{at, path.Join(at, queueDir), path.Join(at, leaseDir), at + kazooQueue}
}

// sortLine sorts the contenders of all layouts. others are the names of all
// other znodes.
func sortLine(children []string) (line []layout.Node, others []string) {
	for _, name := range children {
		if node, ok := layout.Parse(name); ok {
			line = append(line, node)
		} else {
			others = append(others, name)
		}
	}
	layout.Sort(line)
	slices.Sort(others)
	return line, others
}

// recognize reads the line at a path. Line.Others are the znodes below the path
// that are no part of it, such as "config" or "leases/config". kazoo says
// whether there is a directory for the waiters of Kazoo's semaphore next to the
// path; nil means that this is not known.
func (g *reading) recognize(ctx context.Context, at string, kazoo *bool) (Line, error) {
	l := Line{Path: at}
	children, found, err := g.list(ctx, at)
	if err != nil || !found {
		return l, err
	}
	l.Exists = true
	line, others := sortLine(children)
	l.Others = others
	switch {
	case len(line) > 0:
		l.setLine(line)
	case slices.Contains(children, leaseDir):
		err = g.recognizeSemaphore(ctx, &l)
	case kazoo != nil && *kazoo, kazoo == nil && slices.ContainsFunc(children, layout.MayBeKazooLease):
		err = g.recognizeKazoo(ctx, &l)
	}
	if err == nil {
		err = l.arrange(g.rules)
	}
	return l, err
}

// setLine makes l a recipe that is a single line, as most are.
func (l *Line) setLine(line []layout.Node) {
	l.entries = contenders(l.Path, line)
	l.Recipe = recipeOf(line[0])
	l.Election = line[0].Family == layout.Latch
	for _, node := range line[1:] {
		switch {
		case sameSet(&line[0], &node):
			if node.Family == layout.KazooRLock {
				l.Recipe = recipeOf(node)
			}
		default:
			l.Conflict = "several recipes or layouts use this path, and do not see each other"
		}
	}
}

// sameSet reports whether two contenders belong to one line.
func sameSet(a, b *layout.Node) bool {
	if a.Family == b.Family {
		return a.Kind == b.Kind
	}
	kazoo := func(f layout.Family) bool { return f == layout.KazooLock || f == layout.KazooRLock }
	return kazoo(a.Family) && kazoo(b.Family)
}

func contenders(dir string, line []layout.Node) []Contender {
	all := make([]Contender, len(line))
	for i, node := range line {
		all[i] = Contender{Path: path.Join(dir, node.Name), Shared: node.Mode == layout.Shared, node: node}
	}
	return all
}

// recognizeSemaphore reads the directories of a semaphore of ours or Curator's.
// The directory of the waiters may be missing: the ensemble deletes it while
// nobody waits.
func (g *reading) recognizeSemaphore(ctx context.Context, l *Line) error {
	whole := slices.Contains(l.Others, queueDir)
	var others []string
	for _, dir := range []string{leaseDir, queueDir} {
		if dir == queueDir && !whole {
			continue
		}
		children, _, err := g.list(ctx, path.Join(l.Path, dir))
		if err != nil {
			return err
		}
		line, rest := sortLine(children)
		if dir == leaseDir {
			l.permits = contenders(path.Join(l.Path, dir), line)
		} else {
			l.entries = contenders(path.Join(l.Path, dir), line)
		}
		for _, name := range rest {
			others = append(others, dir+"/"+name)
		}
	}
	if !whole && (len(l.permits) == 0 || l.permits[0].node.Family != layout.Lease) {
		l.permits = nil
		return nil // a directory that happens to have the name
	}
	l.form, l.Recipe, l.Semaphore = semaphore, "semaphore", true
	l.Others = append(slices.DeleteFunc(l.Others, func(name string) bool { return name == queueDir || name == leaseDir || name == limitNode }), others...)
	return nil
}

// recognizeKazoo reads the directories of Kazoo's semaphore.
func (g *reading) recognizeKazoo(ctx context.Context, l *Line) error {
	children, found, err := g.list(ctx, l.Path+kazooQueue)
	if err != nil || !found { // names that look like Kazoo's
		return err
	}
	line, _ := layout.Line(children, layout.Set{Family: layout.KazooLock})
	l.form, l.Recipe, l.Semaphore = kazooSemaphore, "semaphore (Kazoo)", true
	l.entries = contenders(l.Path+kazooQueue, line)
	l.Others = slices.DeleteFunc(l.Others, func(name string) bool {
		if !layout.MayBeKazooLease(name) {
			return false
		}
		l.permits = append(l.permits, Contender{Path: path.Join(l.Path, name), Shared: true})
		return true
	})
	return nil
}
