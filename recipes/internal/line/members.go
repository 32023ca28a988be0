package line

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// A Member is one of those who stand in line, of whatever process.
type Member struct {
	Path    string
	Mode    layout.Mode
	Holds   bool // it need not wait for anybody
	Session int64
	Data    []byte
	Since   time.Time // when it joined, by the ensemble's clock
}

// Members lists who stands in line, in order, behind those who hold by a rule that
// takes. It costs a list, and a read for each of them; those who leave in between
// are left out.
func (l *Line) Members(ctx context.Context) ([]Member, error) {
	var holders []Member
	if l.rule.Take != nil {
		taken, err := l.nodes(ctx, l.rule.Take.Dir, layout.Lease)
		if err != nil {
			return nil, err
		}
		if holders, err = l.members(ctx, l.rule.Take.Dir, taken, func(int) bool { return true }); err != nil {
			return nil, err
		}
	}
	nodes, err := l.nodes(ctx, l.dir, l.rule.Family, l.rule.Also)
	if err != nil {
		return nil, err
	}
	waiting, err := l.members(ctx, l.dir, nodes, func(i int) bool { return l.holds(nodes, i) })
	return append(holders, waiting...), err
}

// holds reports whether one of the line holds by its rule.
func (l *Line) holds(nodes []layout.Node, i int) bool {
	_, waits := l.rule.Blocker(nodes[i], nodes[:i])
	return !waits && l.rule.Take == nil
}

func (l *Line) members(ctx context.Context, dir string, nodes []layout.Node, holds func(int) bool) ([]Member, error) {
	members := make([]Member, 0, len(nodes))
	for i, node := range nodes {
		member, err := l.member(ctx, dir, node, holds(i))
		if errors.Is(err, zk.ErrNoNode) {
			continue
		}
		if err != nil {
			return nil, err
		}
		members = append(members, member)
	}
	return members, nil
}

// First is the first in line, nil if there is none. It costs a list and a read,
// again if the first leaves in between.
func (l *Line) First(ctx context.Context) (*Member, error) {
	for {
		nodes, err := l.nodes(ctx, l.dir, l.rule.Family, l.rule.Also)
		if err != nil || len(nodes) == 0 {
			return nil, err
		}
		first, err := l.member(ctx, l.dir, nodes[0], l.holds(nodes, 0))
		if err == nil {
			return &first, nil
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return nil, err
		}
	}
}

// Count is how many of a directory's children stand in line.
func (l *Line) Count(children []string) int {
	nodes, _ := layout.Line(children, l.rule.Family, l.rule.Also)
	return len(nodes)
}

// nodes lists those of some families in a directory, in order.
func (l *Line) nodes(ctx context.Context, dir string, families ...layout.Family) ([]layout.Node, error) {
	children, _, err := l.client.Children(ctx, dir)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	nodes, _ := layout.Line(children, families...)
	return nodes, nil
}

func (l *Line) member(ctx context.Context, dir string, node layout.Node, holds bool) (Member, error) {
	path := child(dir, node.Name)
	data, stat, err := l.client.Get(ctx, path)
	if err != nil {
		return Member{}, err
	}
	return Member{
		Path:    path,
		Mode:    node.Mode,
		Holds:   holds,
		Session: stat.EphemeralOwner,
		Data:    data,
		Since:   time.UnixMilli(stat.Ctime),
	}, nil
}
