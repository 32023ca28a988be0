// Package gssapi is SASL's GSSAPI, which is Kerberos, for framework.WithSASL.
//
//	m := gssapi.New(gssapi.WithKeytab("/etc/app.keytab", "app@EXAMPLE.COM"))
//	c, err := framework.New("zk1:2181,zk2:2181,zk3:2181", framework.WithSASL(m))
//
// Client and server prove to each other who they are. Nothing is encrypted, and
// no request is protected: for that, use TLS.
//
// A ticket is asked for at the first connection to each server, kept, and
// replaced at 80 % of its life as long as the server is in the client's list.
// While one lives, a reconnect needs no KDC. A session outlives its ticket,
// since servers do not look again. KDCs are called over TCP. A refusal wraps
// framework.ErrAuthFailed; the error of a KDC that cannot be reached does not.
package gssapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
)

// Option is an option of New.
type Option func(*mechanism)

// WithKeytab logs in with the key of a principal, "app@EXAMPLE.COM", that is in
// the file. The file is read again at each login.
func WithKeytab(file, principal string) Option {
	return func(m *mechanism) { m.add(newKeytab(file, principal)) }
}

// WithPassword logs in with the password of a principal, "app@EXAMPLE.COM".
func WithPassword(principal, password string) Option {
	return WithPasswordFunc(principal, func() (string, error) { return password, nil })
}

// WithPasswordFunc logs in with the password that ask returns, as for a file
// that changes. It is called by framework.New, at each login, and while the
// client pauses after a refusal once a second.
func WithPasswordFunc(principal string, ask func() (string, error)) Option {
	return func(m *mechanism) { m.add(newPassword(principal, ask)) }
}

// WithCCache uses the tickets in a file, which kinit, k5start or sssd makes and
// keeps fresh. The file is read again at each connection.
func WithCCache(file string) Option {
	return func(m *mechanism) { m.add(newCCache(file)) }
}

// WithConfig names the configuration of Kerberos. Default: the files of
// KRB5_CONFIG, or /etc/krb5.conf. It is read again whenever a KDC is asked.
func WithConfig(file string) Option {
	return func(m *mechanism) { m.configFiles, m.configSets = []string{file}, m.configSets+1 }
}

// WithServerPrincipal names the principal of all servers. Default:
// "zookeeper/host", where host is the server's name in the list; or, where
// dns_canonicalize_hostname and rdns of the configuration say so, which is
// their default, the name that its address has in the DNS. Without a realm it
// is in the realm that the configuration has for host.
func WithServerPrincipal(name string) Option {
	return func(m *mechanism) { m.serverPrincipal, m.serverSets = name, m.serverSets+1 }
}

// New returns the mechanism. If no option names credentials, it uses those of
// the environment: the file of KRB5CCNAME while it has a ticket that lives,
// else the first principal in the keytab of KRB5_CLIENT_KTNAME. Without these
// variables they are the files of default_ccache_name and
// default_client_keytab_name in the configuration. framework.New returns an
// error for options that cannot work.
func New(opts ...Option) framework.SASL {
	m := &mechanism{resolver: net.DefaultResolver, kept: map[principal]*ticket{}, asked: map[framework.SASLServer]principal{}}
	for i, opt := range opts {
		if opt == nil {
			m.wrong = oneline.Join(m.wrong, fmt.Errorf("option %d is nil", i))
			continue
		}
		opt(m)
	}
	if len(m.configFiles) == 0 {
		m.configFiles = configFromEnvironment()
	}
	if len(m.sources) == 0 {
		m.add(newEnvironment(m.configFiles))
	}
	m.fetch = m.askKDC
	return m
}

type mechanism struct {
	wrong           error // of the options
	sources         []source
	configFiles     []string
	configSets      int
	serverPrincipal string
	serverSets      int
	resolver        resolver
	fetch           func(to principal) (*ticket, error) // blocks while a KDC is silent

	mu     sync.Mutex                         // guards what follows
	client principal                          // whose tickets are kept
	kept   map[principal]*ticket              // by the server's principal
	asked  map[framework.SASLServer]principal // by those who have asked for a ticket that is kept
	flight *flight                            // nil: none is under way

	login tgt // the latest: only the flight uses it
}

func (m *mechanism) add(s source) { m.sources = append(m.sources, s) }

// Check returns an error if New was called with something that cannot work.
func (m *mechanism) Check() error {
	switch {
	case m.wrong != nil:
		return fmt.Errorf("gssapi: %w", m.wrong)
	case len(m.sources) > 1:
		return errors.New("gssapi: more than one source of credentials")
	case m.configSets > 1 || m.serverSets > 1:
		return errors.New("gssapi: an option was given twice")
	}
	if m.serverSets > 0 {
		if _, err := parsePrincipal(m.serverPrincipal); err != nil {
			return fmt.Errorf("gssapi: server: %w", err)
		}
	}
	if _, err := loadConfig(m.configFiles); err != nil {
		return fmt.Errorf("gssapi: %w", err)
	}
	if err := m.sources[0].check(); err != nil {
		return fmt.Errorf("gssapi: %w", err)
	}
	return nil
}

// Changed reports whether a file with credentials is another one than at the
// last login.
func (m *mechanism) Changed() bool { return m.sources[0].changed() }

// Begin implements framework.SASL.
func (m *mechanism) Begin(ctx context.Context, to framework.SASLServer) (framework.SASLExchange, error) {
	if deadline, ok := ctx.Deadline(); ok { // to say what was waited for
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-time.Until(deadline)/10))
		defer cancel()
	}
	server, err := m.principalOf(ctx, to)
	if err != nil {
		return nil, err
	}
	t, err := m.ticketFor(ctx, server)
	if err != nil {
		return nil, fmt.Errorf("gssapi: ticket for %s: %w", server, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked[to] = server
	return &exchange{ticket: t}, nil
}

// refused marks an error as a refusal.
func refused(format string, args ...any) error {
	return fmt.Errorf("%w: %w", framework.ErrAuthFailed, fmt.Errorf(format, args...))
}

// principal is the name of a client or a server, "app@REALM" or
// "service/host@REALM". The realm is empty where the configuration says it.
type principal struct{ name, realm string }

func (p principal) String() string {
	if p.realm == "" {
		return p.name
	}
	return p.name + "@" + p.realm
}

func parsePrincipal(text string) (principal, error) {
	p := principal{name: text}
	if i := strings.LastIndexByte(text, '@'); i >= 0 {
		p.name, p.realm = text[:i], text[i+1:]
		if p.realm == "" {
			return p, fmt.Errorf("principal %q: no realm", text)
		}
	}
	for part := range strings.SplitSeq(p.name, "/") {
		if part == "" || strings.ContainsAny(text, " \t\r\n\x00\\") {
			return p, fmt.Errorf("principal %q: want name@REALM, or name/host@REALM", text)
		}
	}
	return p, nil
}

// parseClient is parsePrincipal, for one that must have a realm.
func parseClient(text string) (principal, error) {
	p, err := parsePrincipal(text)
	if err == nil && p.realm == "" {
		err = fmt.Errorf("principal %q: no realm: want name@REALM", text)
	}
	return p, err
}
