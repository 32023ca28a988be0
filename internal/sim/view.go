package sim

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
)

// View is how a client sees the ensemble: below a chroot, below a namespace, below
// both, or below neither.
type View struct{ Chroot, Namespace string }

// under is the directory that everything stands in where clients have views. Each
// view shows a part of it, so all clients meet at the same paths of the ensemble
// and have different names for them.
const under = "/app/team"

// views draws one for each client, for half of all plans. It draws last, so that
// the rest of a plan does not depend on it.
func (d *draw) views() {
	if !d.one(1, 2) {
		return
	}
	for range d.Workers {
		d.Views = append(d.Views, pick(d, View{}, View{Chroot: under}, View{Namespace: under[1:]}, View{Chroot: "/app", Namespace: "team"}))
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
func (p *Plan) view(client int) View {
	if p.Views == nil {
		return View{}
	}
	return p.Views[client]
}

// of connects a client with the view.
func (v View) of(servers string, opts ...framework.Option) (*framework.Client, error) {
	c, err := framework.New(servers+v.Chroot, opts...)
	if err != nil || v.Namespace == "" {
		return c, err
	}
	return c.Namespace(v.Namespace)
}

// path is the client's name for a path of the ensemble.
func (v View) path(full string) string {
	below := v.Chroot
	if v.Namespace != "" {
		below += "/" + v.Namespace
	}
	return strings.TrimPrefix(full, below)
}

// prepare makes what must be there before anybody comes.
func (w *world) prepare(ctx context.Context) error {
	builder, paths := w.clients[0], []string(nil)
	if base := w.plan.base(); base != "" {
		c, err := framework.New(w.ens.Servers(), framework.WithDialer(w.ens.Client("builder").Dial))
		if err != nil {
			return err
		}
		defer c.Close()
		builder, paths = c, []string{base[:strings.LastIndexByte(base, '/')], base}
	}
	for i := range w.plan.paths() {
		paths = append(paths, w.plan.data(i))
	}
	for _, path := range paths {
		if _, err := builder.Create(ctx, path, nil, zk.FlagPersistent); err != nil {
			return err
		}
	}
	return nil
}

// data is what the guarded writes of those who hold one of the paths are made to.
func (p *Plan) data(i int) string { return fmt.Sprint(p.base(), "/data", i) }

// outside names a znode that stands where no view leads.
func (w *world) outside() string {
	base := w.plan.base()
	for line := range strings.Lines(w.ens.Tree()) {
		path, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(base+"/", strings.TrimSuffix(path, "/")+"/") && !strings.HasPrefix(path, base+"/") {
			return path
		}
	}
	return ""
}
