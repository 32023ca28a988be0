package bubble

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// View is how a client sees the ensemble: directly, below a chroot, below a
// namespace, or below both.
type View struct{ Chroot, Namespace string }

// Views has one of each kind, the direct one first. All others lead to the same
// directory.
var Views = []View{
	{},
	{Chroot: "/team/blue"},
	{Namespace: "team/blue"},
	{Chroot: "/team", Namespace: "blue"},
}

// EachView runs a scenario once for each of Views. With -short these are the
// direct one and the one below both, which runs what the others run.
func EachView(t *testing.T, scenario func(t *testing.T, v View)) {
	t.Helper()
	for _, v := range FewOf(3, Views) {
		t.Run(v.String(), func(t *testing.T) { scenario(t, v) })
	}
}

func (v View) String() string {
	switch {
	case v.Chroot != "" && v.Namespace != "":
		return "below both"
	case v.Chroot != "":
		return "below a chroot"
	case v.Namespace != "":
		return "below a namespace"
	}
	return "plain"
}

// Base returns the directory of the ensemble that is the view's root, "" for
// the root.
func (v View) Base() string {
	if v.Namespace == "" {
		return v.Chroot
	}
	return v.Chroot + "/" + v.Namespace
}

// Full returns the ensemble's path for a path of the view.
func (v View) Full(path string) string {
	if path == "/" && v != (View{}) {
		return v.Base()
	}
	return v.Base() + path
}

// Path returns the view's path for a path of the ensemble. A path outside of
// the view is returned unchanged.
func (v View) Path(full string) string {
	if path, below := strings.CutPrefix(full+"/", v.Base()+"/"); below && v != (View{}) {
		return "/" + strings.TrimSuffix(path, "/")
	}
	return full
}

// New is framework.New for a client with the view.
func (v View) New(servers string, opts ...framework.Option) (*framework.Client, error) {
	c, err := framework.New(servers+v.Chroot, opts...)
	if err != nil || v.Namespace == "" {
		return c, err
	}
	return c.Namespace(v.Namespace)
}

// Outside returns the path of a znode that is outside of the view and does not
// lead to it, "" if there is none.
func (v View) Outside(ens *testutil.Embedded) string {
	base := v.Base() + "/"
	for line := range strings.Lines(ens.Tree()) {
		path, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(base, path+"/") && !strings.HasPrefix(path, base) {
			return path
		}
	}
	return ""
}

// Ensemble is an ensemble with the paths of a view, as its clients see them.
type Ensemble struct {
	*testutil.Embedded
	View View
}

// NewEnsemble returns ens with the paths of a view, and creates the views'
// directory.
func NewEnsemble(t T, ens *testutil.Embedded, v View) *Ensemble {
	t.Helper()
	s := &Ensemble{ens, v}
	s.makeBase(t)
	return s
}

// makeBase creates the directory of the view, if it has one.
func (s *Ensemble) makeBase(t T) {
	t.Helper()
	if s.View == (View{}) {
		return
	}
	ctx, cancel := bounded()
	defer cancel()
	if err := MakeBase(ctx, s.Embedded); err != nil {
		t.Fatal(err)
	}
	s.Embedded.ResetRequests()
}

// MakeBase creates the directory of the Views, as persistent znodes, since
// servers delete empty containers.
func MakeBase(ctx context.Context, ens *testutil.Embedded) error {
	c, err := framework.New(ens.Servers(), framework.WithDialer(ens.ClientNet("builder").Dial))
	if err != nil {
		return err
	}
	defer c.Close()
	for _, dir := range []string{"/team", "/team/blue"} {
		if _, err := c.Create(ctx, dir, nil, zk.FlagPersistent); err != nil {
			return err
		}
	}
	return nil
}

// Exists is Embedded.Exists for a path of the view. The methods below are
// alike.
func (s *Ensemble) Exists(path string) bool { return s.Embedded.Exists(s.View.Full(path)) }

// Data is Embedded.Data for a path of the view.
func (s *Ensemble) Data(path string) ([]byte, bool) { return s.Embedded.Data(s.View.Full(path)) }

// Stat is Embedded.Stat for a path of the view.
func (s *Ensemble) Stat(path string) (testutil.Stat, bool) { return s.Embedded.Stat(s.View.Full(path)) }

// Children is Embedded.Children for a path of the view.
func (s *Ensemble) Children(path string) []string { return s.Embedded.Children(s.View.Full(path)) }

// Watches is Embedded.Watches with paths of the view.
func (s *Ensemble) Watches() map[string]int {
	counts := map[string]int{}
	for path, n := range maps.All(s.Embedded.Watches()) {
		counts[s.View.Path(path)] += n
	}
	return counts
}

// Control is Embedded.Control with paths of the view.
func (s *Ensemble) Control(decide func(testutil.Request) testutil.Action) (stop func()) {
	return s.Embedded.Control(s.View.seen(decide))
}

// ClientNet is Embedded.ClientNet with paths of the view.
func (s *Ensemble) ClientNet(name string) *Net { return &Net{s.Embedded.ClientNet(name), s.View} }

// Net is the network of a client, with paths of its view.
type Net struct {
	*testutil.ClientNet
	view View
}

// Control is ClientNet.Control with paths of the view.
func (n *Net) Control(decide func(testutil.Request) testutil.Action) (stop func()) {
	return n.ClientNet.Control(n.view.seen(decide))
}

// seen returns decide for requests with paths of the ensemble.
func (v View) seen(decide func(testutil.Request) testutil.Action) func(testutil.Request) testutil.Action {
	return func(r testutil.Request) testutil.Action {
		r.Path = v.Path(r.Path)
		r.Operations = slices.Clone(r.Operations)
		for i, o := range r.Operations {
			r.Operations[i].Path = v.Path(o.Path)
		}
		return decide(r)
	}
}

// Open is framework.New for a client of the view, through ClientNet(name).
func (s *Ensemble) Open(name string, opts ...framework.Option) (*framework.Client, error) {
	return s.OpenTo(name, s.Servers(), opts...)
}

// OpenTo is Open for a client that knows only the given servers.
func (s *Ensemble) OpenTo(name, servers string, opts ...framework.Option) (*framework.Client, error) {
	return s.View.New(servers, append([]framework.Option{framework.WithDialer(s.ClientNet(name).Dial)}, withUnusual(opts)...)...)
}
