package framework

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
)

// done is an exchange that is done.
type done struct{}

func (*done) Next([]byte) ([]byte, bool, error) { return nil, true, nil }

// bare is a mechanism with Begin alone, and full one with the rest.
type bare struct {
	x  SASLExchange
	to SASLServer
}

func (m *bare) Begin(_ context.Context, to SASLServer) (SASLExchange, error) {
	m.to = to
	return m.x, nil
}

type full struct {
	bare
	all []SASLServer
}

func (m *full) Changed() bool { return true }
func (m *full) Renew(_ context.Context, servers []SASLServer) (time.Time, error) {
	m.all = servers
	return time.Unix(7, 0), io.ErrNoProgress
}

// A mechanism has in package talk what it has here.
func TestMechanism(t *testing.T) {
	if in := mechanism(nil); in.Begin != nil || in.Changed != nil || in.Renew != nil {
		t.Error("none is one")
	}
	at, here := servers.Server{Name: "a", Address: "b"}, SASLServer{Name: "a", Address: "b"}
	var m bare
	in := mechanism(&m)
	if x, err := in.Begin(t.Context(), at); x != nil || err != nil || m.to != here || in.Changed != nil || in.Renew != nil {
		t.Errorf("%v, %v for %v", x, err, m.to)
	}
	f := full{bare: bare{x: &done{}}}
	in = mechanism(&f)
	x, err := in.Begin(t.Context(), at)
	next, renewed := in.Renew(t.Context(), []servers.Server{at, at})
	if x != f.x || err != nil || !in.Changed() || !next.Equal(time.Unix(7, 0)) || !errors.Is(renewed, io.ErrNoProgress) || !slices.Equal(f.all, []SASLServer{here, here}) {
		t.Errorf("%v, %v, %v, %v for %v", x, err, next, renewed, f.all)
	}
}
