package bubble

import (
	"context"
	"maps"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// View is how a client sees the ensemble: below a chroot, below a namespace, below
// both, or as it is.
type View struct{ Chroot, Namespace string }

// Views are one of each, none first. All but the first lead to the same directory.
var Views = []View{
	{},
	{Chroot: "/team/blue"},
	{Namespace: "team/blue"},
	{Chroot: "/team", Namespace: "blue"},
}

// EachView runs a scenario once for each of Views.
func EachView(t *testing.T, scenario func(t *testing.T, v View)) {
	t.Helper()
	for _, v := range Views {
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

// Base is the directory of the ensemble that the view's paths stand below; empty:
// the root.
func (v View) Base() string {
	if v.Namespace == "" {
		return v.Chroot
	}
	return v.Chroot + "/" + v.Namespace
}

// Full is the ensemble's path for one of the view.
func (v View) Full(path string) string {
	if path == "/" && v != (View{}) {
		return v.Base()
	}
	return v.Base() + path
}

// Path is the view's path for one of the ensemble. A path that the view does not
// show stays as it is.
func (v View) Path(full string) string {
	if base := v.Base(); strings.HasPrefix(full, base+"/") {
		return full[len(base):]
	}
	return full
}

// New is framework.New for a client that has the view.
func (v View) New(servers string, opts ...framework.Option) (*framework.Client, error) {
	c, err := framework.New(servers+v.Chroot, opts...)
	if err != nil || v.Namespace == "" {
		return c, err
	}
	return c.Namespace(v.Namespace)
}

// Outside names a znode of the ensemble that the view does not show, other than the
// ones that lead to it; empty: there is none.
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

// Seen is an ensemble whose paths are those of a view, as its clients have them.
type Seen struct {
	*testutil.Embedded
	View View
}

// See is an ensemble as a view shows it. It makes the directory of the views.
func See(t T, ens *testutil.Embedded, v View) *Seen {
	t.Helper()
	if v != (View{}) {
		ctx, cancel := bounded()
		defer cancel()
		if err := MakeBase(ctx, ens); err != nil {
			t.Fatal(err)
		}
	}
	return &Seen{ens, v}
}

// MakeBase makes the directory that the Views lead to, of znodes that stay: servers
// remove containers that are empty.
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

// Exists is that of a path of the view, and so is all that follows.
func (s *Seen) Exists(path string) bool { return s.Embedded.Exists(s.View.Full(path)) }

// Data is that of a path of the view.
func (s *Seen) Data(path string) ([]byte, bool) { return s.Embedded.Data(s.View.Full(path)) }

// Stat is that of a path of the view.
func (s *Seen) Stat(path string) (testutil.Stat, bool) { return s.Embedded.Stat(s.View.Full(path)) }

// Children are those of a path of the view.
func (s *Seen) Children(path string) []string { return s.Embedded.Children(s.View.Full(path)) }

// Watches counts them by the paths of the view.
func (s *Seen) Watches() map[string]int {
	counts := map[string]int{}
	for path, n := range maps.All(s.Embedded.Watches()) {
		counts[s.View.Path(path)] += n
	}
	return counts
}

// Control is told the paths of the view.
func (s *Seen) Control(decide func(testutil.Request) testutil.Action) (stop func()) {
	return s.Embedded.Control(func(r testutil.Request) testutil.Action {
		r.Path = s.View.Path(r.Path)
		return decide(r)
	})
}

// Open is framework.New for a client of the view, over a network of its own.
func (s *Seen) Open(name string, opts ...framework.Option) (*framework.Client, error) {
	return s.OpenTo(name, s.Servers(), opts...)
}

// OpenTo is Open for a client that knows only the given servers.
func (s *Seen) OpenTo(name, servers string, opts ...framework.Option) (*framework.Client, error) {
	return s.View.New(servers, append([]framework.Option{framework.WithDialer(s.ClientNet(name).Dial)}, opts...)...)
}
