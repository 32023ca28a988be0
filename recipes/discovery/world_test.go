package discovery_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

const (
	root = "/services"
	dir  = root + "/billing"
	path = dir + "/a"
)

// Bubbles check their goroutines. This checks those of the examples.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	instance     = discovery.Instance[string]
	registration = discovery.Registration[string]
	service      = discovery.Service[string]
)

func a(payload string) instance {
	return instance{Name: "billing", ID: "a", Address: "h", Payload: payload}
}

func open(t *testing.T, c *framework.Client, opts ...presence.Option) *discovery.Discovery[string] {
	t.Helper()
	d, err := discovery.New(c, root, discovery.JSON[string](""), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func register(t *testing.T, d *discovery.Discovery[string], i instance, opts ...presence.Option) *registration {
	t.Helper()
	r, err := d.Register(t.Context(), i, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// billing returns the service, once it is known.
func billing(t *testing.T, d *discovery.Discovery[string], opts ...discovery.ServiceOption) *service {
	t.Helper()
	s, err := d.Service("billing", opts...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.All(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// show is instances as text: "a=payload b=payload".
func show(all []instance) string {
	var texts []string
	for _, i := range all {
		text := i.ID + "=" + i.Payload + string(i.Raw)
		if i.Disabled {
			text += "(disabled)"
		}
		if i.LastResort {
			text += "(gone)"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " ")
}

// shows fails the test unless a service shows this within a second.
func shows(t *testing.T, s *service, want string) {
	t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	all, err := s.All(t.Context())
	if err != nil || show(all) != want {
		t.Errorf("%q, %v, want %q", show(all), err, want)
	}
}

// stands waits until an instance stands in the client's session.
func stands(t *testing.T, w *bubble.World, c *framework.Client, payload string) {
	t.Helper()
	bubble.AwaitTrue(t, "the instance", func() bool {
		data, _ := w.Data(path)
		stat, ok := w.Stat(path)
		s, err := c.Session()
		return ok && err == nil && stat.EphemeralOwner == s.ID() && strings.Contains(string(data), `"payload":"`+payload+`"`)
	})
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
