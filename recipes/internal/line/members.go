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
	children, _, err := l.client.Children(ctx, l.dir)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	nodes, _ := layout.Line(children, l.rule.Family)
	members := make([]Member, 0, len(nodes))
	for i, node := range nodes {
		path := child(l.dir, node.Name)
		data, stat, err := l.client.Get(ctx, path)
		if errors.Is(err, zk.ErrNoNode) {
			continue
		}
		if err != nil {
			return nil, err
		}
		_, waits := l.rule.Blocker(node, nodes[:i])
		members = append(members, Member{
			Path:    path,
			Mode:    node.Mode,
			Holds:   !waits,
			Session: stat.EphemeralOwner,
			Data:    data,
			Since:   time.UnixMilli(stat.Ctime),
		})
	}
	return members, nil
}
