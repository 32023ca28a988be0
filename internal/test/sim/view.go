package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
)

// under is the directory of everything in plans with views. Each view shows a
// part of it, so that all clients use the same paths of the ensemble under
// different names.
var under = bubble.Views[1].Base()

// views draws a view for each client, in half of all plans. It draws last, so
// that the rest of a plan does not depend on it.
func (d *draw) views() {
	if !d.one(1, 2) {
		return
	}
	for range d.Workers {
		d.Views = append(d.Views, pick(d, bubble.Views...))
	}
}

// base returns the directory of everything; empty means the root.
func (p *Plan) base() string {
	if p.Views == nil {
		return ""
	}
	return under
}

// view returns the view of a client.
func (p *Plan) view(client int) bubble.View {
	if p.Views == nil {
		return bubble.View{}
	}
	return p.Views[client]
}

// whole returns a view of the whole ensemble.
func (p *Plan) whole() bubble.View { return bubble.View{Chroot: p.base()} }

// prepare creates what must exist before the first client connects.
func (w *world) prepare(ctx context.Context) error {
	if w.plan.Views != nil && !w.plan.Named {
		if err := bubble.MakeBase(ctx, w.ens); err != nil {
			return err
		}
	}
	for i := range w.plan.paths() {
		if _, err := w.clients[0].Create(ctx, w.plan.view(0).Path(w.plan.data(i)), nil, zk.FlagPersistent); err != nil && !errors.Is(err, zk.ErrNodeExists) { // its first answer was lost
			return err
		}
	}
	if w.plan.Recipe == Once {
		for _, name := range []string{"", dataName} {
			if _, err := w.clients[0].Create(ctx, w.plan.view(0).Path(w.plan.paths()[0])+name, nil, zk.FlagPersistent); err != nil {
				return err
			}
		}
		return nil
	}
	if w.plan.Other {
		if err := w.operator.MakeContainerPath(ctx, w.plan.other()); err != nil { // it stays, since it never has a child
			return err
		}
	}
	if path := w.plan.paths()[0]; w.plan.Crashed {
		if err := w.operator.MakeContainerPath(ctx, path); err != nil {
			return err
		}
		if _, err := w.operator.Create(ctx, path+"/ready", nil, zk.FlagPersistent); err != nil || w.plan.Neighbor == 0 {
			return err
		}
		_, err := w.operator.Create(ctx, path+"/neighbor", []byte("neighbor"), zk.FlagEphemeral)
		time.AfterFunc(w.plan.Neighbor, func() {
			w.insist(func() bool { return w.removed(path+"/neighbor") || !w.ens.Exists(path+"/neighbor") })
		})
		return err
	}
	return nil
}

// data returns the path that guarded writes under a lock's path write to.
func (p *Plan) data(i int) string { return fmt.Sprint(p.base(), "/data", i) }
