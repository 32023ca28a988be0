package sim

import (
	"context"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/bubble"
)

// under is the directory that everything stands in where clients have views. Each
// view shows a part of it, so all clients meet at the same paths of the ensemble
// and have different names for them.
var under = bubble.Views[1].Base()

// views draws one for each client, for half of all plans. It draws last, so that
// the rest of a plan does not depend on it.
func (d *draw) views() {
	if !d.one(1, 2) {
		return
	}
	for range d.Workers {
		d.Views = append(d.Views, pick(d, bubble.Views...))
	}
}

// base is the directory that everything stands in; empty: the root.
func (p *Plan) base() string {
	if p.Views == nil {
		return ""
	}
	return under
}

// view is that of a client.
func (p *Plan) view(client int) bubble.View {
	if p.Views == nil {
		return bubble.View{}
	}
	return p.Views[client]
}

// whole is a view of everything.
func (p *Plan) whole() bubble.View { return bubble.View{Chroot: p.base()} }

// prepare makes what must be there before anybody comes.
func (w *world) prepare(ctx context.Context) error {
	if w.plan.Views != nil {
		if err := bubble.MakeBase(ctx, w.ens); err != nil {
			return err
		}
	}
	for i := range w.plan.paths() {
		if _, err := w.clients[0].Create(ctx, w.plan.view(0).Path(w.plan.data(i)), nil, zk.FlagPersistent); err != nil {
			return err
		}
	}
	return nil
}

// data is what the guarded writes of those who hold one of the paths are made to.
func (p *Plan) data(i int) string { return fmt.Sprint(p.base(), "/data", i) }
