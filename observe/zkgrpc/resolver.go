// Package zkgrpc lets gRPC clients call services that are registered in
// ZooKeeper, by package discovery or by Curator's x-discovery:
//
//	services, err := discovery.New(client, "/services", discovery.JSON[Details]("com.acme.Details"))
//	conn, err := grpc.NewClient("zk:///billing",
//		grpc.WithResolvers(zkgrpc.NewResolver(services)),
//		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`),
//		...)
//
// It is a separate module.
package zkgrpc

import (
	"net"
	"slices"
	"strconv"

	"google.golang.org/grpc/resolver"

	"github.com/zkrecipes/zkrecipes/recipes/discovery"
)

// NewResolver returns the resolver of targets such as zk:///billing, for
// grpc.WithResolvers. A connection gets the addresses of all instances of the
// service that are not disabled, and hears of each change. Without a load
// balancing policy gRPC uses the first one alone.
//
// An instance's SSLPort is used if the connection has transport security, and
// its Port otherwise; each also where the other is missing. One without an
// address and a port is left out.
//
// As long as the instances are not known, calls wait, for as long as their
// context allows. If there are none, calls fail. While ZooKeeper cannot be
// reached, connections go on with the addresses that were known last. They
// use the caches of services: see discovery.Discovery.Close.
func NewResolver[T any](services *discovery.Discovery[T]) resolver.Builder {
	return builder[T]{services}
}

type builder[T any] struct{ services *discovery.Discovery[T] }

func (builder[T]) Scheme() string { return "zk" }

func (b builder[T]) Build(target resolver.Target, conn resolver.ClientConn, opts resolver.BuildOptions) (resolver.Resolver, error) {
	service, err := b.services.Service(target.Endpoint())
	if err != nil {
		return nil, err
	}
	secure := isSecure(opts)
	var last []resolver.Address
	told := false
	stop := service.Listen(func(all []discovery.Instance[T], _ discovery.Status) {
		now := addresses(all, secure)
		if told && slices.EqualFunc(now, last, resolver.Address.Equal) {
			return
		}
		told, last = true, now
		_ = conn.UpdateState(resolver.State{Addresses: now}) // gRPC shows its error to the callers
	})
	return stopper(stop), nil
}

// isSecure reports whether connections have transport security.
func isSecure(opts resolver.BuildOptions) bool {
	creds := opts.DialCreds
	if creds == nil && opts.CredsBundle != nil {
		creds = opts.CredsBundle.TransportCredentials()
	}
	if creds == nil {
		return false
	}
	protocol := creds.Info().SecurityProtocol
	return protocol != "insecure" && protocol != "local"
}

// addresses returns those of the instances that can be called.
func addresses[T any](all []discovery.Instance[T], secure bool) (list []resolver.Address) {
	for _, i := range all {
		port, other := i.Port, i.SSLPort
		if secure {
			port, other = other, port
		}
		if port == 0 {
			port = other
		}
		if i.Address != "" && port != 0 && !i.Disabled {
			list = append(list, resolver.Address{Addr: net.JoinHostPort(i.Address, strconv.Itoa(port))})
		}
	}
	return list
}

// stopper is a resolver that hears of changes by itself.
type stopper func()

func (stopper) ResolveNow(resolver.ResolveNowOptions) {}

func (stop stopper) Close() { stop() }
