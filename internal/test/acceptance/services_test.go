package acceptance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// payload is Neighbor.Payload.
type payload struct {
	Text   string `json:"text"`
	Number int    `json:"number"`
}

const billing = "/services/billing/"

func services(t *testing.T, c *framework.Client) *discovery.Discovery[payload] {
	t.Helper()
	d, err := discovery.New(c, "/services", discovery.JSON[payload]("Neighbor$Payload"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// Curator's instances and ours are the same bytes, read by the other, in both
// directions and of each type.
func TestServicesBesideCurator(t *testing.T) {
	needsCurator(t)
	besideNeighbors(t, func(t *testing.T, ens testutil.Ensemble) {
		theirs := curator(t, ens)
		c := client(t, ens)
		d := services(t, c)
		s, err := d.Service("billing")
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range []discovery.ServiceType{discovery.Dynamic, discovery.Static, discovery.Permanent, discovery.DynamicSequential} {
			t.Run(string(kind), func(t *testing.T) {
				m := theirs.join(t, "service:"+string(kind), "/services")
				m.acquire(t)
				id := fmt.Sprintf("%s-%d", theirs.who, m.number)
				one := awaitInstances(t, s, 1)[0]
				want := payload{Text: `<é> & "x"`, Number: 7}
				if one.ID != id || one.Address != "10.0.0.9" || one.Port != 8080 || one.SSLPort != 8443 || one.Payload != want || one.Type != kind ||
					one.URI(nil) != "https://10.0.0.9:8080/{x}" || time.Since(one.Registered).Abs() > time.Hour {
					t.Errorf("%+v", one)
				}
				ephemeral := kind == discovery.Dynamic || kind == discovery.DynamicSequential
				name, theirBytes, stat := onlyZnode(t, c)
				if stat.EphemeralOwner != 0 != ephemeral || !strings.HasPrefix(name, id) {
					t.Errorf("%s: %+v", name, stat)
				}

				one.ID = "ours"
				reg, err := d.Register(t.Context(), one)
				if err != nil {
					t.Fatal(err)
				}
				ours := slices.DeleteFunc(znodes(t, c), func(name string) bool { return strings.HasPrefix(name, id) })
				ourBytes, stat := znode(t, c, ours[0])
				if ourBytes != strings.Replace(theirBytes, id, "ours", 1) || stat.EphemeralOwner != 0 != ephemeral {
					t.Errorf("ours\n%s, theirs\n%s, %+v", ourBytes, theirBytes, stat)
				}
				shown := strings.Split(m.ask(t, "show", "shown"), "\t")
				if want := []string{withEnabled(theirBytes), withEnabled(ourBytes)}; strings.Join(shown, "\n") != strings.Join(want, "\n") {
					t.Errorf("theirs shows\n%s, want\n%s", strings.Join(shown, "\n"), strings.Join(want, "\n"))
				}
				one.Disabled = true
				if err := reg.Update(t.Context(), one); err != nil {
					t.Fatal(err)
				}
				want2 := strings.TrimSuffix(ourBytes, "}") + `,"enabled":false}`
				if shown := strings.Split(m.ask(t, "show", "shown"), "\t"); shown[1] != want2 {
					t.Errorf("theirs shows\n%s, want\n%s", shown[1], want2)
				}
				awaitInstances(t, s, 2)
				m.release(t)
				if err := reg.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if n := m.participants(t); kind != discovery.DynamicSequential && n != 0 {
					judge.Errorf(t, "%d instances are left", n)
				}
				awaitInstances(t, s, m.participants(t))
				for _, name := range znodes(t, c) { // of a sequential one, which Curator cannot unregister
					if err := c.Delete(t.Context(), billing+name, -1); err != nil {
						t.Error(err)
					}
				}
				awaitInstances(t, s, 0)
			})
		}
	})
}

// withEnabled is an instance as Curator writes it without regard for its older
// releases.
func withEnabled(text string) string { return strings.TrimSuffix(text, "}") + `,"enabled":true}` }

func znodes(t *testing.T, c *framework.Client) []string {
	t.Helper()
	names, _, err := c.Children(t.Context(), "/services/billing")
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// onlyZnode waits for an instance's znode.
func onlyZnode(t *testing.T, c *framework.Client) (name, data string, stat *zk.Stat) {
	t.Helper()
	for end := time.Now().Add(load.Patience); ; time.Sleep(20 * time.Millisecond) {
		if names := znodes(t, c); len(names) == 1 {
			data, stat, err := c.Get(t.Context(), billing+names[0])
			if err == nil {
				return names[0], string(data), stat
			}
			if !errors.Is(err, zk.ErrNoNode) {
				t.Fatal(err)
			}
		}
		if time.Now().After(end) {
			t.Fatal("no znode")
		}
	}
}

func znode(t *testing.T, c *framework.Client, name string) (string, *zk.Stat) {
	t.Helper()
	data, stat, err := c.Get(t.Context(), billing+name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data), stat
}

// awaitInstances waits until a service has n instances.
func awaitInstances(t *testing.T, s *discovery.Service[payload], n int) []discovery.Instance[payload] {
	t.Helper()
	for end := time.Now().Add(load.Patience); ; time.Sleep(20 * time.Millisecond) {
		all, err := s.All(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == n {
			return all
		}
		if time.Now().After(end) {
			t.Fatalf("%d instances, want %d: %+v", len(all), n, s.Status())
		}
	}
}

// A connection is lost for an instant, and the sessions live. Curator deletes
// its instance and creates it again, so that every consumer sees it go and
// come. Ours stands.
func TestADisconnectOfAnInstantBesideCurator(t *testing.T) {
	needsCurator(t)
	besideNeighbors(t, func(t *testing.T, ens testutil.Ensemble) {
		m := curator(t, ens).join(t, "service:DYNAMIC", "/services")
		m.acquire(t)
		theirs := fmt.Sprintf("%s-%d", m.n.who, m.number)
		c := client(t, ens)
		reg, err := services(t, c).Register(t.Context(), discovery.Instance[payload]{Name: "billing", ID: "ours"})
		if err != nil {
			t.Fatal(err)
		}
		_, their := znode(t, c, theirs)
		_, our := znode(t, c, "ours")
		watcher := client(t, ens)
		for _, owner := range []int64{their.EphemeralOwner, our.EphemeralOwner} {
			if err := ens.DropConnections(owner); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), load.Patience)
		defer cancel()
		for { // until theirs has done it
			found, now, err := watcher.Exists(ctx, billing+theirs)
			if err != nil {
				t.Fatalf("Curator's instance has stood over a disconnect: docs/coming-from.md says it does not: %v", err)
			}
			if found && now.Czxid != their.Czxid {
				if now.EphemeralOwner != their.EphemeralOwner {
					t.Errorf("Curator's session has not lived: %+v, %+v", their, now)
				}
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		if _, now := znode(t, c, "ours"); *now != *our {
			t.Errorf("ours: %+v has become %+v", our, now)
		}
		if err := reg.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
