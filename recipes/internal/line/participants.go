package line

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/turns"
)

// A Participant is a contender in line, or a holder, of whatever process.
type Participant struct {
	Path    string
	Name    string // the contender's, as its znode shows it
	Holder  bool
	Shared  bool // it does not conflict with another of its name
	Session int64
	Data    []byte
	Since   time.Time // when it joined, by the ensemble's clock
}

// Participants lists the contenders in line, in order, behind the holders of
// permits. It costs a list and a framework.Client.ReadAll of them, and as much
// again for permits. Those who leave in between are left out. It fails if the
// client's chroot is missing and may not be created.
func (l *Line) Participants(ctx context.Context) ([]Participant, error) {
	var holders []Participant
	if p := l.rule.Permits; p != nil {
		taken, err := l.nodes(ctx, p.Dir, p.Set)
		if err != nil {
			return nil, err
		}
		if holders, err = l.participants(ctx, p.Dir, taken, func(int) (bool, error) { return true, nil }); err != nil {
			return nil, err
		}
	}
	nodes, err := l.nodes(ctx, l.dir, l.rule.Set)
	if err != nil {
		return nil, err
	}
	waiting, err := l.participants(ctx, l.dir, nodes, func(i int) (bool, error) { return l.granted(nodes, i) })
	return append(holders, waiting...), err
}

// granted reports whether a contender waits for nobody.
func (l *Line) granted(nodes []layout.Node, i int) (bool, error) {
	if l.rule.Permits != nil {
		return false, nil
	}
	last, err := l.rule.lastConflict(&nodes[i], nodes[:i])
	return last < 0, err
}

func (l *Line) participants(ctx context.Context, dir string, nodes []layout.Node, holds func(int) (bool, error)) ([]Participant, error) {
	reads := make([]request.Read, len(nodes))
	for i, node := range nodes {
		reads[i].Path = child(dir, node.Name)
	}
	found, err := l.client.ReadAll(ctx, reads...)
	if err != nil {
		return nil, err
	}
	all := make([]Participant, 0, len(nodes))
	for i, node := range nodes {
		held, err := holds(i)
		if err != nil {
			return nil, err
		}
		r := found[i]
		if errors.Is(r.Err, zk.ErrNoNode) {
			continue
		}
		if r.Err != nil {
			return nil, r.Err
		}
		p, err := l.participant(reads[i].Path, node, held, r.Data, r.Stat)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// First returns the first in line, nil if there is none. It costs a list and a
// read, again if the first leaves in between.
func (l *Line) First(ctx context.Context) (*Participant, error) {
	for again := (turns.Turns{}); ; again.Pause(ctx, l.client.Done()) {
		nodes, err := l.nodes(ctx, l.dir, l.rule.Set)
		if err != nil || len(nodes) == 0 {
			return nil, err
		}
		path := child(l.dir, nodes[0].Name)
		data, stat, err := l.client.Get(ctx, path)
		if errors.Is(err, zk.ErrNoNode) {
			continue
		}
		if err != nil {
			return nil, err
		}
		first, err := l.participant(path, nodes[0], l.rule.Permits == nil, data, stat)
		if err != nil {
			return nil, err
		}
		return &first, nil
	}
}

// nodes lists the contenders of a set in a directory, in order.
func (l *Line) nodes(ctx context.Context, dir string, set layout.Set) ([]layout.Node, error) {
	children, _, err := l.client.Children(ctx, dir)
	if framework.Absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	nodes, _ := layout.Line(children, set)
	return nodes, nil
}

func (l *Line) participant(path string, node layout.Node, holder bool, data []byte, stat *zk.Stat) (Participant, error) {
	conflicts, err := l.rule.conflict(node.RuleName, node.RuleName)
	if err != nil {
		return Participant{}, err
	}
	return Participant{
		Path:    path,
		Name:    node.RuleName,
		Holder:  holder,
		Shared:  !conflicts,
		Session: stat.EphemeralOwner,
		Data:    data,
		Since:   time.UnixMilli(stat.Ctime),
	}, nil
}
