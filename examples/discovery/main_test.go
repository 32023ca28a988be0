package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
	"github.com/zkrecipes/zkrecipes/testutil"
)

func TestRun(t *testing.T) {
	ens := testutil.Start(t)
	var out strings.Builder
	if err := run(t.Context(), ens.Servers(), "", &out); err != nil {
		t.Fatal(err)
	}
	const want = `three are there: instances that answered: 3, requests that failed: 0 of 12
one does not answer: instances that answered: 2, requests that failed: 2 of 12
it is left out: instances that answered: 2, requests that failed: 0 of 12
one has withdrawn: instances that answered: 1, requests that failed: 0 of 12
`
	if out.String() != want {
		t.Errorf("printed\n%s, want\n%s", out.String(), want)
	}
	if left := ens.Children("/examples/services/billing"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A client starts while no server answers, and picks the instance that the one
// before it has found. A second after there is a connection it picks those that
// are there. In virtual time: each sleep takes no time.
func TestStartWithoutAnEnsemble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := testutil.Start(t, testutil.InMemory())
		file := filepath.Join(t.TempDir(), "snapshot")
		start := func(name string) (*framework.Client, *discovery.Discovery[details]) {
			client, err := framework.New(ens.Servers(), framework.WithDialer(ens.ClientNet(name).Dial))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close() })
			d, err := open(client, file)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(d.Close)
			return client, d
		}
		picks := func(d *discovery.Discovery[details], want int) {
			t.Helper()
			billing, err := d.Service("billing")
			if err != nil {
				t.Fatal(err)
			}
			if one, err := billing.Pick(t.Context()); err != nil || one.Port != want {
				t.Errorf("picked %+v, %v, want the port %d", one, err, want)
			}
		}
		_, owner := start("owner")
		register := func(port int) *discovery.Registration[details] {
			r, err := owner.Register(t.Context(), discovery.Instance[details]{Name: "billing", Address: "10.0.0.7", Port: port})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		first := register(1)
		picks(owner, 1)
		owner.Close()
		if err := first.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		register(2)

		ens.ClientNet("client").Cut()
		client, d := start("client")
		picks(d, 1)
		time.Sleep(time.Hour)
		picks(d, 1)
		ens.ClientNet("client").Heal()
		if err := client.WaitConnected(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		picks(d, 2)
	})
}

// The command starts with a snapshot while nothing listens at the address. It
// calls the instance that it knows, and once there is an ensemble at that
// address it registers its own, and calls all that are there.
func TestTheCommandStartsWithoutAnEnsemble(t *testing.T) {
	ens := testutil.Start(t)
	file := filepath.Join(t.TempDir(), "snapshot")
	client, err := framework.New(ens.Servers())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	d, err := open(client, file)
	if err != nil {
		t.Fatal(err)
	}
	stays, err := serve(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	defer stays.server.Close()
	billing, err := d.Service("billing")
	if err != nil {
		t.Fatal(err)
	}
	if all, err := billing.Fresh(t.Context()); err != nil || len(all) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	d.Close() // its snapshot has that instance, which stays: its session does
	if err := ens.Stop(0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, ens.Servers(), file, in)
		_ = in.CloseWithError(err)
		ended <- err
	}()
	lines := bufio.NewScanner(out)
	says := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("it says %q, %v, want %q", lines.Text(), lines.Err(), want)
		}
	}
	says("at the start: instances that answered: 1, requests that failed: 0 of 12")
	if conn, err := net.Dial("tcp", ens.Servers()); err == nil {
		_ = conn.Close()
		t.Error("somebody listens")
	}
	if err := ens.Restart(0); err != nil {
		t.Fatal(err)
	}
	says("three are there: instances that answered: 4, requests that failed: 0 of 12")
	for lines.Scan() { // what follows is the same as in TestRun
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A request that is given up says nothing of the instance, and its body is
// closed if there is no instance.
func TestTransport(t *testing.T) {
	ens := testutil.Start(t)
	client, err := framework.New(ens.Servers())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	d, err := discovery.New(client, "/examples/services", discovery.JSON[details](""))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	billing, err := d.Service("billing")
	if err != nil {
		t.Fatal(err)
	}
	body := &closed{Reader: strings.NewReader("x")}
	request, _ := http.NewRequest(http.MethodPost, "http://billing/", body)
	if _, err := (transport{billing}).RoundTrip(request); !errors.Is(err, discovery.ErrNoInstance) || !body.is {
		t.Errorf("%v, closed: %t", err, body.is)
	}
	i, err := serve(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	defer i.server.Close()
	if _, err := billing.Fresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		request, _ = http.NewRequestWithContext(ctx, http.MethodGet, "http://billing/", nil)
		if response, err := (transport{billing}).RoundTrip(request); err == nil {
			t.Error("answered")
			_ = response.Body.Close()
		}
	}
	if n := billing.Status().Failed; n != 0 {
		t.Errorf("%d have failed", n)
	}
}

type closed struct {
	*strings.Reader
	is bool
}

func (c *closed) Close() error { c.is = true; return nil }
