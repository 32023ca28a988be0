package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// snapshot is what is found at a path.
type snapshot struct {
	Path      string      `json:"path"`
	Exists    bool        `json:"exists"`
	Recipe    string      `json:"recipe,omitempty"`     // empty if unknown
	MaxLeases int         `json:"max_leases,omitempty"` // the recorded limit of a semaphore
	Holders   []contender `json:"holders"`
	Waiting   []contender `json:"waiting"` // in order
	Others    []string    `json:"others,omitempty"`
	Conflict  string      `json:"conflict,omitempty"`

	leads bool // the holder is shown as the leader
}

// contender is a holder or a waiter.
type contender struct {
	Path       string  `json:"path"`
	Holds      bool    `json:"holds"`
	Mode       string  `json:"mode"`
	Session    string  `json:"session"`
	AgeSeconds float64 `json:"age_s"` // our clock against the ensemble's timestamp: as exact as the two agree
	Data       string  `json:"data"`

	name  string
	czxid int64
}

// Names below a semaphore's path, or beside it.
const (
	queueDir   = "locks"                   // the line of a semaphore of ours or Curator's
	leaseDir   = "leases"                  // its leases
	limitNode  = "limit"                   // keeps the path, and with it the limit, while the semaphore is unused
	kazooQueue = layout.KazooSemaphoreLine // appended to the path of Kazoo's semaphore: its line; the leases are at the path itself
)

// takeSnapshot reads a path. Each znode is read separately, so a change
// meanwhile may show in part.
func takeSnapshot(ctx context.Context, c *framework.Client, at string) (snapshot, error) {
	s := snapshot{Path: at, Holders: []contender{}, Waiting: []contender{}}
	if err := c.Sync(ctx, at); err != nil { // otherwise a member that lags could show old data
		return s, err
	}
	children, _, err := c.Children(ctx, at)
	if errors.Is(err, zk.ErrNoNode) {
		return s, nil
	} else if err != nil {
		return s, err
	}
	s.Exists = true
	line, others := sortLine(children)
	s.Others = others
	now := time.Now()
	switch {
	case len(line) > 0:
		return s, s.readLine(ctx, c, line, now)
	case slices.Contains(children, leaseDir) && slices.Contains(children, queueDir):
		return s, s.readSemaphore(ctx, c, now)
	case slices.ContainsFunc(children, layout.MayBeKazooLease):
		return s, s.readKazooSemaphore(ctx, c, now)
	case len(children) == 0 || len(children) == 1 && children[0] == limitNode: // an unused semaphore leaves its limit
		s.Others = nil
		return s, s.readLimit(ctx, c)
	default:
		return s, nil
	}
}

// readLine reads a recipe that is a single line, as most are.
func (s *snapshot) readLine(ctx context.Context, c *framework.Client, line []layout.Node, now time.Time) error {
	var families []layout.Family
	for _, node := range line {
		if !slices.Contains(families, node.Family) {
			families = append(families, node.Family)
		}
	}
	s.Recipe = recipe(families[0])
	s.leads = families[0] == layout.Latch
	if len(families) == 2 && families[0]+families[1] == layout.KazooLock+layout.KazooRLock {
		s.Recipe = recipe(layout.KazooRLock)
	} else if len(families) > 1 {
		s.Conflict = "several recipes or layouts use this path, and do not see each other"
	}
	return s.addLine(ctx, c, s.Path, line, now, func(i int) bool { return holds(line, i) })
}

// addLine adds the contenders of a line. Those that have left meanwhile are
// skipped.
func (s *snapshot) addLine(ctx context.Context, c *framework.Client, dir string, line []layout.Node, now time.Time, holds func(i int) bool) error {
	for i, node := range line {
		contender, err := read(ctx, c, path.Join(dir, node.Name), node.Mode, now)
		if errors.Is(err, zk.ErrNoNode) {
			continue
		} else if err != nil {
			return err
		}
		s.add(contender, holds(i))
	}
	return nil
}

func (s *snapshot) add(c contender, holds bool) {
	c.Holds = holds
	if holds {
		s.Holders = append(s.Holders, c)
	} else {
		s.Waiting = append(s.Waiting, c)
	}
}

