package gssapi

import (
	"context"
	"net"
	"strings"

	"github.com/jcmturner/gokrb5/v8/config"

	"github.com/zkrecipes/zkrecipes/framework"
)

// resolver is a net.Resolver.
type resolver interface {
	LookupAddr(ctx context.Context, addr string) ([]string, error)
	LookupCNAME(ctx context.Context, host string) (string, error)
	LookupHost(ctx context.Context, host string) ([]string, error)
}

// principalOf returns the principal of a server.
func (m *mechanism) principalOf(ctx context.Context, to framework.SASLServer) (principal, error) {
	cfg, err := loadConfig(m.configFiles)
	if err != nil {
		return principal{}, err
	}
	p := principal{}
	if m.serverPrincipal != "" {
		if p, err = parsePrincipal(m.serverPrincipal); err != nil {
			return p, err
		}
	} else {
		p.name = "zookeeper/" + canonical(ctx, cfg, m.resolver, to)
	}
	if p.realm == "" {
		p.realm = cfg.ResolveRealm(p.name[strings.LastIndexByte(p.name, '/')+1:])
	}
	return p, nil
}

// canonical returns a server's name as the KDC knows it. Where the DNS has no
// answer it is the name in the list of servers, as in Java.
func canonical(ctx context.Context, cfg *config.Config, r resolver, to framework.SASLServer) string {
	name, address := host(to.Name), host(to.Address)
	if !cfg.LibDefaults.DNSCanonicalizeHostname {
		return strings.ToLower(name)
	}
	if !cfg.LibDefaults.RDNS {
		if found, err := r.LookupCNAME(ctx, name); err == nil && found != "" && net.ParseIP(name) == nil {
			name = found
		}
	} else {
		if net.ParseIP(address) == nil {
			if found, err := r.LookupHost(ctx, address); err == nil && len(found) > 0 {
				address = found[0]
			}
		}
		if found, err := r.LookupAddr(ctx, address); err == nil && len(found) > 0 {
			name = found[0]
		}
	}
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

func host(address string) string {
	if h, _, err := net.SplitHostPort(address); err == nil {
		return h
	}
	return address
}
