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

// snapshot is what stands at a path.
type snapshot struct {
	Path      string      `json:"path"`
	Exists    bool        `json:"exists"`
	Recipe    string      `json:"recipe,omitempty"`     // empty: none that is known
	MaxLeases int         `json:"max_leases,omitempty"` // the limit that is recorded, if it is a semaphore
	Holders   []contender `json:"holders"`
	Waiting   []contender `json:"waiting"` // in order
	Others    []string    `json:"others,omitempty"`
	Conflict  string      `json:"conflict,omitempty"`

	leads bool // who holds is said to lead
}

// contender is one who holds or waits.
type contender struct {
	Path       string  `json:"path"`
	Holds      bool    `json:"holds"`
	Mode       string  `json:"mode"`
	Session    string  `json:"session"`
	AgeSeconds float64 `json:"age_s"` // by our clock from the ensemble's stamp, so as good as the two agree
	Data       string  `json:"data"`

	name  string
	czxid int64
}

// What stands at a semaphore's path, or beside it.
const (
	queueDir   = "locks"                   // ours and Curator's: those who come, in line
	leaseDir   = "leases"                  // and the leases
	keeper     = "limit"                   // keeps the path, and with it the limit, when nobody uses it
	kazooQueue = layout.KazooSemaphoreLine // behind Kazoo's path: those who come; the leases are at the path
)

// survey looks at a path. Each znode is read by itself, so what changes meanwhile may show half; what it shows was there.
func survey(ctx context.Context, c *framework.Client, at string) (snapshot, error) {
	s := snapshot{Path: at, Holders: []contender{}, Waiting: []contender{}}
	if err := c.Sync(ctx, at); err != nil { // or a member that lags would show the past
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
		return s, s.surveyLine(ctx, c, line, now)
	case slices.Contains(children, leaseDir) && slices.Contains(children, queueDir):
		return s, s.surveySemaphore(ctx, c, now)
	case slices.ContainsFunc(children, layout.MayBeKazooLease):
		return s, s.surveyKazooSemaphore(ctx, c, now)
	case len(children) == 0 || len(children) == 1 && children[0] == keeper: // a semaphore that nobody uses leaves its limit
		s.Others = nil
		return s, s.readLimit(ctx, c)
	default:
		return s, nil
	}
}

// surveyLine fills in one line, which is all that most recipes are.
func (s *snapshot) surveyLine(ctx context.Context, c *framework.Client, line []layout.Node, now time.Time) error {
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
		s.Conflict = "several recipes or layouts on one path, which do not see each other"
	}
	return s.addLine(ctx, c, s.Path, line, now, func(i int) bool { return holds(line, i) })
}

// addLine reads those in line; those who leave meanwhile are left out.
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

// holds reports whether the i-th of a line holds: the first does; and readers do that have no writer ahead of them, but for
// the one that they came out of.
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

// surveySemaphore fills in what stands below a semaphore's path: the leases, each of which holds, and those who come, the
// first of whom waits for leases, and each other one for who is before it.
func (s *snapshot) surveySemaphore(ctx context.Context, c *framework.Client, now time.Time) error {
	s.Recipe = "semaphore"
	s.Others = slices.DeleteFunc(s.Others, func(name string) bool { return name == queueDir || name == leaseDir || name == keeper })
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
	for i := range s.Waiting { // they stand in line one by one, for what is shared
		s.Waiting[i].Mode = layout.Shared.String()
	}
	return nil
}

// surveyKazooSemaphore does so for Kazoo's, whose leases have no numbers: the ensemble's order of their creation is theirs.
func (s *snapshot) surveyKazooSemaphore(ctx context.Context, c *framework.Client, now time.Time) error {
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
	line, _ := layout.Line(children, layout.KazooLock)
	return s.addLine(ctx, c, s.Path+kazooQueue, line, now, func(int) bool { return false })
}

// readLimit reads what a semaphore of either kind records at its path.
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

// sortLine sorts all contenders of whatever family; others are the names of those that are none.
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

// recipe names the recipes that make a family's names. Where there are several they stand in one line.
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
