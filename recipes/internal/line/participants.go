package line

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
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
// permits. It costs a list, and a read for each of them. Those who leave in
// between are left out. It fails if the client's chroot is missing and may not
// be created.
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
	all := make([]Participant, 0, len(nodes))
	for i, node := range nodes {
		held, err := holds(i)
		if err != nil {
			return nil, err
		}
		p, err := l.participant(ctx, dir, node, held)
		if errors.Is(err, zk.ErrNoNode) {
			continue
		}
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
	for {
		nodes, err := l.nodes(ctx, l.dir, l.rule.Set)
		if err != nil || len(nodes) == 0 {
			return nil, err
		}
		first, err := l.participant(ctx, l.dir, nodes[0], l.rule.Permits == nil)
		if err == nil {
			return &first, nil
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return nil, err
		}
	}
}

// nodes lists the contenders of a set in a directory, in order.
func (l *Line) nodes(ctx context.Context, dir string, set layout.Set) ([]layout.Node, error) {
	children, _, err := l.client.Children(ctx, dir)
	if errors.Is(err, zk.ErrNoNode) && !errors.As(err, new(interface{ MissingChroot() string })) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	nodes, _ := layout.Line(children, set)
	return nodes, nil
}

func (l *Line) participant(ctx context.Context, dir string, node layout.Node, holder bool) (Participant, error) {
	path := child(dir, node.Name)
	data, stat, err := l.client.Get(ctx, path)
	if err != nil {
		return Participant{}, err
	}
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
