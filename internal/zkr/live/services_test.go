package live

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
)

// zkr services prints what is registered, and names what is no instance.
func TestServices(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		prints := func(asJSON bool, name, want, wantErrs string) {
			t.Helper()
			var out, errs said
			s := services{root: "/services", json: asJSON, out: &out, errs: &errs}
			var err error
			if name == "" {
				err = s.names(t.Context(), c)
			} else {
				err = s.instances(t.Context(), c, name)
			}
			if got, gotErrs := out.take(), errs.take(); err != nil || got != want || gotErrs != wantErrs {
				t.Errorf("%s: %v, printed %q and %q, want %q and %q", name, err, got, gotErrs, want, wantErrs)
			}
		}
		prints(false, "", "", "")
		prints(false, "billing", "", "")
		d, err := discovery.New(c, "/services", discovery.JSON[string](""))
		if err != nil {
			t.Fatal(err)
		}
		uri, _ := discovery.ParseURISpec("{scheme}://{address}")
		for _, i := range []discovery.Instance[string]{
			{Name: "billing", ID: "b", Address: "10.0.0.8", Port: 80, SSLPort: 443, Disabled: true, Type: discovery.Static, URISpec: uri},
			{Name: "billing", ID: "a", Address: "10.0.0.7", Port: 8080, Payload: "x\ny"},
			{Name: "billing", ID: "c"},
			{Name: "billing", ID: "d", Address: "2001:db8::7", Port: 8080},
			{Name: "other", ID: "c"},
		} {
			if _, err := d.Register(t.Context(), i); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Create(t.Context(), "/services/billing/bad", []byte("{"), zk.FlagPersistent); err != nil {
			t.Fatal(err)
		}
		const bad = "zkr: /services/billing/bad: not an instance: unexpected end of JSON input\n"
		prints(false, "", "billing\nother\n", "")
		prints(true, "", `{"name":"billing"}`+"\n"+`{"name":"other"}`+"\n", "")
		prints(false, "billing", "a  10.0.0.7:8080\nb  10.0.0.8:80  TLS 443  STATIC  disabled  https://10.0.0.8\nc\nd  [2001:db8::7]:8080\n", bad)
		data, _ := w.Data("/services/other/c")
		prints(true, "other", string(data)+"\n", "")
		var usage *cli.Exit
		for _, name := range []string{"a/b", ".."} {
			if err := (&services{root: "/services"}).instances(t.Context(), c, name); !errors.As(err, &usage) || usage.Code != cli.ExitUsage {
				t.Errorf("%q: %v", name, err)
			}
		}
	})
}

// An instance that may not be read hides no other, and is named.
func TestServicesThatMayNotBeRead(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		for id, acl := range map[string][]zk.ACL{"a": zk.WorldACL(zk.PermAll), "b": zk.WorldACL(zk.PermDelete)} {
			d, err := discovery.New(w.ConnectNext(framework.WithACL(acl...)), "/services", discovery.JSON[string](""))
			if err == nil {
				err = w.ConnectNext().MakeContainerPath(t.Context(), "/services/web")
			}
			if err == nil {
				_, err = d.Register(t.Context(), discovery.Instance[string]{Name: "web", ID: id, Type: discovery.Static})
			}
			if id == "a" && err != nil || id == "b" && !errors.Is(err, zk.ErrNoAuth) { // it cannot be looked at
				t.Fatal(err)
			}
		}
		var out, errs said
		err := (&services{root: "/services", out: &out, errs: &errs}).instances(t.Context(), w.ConnectNext(), "web")
		if got := out.take(); got != "a  STATIC\n" || !errors.Is(err, zk.ErrNoAuth) || !strings.Contains(err.Error(), "/services/web/b") {
			t.Errorf("%q, %v", got, err)
		}
	})
}
