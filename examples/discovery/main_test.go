package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
	"github.com/zkrecipes/zkrecipes/testutil"
)

func TestRun(t *testing.T) {
	ens := testutil.Start(t)
	var out strings.Builder
	if err := run(t.Context(), ens.Servers(), &out); err != nil {
		t.Fatal(err)
	}
	const want = `three are there: 3 instances answered, 0 of 12 requests failed
one does not answer: 2 instances answered, 2 of 12 requests failed
it is left out: 2 instances answered, 0 of 12 requests failed
one has withdrawn: 1 instances answered, 0 of 12 requests failed
`
	if out.String() != want {
		t.Errorf("printed\n%s, want\n%s", out.String(), want)
	}
	if left := ens.Children("/examples/services/billing"); len(left) > 0 {
		t.Errorf("left: %v", left)
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
