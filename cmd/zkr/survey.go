package main

import (
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
	Recipe    string      `json:"recipe,omitempty"` // empty: none that is known
	MaxLeases int         `json:"max_leases,omitempty"`
	Holders   []contender `json:"holders"`
	Waiting   []contender `json:"waiting"` // in order
	Others    []string    `json:"others,omitempty"`
	Conflict  string      `json:"conflict,omitempty"`
}

// contender is one who holds or waits.
type contender struct {
	Path       string  `json:"path"`
	Holds      bool    `json:"holds"`
	Mode       string  `json:"mode"`
	Session    string  `json:"session"`
	AgeSeconds float64 `json:"age_s"` // by our clock from the ensemble's stamp, so as good as the two agree
	Data       string  `json:"data"`

	name string
}

// The directories of Curator's semaphore: a line of those who come, and the leases.
const (
	queueDir = "locks"
	leaseDir = "leases"
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
	if semaphore := slices.Contains(children, queueDir) && slices.Contains(children, leaseDir); semaphore && len(line) == 0 {
		return s, s.surveySemaphore(ctx, c, now)
	}
	if len(line) == 0 {
		return s, nil
	}
	families := make(map[layout.Family]bool)
	for _, node := range line {
		families[node.Family] = true
	}
	s.Recipe = recipe(line[0].Family)
	delete(families, line[0].Family)
	if f := line[0].Family; f == layout.KazooLock || f == layout.KazooRLock {
		delete(families, layout.KazooLock)
		if families[layout.KazooRLock] || f == layout.KazooRLock {
			s.Recipe = recipe(layout.KazooRLock)
		}
		delete(families, layout.KazooRLock)
	}
	if len(families) > 0 {
		s.Conflict = "several recipes or layouts on one path, which do not see each other"
	}
	for i, node := range line {
		contender, err := read(ctx, c, at, node, now)
		if errors.Is(err, zk.ErrNoNode) {
			continue // it left meanwhile
		} else if err != nil {
			return s, err
		}
		s.add(contender, holds(line, i))
	}
	return s, nil
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

// surveySemaphore fills in what stands below a semaphore's path.
func (s *snapshot) surveySemaphore(ctx context.Context, c *framework.Client, now time.Time) error {
	s.Recipe = "semaphore"
	s.Others = slices.DeleteFunc(s.Others, func(name string) bool { return name == queueDir || name == leaseDir })
	data, _, err := c.Get(ctx, s.Path)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	if n, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil && n > 0 {
		s.MaxLeases = n
	}
	for _, dir := range []string{leaseDir, queueDir} {
		children, _, err := c.Children(ctx, path.Join(s.Path, dir))
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		line, others := sortLine(children)
		for _, name := range others {
			s.Others = append(s.Others, dir+"/"+name)
		}
		for _, node := range line {
			contender, err := read(ctx, c, path.Join(s.Path, dir), node, now)
			if errors.Is(err, zk.ErrNoNode) {
				continue
			} else if err != nil {
				return err
			}
			s.add(contender, dir == leaseDir)
		}
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

func read(ctx context.Context, c *framework.Client, dir string, node layout.Node, now time.Time) (contender, error) {
	at := path.Join(dir, node.Name)
	data, stat, err := c.Get(ctx, at)
	if err != nil {
		return contender{}, err
	}
	return contender{
		Path:       at,
		Mode:       node.Mode.String(),
		Session:    fmt.Sprintf("%#x", stat.EphemeralOwner),
		AgeSeconds: max(0, now.Sub(time.UnixMilli(stat.Ctime)).Seconds()),
		Data:       string(data),
		name:       node.Name,
	}, nil
}

// recipe names the recipe that makes a family's names.
func recipe(f layout.Family) string {
	switch f {
	case layout.CuratorLock:
		return "mutex" // or an election that stands in the same kind of line
	case layout.CuratorRW:
		return "read/write lock (Curator)"
	case layout.PlainRW:
		return "read/write lock"
	case layout.Latch:
		return "leader latch (Curator)"
	case layout.Lease:
		return "semaphore leases"
	case layout.KazooLock:
		return "lock (Kazoo)"
	case layout.KazooRLock:
		return "read/write lock (Kazoo)"
	default:
		return "unknown"
	}
}
