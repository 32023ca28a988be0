package zkgrpc

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/credentials/local"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
	"google.golang.org/grpc/status"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const patience = 30 * time.Second

// services connects a client to an ensemble.
func services(t *testing.T, ens *testutil.Embedded, name string) *discovery.Discovery[string] {
	t.Helper()
	client, err := framework.New(ens.Servers(), framework.WithDialer(ens.ClientNet(name).Dial))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	d, err := discovery.New(client, "/services", discovery.JSON[string](""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// serve starts a server, and registers it.
func serve(t *testing.T, d *discovery.Discovery[string], id string) (*grpc.Server, *discovery.Registration[string]) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	go func() { _ = server.Serve(listener) }() // ends with the server
	t.Cleanup(server.Stop)
	at := listener.Addr().(*net.TCPAddr)
	r, err := d.Register(t.Context(), discovery.Instance[string]{Name: "billing", ID: id, Address: at.IP.String(), Port: at.Port})
	if err != nil {
		t.Fatal(err)
	}
	return server, r
}

// call makes a call, and returns the address of the server that has answered.
func call(t *testing.T, conn *grpc.ClientConn, within time.Duration) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	var from peer.Peer
	_, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.Peer(&from))
	if err != nil {
		return "", err
	}
	return from.Addr.String(), nil
}

// awaitServers calls until n servers alone have answered twenty calls.
func awaitServers(t *testing.T, conn *grpc.ClientConn, n int) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		from := map[string]bool{}
		var failed error
		for range 20 {
			server, err := call(t, conn, patience)
			failed = errors.Join(failed, err)
			from[server] = true
		}
		if failed == nil && len(from) == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d servers have answered, want %d: %v", len(from), n, failed)
		}
	}
}

func TestCalls(t *testing.T) {
	ens := testutil.Start(t)
	registry, d := services(t, ens, "servers"), services(t, ens, "client")
	ens.ClientNet("client").Cut()
	conn, err := grpc.NewClient("zk:///billing", grpc.WithResolvers(NewResolver(d)), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := call(t, conn, 200*time.Millisecond); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("before the registry is known: %v", err)
	}
	ens.ClientNet("client").Heal()
	failed := func() bool { _, err := call(t, conn, patience); return status.Code(err) == codes.Unavailable }
	await(t, "a call without instances fails", failed)

	_, a := serve(t, registry, "a")
	awaitServers(t, conn, 1)
	_, b := serve(t, registry, "b")
	awaitServers(t, conn, 2)
	disabled := b.Instance()
	disabled.Disabled = true
	if err := b.Update(t.Context(), disabled); err != nil {
		t.Fatal(err)
	}
	awaitServers(t, conn, 1)
	if err := b.Update(t.Context(), b.Instance()); err != nil {
		t.Fatal(err)
	}
	awaitServers(t, conn, 2)

	// The registry is lost, and calls go on.
	ens.ClientNet("client").Cut()
	s, err := d.Service("billing")
	if err != nil {
		t.Fatal(err)
	}
	await(t, "stale", func() bool { return s.Status().State == cache.Stale })
	if err := a.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitServers(t, conn, 2)
	ens.ClientNet("client").Heal()
	awaitServers(t, conn, 1)
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "a call without instances fails", failed)
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not seen: %s", what)
		}
	}
}

// conn keeps what a resolver says.
type conn struct {
	resolver.ClientConn
	states chan resolver.State
}

func (c conn) UpdateState(s resolver.State) error { c.states <- s; return nil }

func (conn) ParseServiceConfig(string) *serviceconfig.ParseResult { return nil }

// bundle is a credentials.Bundle with nothing for each call.
type bundle struct {
	creds credentials.TransportCredentials
}

func (b bundle) TransportCredentials() credentials.TransportCredentials { return b.creds }
func (bundle) PerRPCCredentials() credentials.PerRPCCredentials         { return nil }
func (b bundle) NewWithMode(string) (credentials.Bundle, error)         { return b, nil }

// The port is that of the connection's security.
func TestPorts(t *testing.T) {
	ens := testutil.Start(t)
	d := services(t, ens, "ours")
	for _, i := range []discovery.Instance[string]{
		{ID: "a", Address: "10.0.0.1", Port: 1, SSLPort: 2},
		{ID: "b", Address: "10.0.0.2", Port: 1},
		{ID: "c", Address: "10.0.0.3", SSLPort: 2},
		{ID: "d", Address: "10.0.0.4"},
		{ID: "e", Port: 1},
		{ID: "f", Address: "::1", Port: 1},
		{ID: "g", Address: "10.0.0.5", Port: 1, Disabled: true},
	} {
		i.Name = "billing"
		if _, err := d.Register(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	s, err := d.Service("billing")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Fresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	const plain, secure = "10.0.0.1:1 10.0.0.2:1 10.0.0.3:2 [::1]:1", "10.0.0.1:2 10.0.0.2:1 10.0.0.3:2 [::1]:1"
	security := credentials.NewTLS(&tls.Config{})
	for _, test := range []struct {
		opts resolver.BuildOptions
		want string
	}{
		{resolver.BuildOptions{}, plain},
		{resolver.BuildOptions{DialCreds: insecure.NewCredentials()}, plain},
		{resolver.BuildOptions{DialCreds: local.NewCredentials()}, plain},
		{resolver.BuildOptions{DialCreds: security}, secure},
		{resolver.BuildOptions{CredsBundle: insecure.NewBundle()}, plain},
		{resolver.BuildOptions{CredsBundle: bundle{creds: security}}, secure},
		{resolver.BuildOptions{CredsBundle: bundle{}}, plain},
	} {
		c := conn{states: make(chan resolver.State, 10)}
		target := resolver.Target{}
		target.URL.Path = "/billing"
		r, err := NewResolver(d).Build(target, c, test.opts)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range (<-c.states).Addresses {
			got = append(got, a.Addr)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%+v: %v, want %s", test.opts, got, test.want)
		}
		r.ResolveNow(resolver.ResolveNowOptions{})
		r.Close()
	}
	target := resolver.Target{}
	target.URL.Path = "/a/b"
	if _, err := NewResolver(d).Build(target, conn{}, resolver.BuildOptions{}); err == nil {
		t.Error("a name with a slash")
	}
}