// holds reports whether contender i of a line holds. The first one does, and so
// do readers without a writer ahead, except for the write that they were
// downgraded from.
func holds(line []layout.Node, i int) bool {
	if i == 0 || line[i].Family == layout.Lease {
		return true
	}
	for _, ahead := range line[:i] {
		if line[i].Mode == layout.Exclusive || ahead.Mode == layout.Exclusive && (ahead.Seq != line[i].Seq || ahead.Seq != line[0].Seq) {
			return false
		}
	}
	return true
}

// readSemaphore reads what is below a semaphore's path. Each lease holds. In
// the line, the first contender waits for leases, and every other one for the
// one ahead.
func (s *snapshot) readSemaphore(ctx context.Context, c *framework.Client, now time.Time) error {
	s.Recipe = "semaphore"
	s.Others = slices.DeleteFunc(s.Others, func(name string) bool { return name == queueDir || name == leaseDir || name == limitNode })
	if err := s.readLimit(ctx, c); err != nil {
		return err
	}
	for _, dir := range []string{leaseDir, queueDir} {
		below := path.Join(s.Path, dir)
		children, _, err := c.Children(ctx, below)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		line, others := sortLine(children)
		for _, name := range others {
			s.Others = append(s.Others, dir+"/"+name)
		}
		if err := s.addLine(ctx, c, below, line, now, func(int) bool { return dir == leaseDir }); err != nil {
			return err
		}
	}
	for i := range s.Waiting { // they wait in order, but for a shared lease
		s.Waiting[i].Mode = layout.Shared.String()
	}
	return nil
}

// readKazooSemaphore reads Kazoo's semaphore. Its leases have no sequence
// numbers, so they are sorted by the transactions that created them.
func (s *snapshot) readKazooSemaphore(ctx context.Context, c *framework.Client, now time.Time) error {
	s.Recipe = "semaphore (Kazoo)"
	if err := s.readLimit(ctx, c); err != nil {
		return err
	}
	for _, name := range s.Others {
		if !layout.MayBeKazooLease(name) {
			continue
		}
		contender, err := read(ctx, c, path.Join(s.Path, name), layout.Shared, now)
		if errors.Is(err, zk.ErrNoNode) {
			continue
		} else if err != nil {
			return err
		}
		s.add(contender, true)
	}
	slices.SortFunc(s.Holders, func(a, b contender) int { return cmp.Compare(a.czxid, b.czxid) })
	s.Others = slices.DeleteFunc(s.Others, layout.MayBeKazooLease)
	children, _, err := c.Children(ctx, s.Path+kazooQueue)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	line, _ := layout.Line(children, layout.Set{Family: layout.KazooLock})
	return s.addLine(ctx, c, s.Path+kazooQueue, line, now, func(int) bool { return false })
}

// readLimit reads the limit that a semaphore records at its path.
func (s *snapshot) readLimit(ctx context.Context, c *framework.Client) error {
	data, _, err := c.Get(ctx, s.Path)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	if n, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil && n > 0 {
		s.MaxLeases = n
	}
	return nil
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
	return line, others
}

func read(ctx context.Context, c *framework.Client, at string, mode layout.Mode, now time.Time) (contender, error) {
	data, stat, err := c.Get(ctx, at)
	if err != nil {
		return contender{}, err
	}
	return contender{
		Path:       at,
		Mode:       mode.String(),
		Session:    fmt.Sprintf("%#x", stat.EphemeralOwner),
		AgeSeconds: max(0, now.Sub(time.UnixMilli(stat.Ctime)).Seconds()),
		Data:       string(data),
		name:       path.Base(at),
		czxid:      stat.Czxid,
	}, nil
}

// recipe names the recipes that use a family of names. Where there are several,
// they share one line.
func recipe(f layout.Family) string {
	switch f {
	case layout.CuratorLock:
		return "mutex or election (selector)"
	case layout.CuratorRW:
		return "read/write lock (Curator)"
	case layout.PlainRW:
		return "read/write lock"
	case layout.Latch:
		return "election (latch)"
	case layout.Lease:
		return "leases of a semaphore"
	case layout.KazooLock:
		return "lock or election (Kazoo)"
	case layout.KazooRLock:
		return "read/write lock (Kazoo)"
	default:
		return "unknown"
	}
}
