package framework

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/retry"
)

// Dialer opens a connection to a server of the list, "host:port" as it was
// given to New, or resolved by WithResolver. It must return within timeout.
type Dialer func(network, address string, timeout time.Duration) (net.Conn, error)

// Proof selects what the heartbeat of a client proves.
type Proof int

const (
	// ProofSync: the heartbeat is a sync, which reaches the leader. A leader that
	// has lost its quorum and does not know it yet still answers it, and takes
	// sessions back.
	ProofSync Proof = iota
	// ProofWrite: the heartbeat is a multi of one check on the root, which needs
	// the quorum and one log write per heartbeat. Nothing but writes and the making
	// of the session counts as proof.
	ProofWrite
)

// ErrorPolicy selects what a disconnect means for leases.
type ErrorPolicy int

const (
	// ErrorPolicySession: a lease outlives a disconnect, until its deadline. This
	// is Curator's SessionConnectionStateErrorPolicy.
	ErrorPolicySession ErrorPolicy = iota
	// ErrorPolicyConnection: a lease ends as soon as the state is Suspended. This
	// is Curator's StandardConnectionStateErrorPolicy, its default.
	ErrorPolicyConnection
)

// Option configures a client. A bad value is an error of New.
type Option func(*config)

type config struct {
	sessionTimeout time.Duration
	stopMargin     time.Duration
	stopMarginSet  bool
	serverTick     time.Duration
	proof          Proof
	errorPolicy    ErrorPolicy
	retry          retry.Policy
	log            *zap.Logger
	acl            []zk.ACL
	auths          []auth
	maxRequest     int
	dial           Dialer
	resolver       *net.Resolver
	resolverSet    bool
	tls            *tls.Config
	tlsSet         bool
	observer       Observer
}

type auth struct {
	scheme string
	data   []byte
}

// DefaultSessionTimeout is asked for unless WithSessionTimeout says otherwise.
const DefaultSessionTimeout = 10 * time.Second

// newConfig is the one place that applies defaults and options, and validates.
func newConfig(opts []Option) (config, error) {
	cfg := config{
		sessionTimeout: DefaultSessionTimeout,
		retry:          retry.Exponential(50*time.Millisecond, 2*time.Second, 20),
		log:            zap.NewNop(),
		acl:            zk.WorldACL(zk.PermAll),
		maxRequest:     defaultMaxRequest,
	}
	for _, opt := range opts {
		opt(&cfg)
	}
	return cfg, cfg.validate()
}

func (cfg *config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if t := cfg.sessionTimeout; t < time.Millisecond || t.Milliseconds() > math.MaxInt32 {
		bad("session time-out %v: must be from 1ms to %v", t, math.MaxInt32*time.Millisecond)
	}
	if m := cfg.stopMargin; cfg.stopMarginSet && (m < 0 || m > cfg.sessionTimeout/3) {
		bad("stop margin %v: must be from 0 to a third of the session time-out %v", m, cfg.sessionTimeout)
	}
	if tick := cfg.serverTick; tick < 0 || tick > cfg.sessionTimeout/2 {
		bad("server tick %v: must be from 0 to half of the session time-out %v", tick, cfg.sessionTimeout)
	}
	if cfg.retry == nil {
		bad("retry policy: nil")
	}
	if cfg.log == nil {
		bad("logger: nil")
	}
	if cfg.resolverSet && cfg.resolver == nil {
		bad("resolver: nil")
	}
	if cfg.tlsSet && cfg.tls == nil {
		bad("TLS: no configuration") // and not silently without TLS
	}
	if len(cfg.acl) == 0 {
		bad("ACL: empty, nobody could use what is created")
	}
	if cfg.proof != ProofSync && cfg.proof != ProofWrite {
		bad("proof %d: unknown", cfg.proof)
	}
	if cfg.errorPolicy != ErrorPolicySession && cfg.errorPolicy != ErrorPolicyConnection {
		bad("error policy %d: unknown", cfg.errorPolicy)
	}
	if n := cfg.maxRequest; n < leastMaxRequest || n > mostMaxRequest {
		bad("largest request %d bytes: must be from %d to %d", n, leastMaxRequest, mostMaxRequest)
	}
	for _, a := range cfg.auths {
		if a.scheme == "" {
			bad("auth: no scheme")
		}
		if err := cfg.fits(int32Size + textSize(a.scheme) + blobSize(a.data)); err != nil {
			bad("auth %s: %w", a.scheme, err)
		}
	}
	if err := cfg.fits(aclSize(cfg.acl)); err != nil {
		bad("ACL: %w", err)
	}
	return errors.Join(errs...)
}

