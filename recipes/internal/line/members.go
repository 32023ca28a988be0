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

// Members lists who stands in line, in order. It costs a list, and a read for each
// of them; those who leave in between are left out.
func (l *Line) Members(ctx context.Context) ([]Member, error) {
	nodes, err := l.nodes(ctx)
	if err != nil {
		return nil, err
	}
	members := make([]Member, 0, len(nodes))
	for i, node := range nodes {
		member, err := l.member(ctx, node, nodes[:i])
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
		nodes, err := l.nodes(ctx)
		if err != nil || len(nodes) == 0 {
			return nil, err
		}
		first, err := l.member(ctx, nodes[0], nil)
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
	nodes, _ := layout.Line(children, l.rule.Family)
	return len(nodes)
}

// nodes lists the line.
func (l *Line) nodes(ctx context.Context) ([]layout.Node, error) {
	children, _, err := l.client.Children(ctx, l.dir)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	nodes, _ := layout.Line(children, l.rule.Family)
	return nodes, nil
}

// member reads one of the line, which has ahead before it.
func (l *Line) member(ctx context.Context, node layout.Node, ahead []layout.Node) (Member, error) {
	path := child(l.dir, node.Name)
	data, stat, err := l.client.Get(ctx, path)
	if err != nil {
		return Member{}, err
	}
	_, waits := l.rule.Blocker(node, ahead)
	return Member{
		Path:    path,
		Mode:    node.Mode,
		Holds:   !waits,
		Session: stat.EphemeralOwner,
		Data:    data,
		Since:   time.UnixMilli(stat.Ctime),
	}, nil
}