// margin is the stop margin for a negotiated time-out, which the server may
// have made shorter than what was asked for.
func (cfg *config) margin(timeout time.Duration) time.Duration {
	if cfg.stopMarginSet {
		return min(cfg.stopMargin, timeout/3)
	}
	return timeout / 10
}

// WithSessionTimeout sets the session time-out to ask for; the server clamps
// it, to 2 to 20 of its ticks by default. Default 10s.
func WithSessionTimeout(d time.Duration) Option {
	return func(c *config) { c.sessionTimeout = d }
}

// WithRetry sets the policy that bounds each operation, and each step of a
// recipe, while it meets connection loss or no server at all. Each operation
// has one budget of its own, however many requests it takes. Default
// retry.Exponential(50ms, 2s, 20).
func WithRetry(p retry.Policy) Option { return func(c *config) { c.retry = p } }

// WithLogger sets the logger. Default: none.
func WithLogger(log *zap.Logger) Option { return func(c *config) { c.log = log } }

// WithACL sets the ACL of everything that is created and not given one of its
// own, parents included. acl is copied. Default: all permissions for everybody.
func WithACL(acl ...zk.ACL) Option {
	acl = slices.Clone(acl)
	return func(c *config) { c.acl = acl }
}

// WithAuth adds credentials, for instance ("digest", []byte("user:password")).
// They are presented before anything else is sent in a session. data is copied.
// May be repeated.
func WithAuth(scheme string, data []byte) Option {
	data = bytes.Clone(data)
	return func(c *config) { c.auths = append(c.auths, auth{scheme, data}) }
}

// WithMaxRequest names the servers' jute.maxbuffer, in bytes, where it was changed:
// the largest request that they take. A larger one fails with ErrTooLarge and is not
// sent, for a server drops the connection of the client that sends it. At least
// 16384, at most 33554432. Default 1048575, which is the servers' own.
func WithMaxRequest(bytes int) Option { return func(c *config) { c.maxRequest = bytes } }

// WithDialer replaces the dialer, and with it the resolution of names: it is called
// with the names of the server list, unless WithResolver is given, too. Default: TCP.
func WithDialer(dial Dialer) Option { return func(c *config) { c.dial = dial } }

// WithResolver resolves the names of the server list with r; the dialer is called
// with addresses. A name is resolved at every attempt to connect. If it stands for
// several addresses each of them is tried, one after the other, as if they stood in
// the list. Default: net.DefaultResolver, or none where WithDialer is given.
func WithResolver(r *net.Resolver) Option {
	return func(c *config) { c.resolver, c.resolverSet = r, true }
}

// WithTLS speaks TLS over each connection. Where cfg has no ServerName the name
// in the server list is used. cfg is cloned. Default: none.
func WithTLS(cfg *tls.Config) Option {
	cfg = cfg.Clone()
	return func(c *config) { c.tls, c.tlsSet = cfg, true }
}

// WithStopMargin sets how long before its deadline a lease is declared lost, so
// that work has time to stop. At most a third of the session time-out. Default
// a tenth of it.
func WithStopMargin(d time.Duration) Option {
	return func(c *config) { c.stopMargin, c.stopMarginSet = d, true }
}

// WithServerTick names the servers' tickTime, the longest of them where they
// differ. A contact then counts as proven after a whole tick at least, instead of
// a third of the session timeout. It is needed where a third of the session
// timeout is shorter than a tick and one of these is true:
//
//   - The servers' minSessionTimeout was set below two ticks, and the session
//     timeout is less than that.
//   - Clients reach the leader over two hops: a member follows an observer master
//     (observerMasterPort, ZooKeeper 3.6), so that each hop delays what it hears
//     of a session by up to half a tick.
//   - The members' tickTime differ: the leader's sets the delay, another member's
//     may have set the least session timeout.
//
// It must be at most half of the session timeout. Default 0: not needed.
func WithServerTick(d time.Duration) Option { return func(c *config) { c.serverTick = d } }

// WithProof selects what the heartbeat proves. Default ProofSync.
func WithProof(p Proof) Option { return func(c *config) { c.proof = p } }

// WithErrorPolicy selects what a disconnect means for leases. Default
// ErrorPolicySession.
func WithErrorPolicy(p ErrorPolicy) Option { return func(c *config) { c.errorPolicy = p } }
