package managed

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/least"
	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/managed/talk"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/retry"
)

// This file has the inside of the options: their defaults, the checks of their
// values (validate), and which session timeouts are accepted of a server.

// Config is what the options of framework have set, with defaults for the rest.
// The options say what each field does.
type Config struct {
	SessionTimeout time.Duration
	StopMargin     *time.Duration // nil: a tenth of the session timeout
	ServerTick     time.Duration
	Proof          Proof
	ErrorPolicy    ErrorPolicy
	Retry          retry.Policy
	RetryIsUsers   bool // it was given
	Log            *zap.Logger
	ACL            []zk.ACL
	Auths          []wire.AuthRequest
	MaxRequest     int
	MaxEphemerals  *int // nil: see ephemerals.Account.Limit
	CreateChroot   bool
	Dial           func(network, address string, timeout time.Duration) (net.Conn, error)
	Resolver       *net.Resolver
	ResolverSet    bool
	TLS            func() (*tls.Config, error)
	TLSSet         bool
	NoBatching     bool
	NoContainers   bool
	Sweep          *time.Duration     // nil: never
	Guardians      []servers.Guardian // without Lost
	SASL           []SASL             // of each time that the option was given
	Servers        func(context.Context) (string, error)
	ServersSet     bool
	Track          func(client any) servers.Tracking // of a *Client; nil: the config of the ensemble is not followed
	Made           func(client any)                  // is told of the *Client before it runs; nil: nobody is

	groups   []group // of observers
	together bool    // another one joins the last group
	unusable error   // of an option among several
}

// SASL is a mechanism, and what says whether it can be used. Begin is nil if
// the user has given none.
type SASL struct {
	talk.Mechanism
	Of any // the user's: may have a method Check() error
}

// Proof says what the heartbeat proves, as framework.Proof does.
type Proof int

// The values of a Proof.
const (
	ProofSync Proof = iota
	ProofWrite
)

// ErrorPolicy says what a disconnect means for leases, as framework.ErrorPolicy
// does.
type ErrorPolicy int

// The values of an ErrorPolicy.
const (
	ErrorPolicySession ErrorPolicy = iota
	ErrorPolicyConnection
)

// defaultSessionTimeout is framework.DefaultSessionTimeout.
const defaultSessionTimeout = 10 * time.Second

const (
	// defaultMaxRequest is the servers' default jute.maxbuffer: 1 MiB less a
	// byte.
	defaultMaxRequest = 1<<20 - 1
	// leastMaxRequest leaves room for a path, an ACL and some data.
	leastMaxRequest = 16 << 10
	// mostMaxRequest keeps what is written readable: no answer is longer than
	// link.MaxAnswer.
	mostMaxRequest = link.MaxAnswer / 2
)

// Configure applies defaults and options, and validates the result.
func Configure[Option ~func(*Config)](opts ...Option) (Config, error) {
	cfg := Config{
		SessionTimeout: defaultSessionTimeout,
		Retry:          retry.Exponential(50*time.Millisecond, 2*time.Second, 20),
		Log:            zap.NewNop(),
		ACL:            zk.WorldACL(zk.PermAll),
		MaxRequest:     defaultMaxRequest,
	}
	if err := apply(&cfg, opts); err != nil {
		return cfg, err
	}
	return cfg, cfg.validate()
}

func apply[Option ~func(*Config)](cfg *Config, opts []Option) error {
	for i, opt := range opts {
		if opt == nil {
			return fmt.Errorf("option %d: nil", i)
		}
		opt(cfg)
	}
	return nil
}

// Observe adds an observer, which packages find by its type.
func Observe[T any](cfg *Config, by T) {
	Together(cfg, func(cfg *Config) {
		last := &cfg.groups[len(cfg.groups)-1]
		*last = append(*last, func(all map[any]any, events *supplied.Queue) {
			all[observersOf[T]{}] = append(of[T](all), Observed[T]{&by, events})
		})
	})
}

// Together applies opts. The observers among them are one group.
func Together[Option ~func(*Config)](cfg *Config, opts ...Option) {
	if !cfg.together {
		cfg.groups = append(cfg.groups, nil)
		cfg.together = true
		defer func() { cfg.together = false }()
	}
	if err := apply(cfg, opts); err != nil {
		cfg.unusable = err
	}
}

func (cfg *Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	errs = append(errs, cfg.unusable, least.Duration("session timeout", cfg.SessionTimeout, time.Millisecond),
		least.OrZero("stop margin", orZero(cfg.StopMargin), time.Millisecond), least.OrZero("server tick", cfg.ServerTick, time.Millisecond))
	if t := cfg.SessionTimeout; t.Milliseconds() > math.MaxInt32 {
		bad("session timeout %v: must be at most %v", t, math.MaxInt32*time.Millisecond)
	}
	if m := orZero(cfg.StopMargin); m > cfg.SessionTimeout/3 {
		bad("stop margin %v: must be at most a third of the session timeout %v", m, cfg.SessionTimeout)
	}
	if tick := cfg.ServerTick; tick > cfg.SessionTimeout/2 {
		bad("server tick %v: must be at most half of the session timeout %v", tick, cfg.SessionTimeout)
	}
	if err := retry.Check(cfg.Retry); err != nil {
		bad("retry policy: %w", err)
	}
	if cfg.Log == nil {
		bad("logger: nil")
	}
	if cfg.ResolverSet && cfg.Resolver == nil {
		bad("resolver: nil")
	}
	if slices.ContainsFunc(cfg.Guardians, func(g servers.Guardian) bool { return g.Guard == nil }) {
		bad("guardian: nil")
	}
	if cfg.TLSSet && cfg.TLS == nil {
		bad("TLS: no configuration") // and not silently without TLS
	}
	if err := cfg.checkSASL(); err != nil {
		bad("%w", err)
	}
	if cfg.ServersSet && cfg.Servers == nil {
		bad("servers function: nil")
	}
	if len(cfg.ACL) == 0 {
		bad("ACL: empty: nobody could use the znodes")
	}
	if cfg.Proof != ProofSync && cfg.Proof != ProofWrite {
		bad("proof %d: unknown", cfg.Proof)
	}
	if cfg.ErrorPolicy != ErrorPolicySession && cfg.ErrorPolicy != ErrorPolicyConnection {
		bad("error policy %d: unknown", cfg.ErrorPolicy)
	}
	if cfg.Sweep != nil {
		errs = append(errs, least.Duration("sweep after", *cfg.Sweep, time.Second))
	}
	if n := cfg.MaxRequest; n < leastMaxRequest || n > mostMaxRequest {
		bad("largest request %d bytes: must be from %d to %d", n, leastMaxRequest, mostMaxRequest)
	}
	if n := cfg.MaxEphemerals; n != nil && (*n < leastMaxRequest || *n > math.MaxInt32) {
		bad("ephemeral paths of %d bytes: must be from %d to %d", *n, leastMaxRequest, math.MaxInt32)
	}
	for _, a := range cfg.Auths {
		if a.Scheme == "" {
			bad("auth: no scheme")
		}
		if err := cfg.fits(request.Int32Size + request.TextSize(a.Scheme) + request.BlobSize(a.Auth)); err != nil {
			bad("auth %s: %w", a.Scheme, err)
		}
	}
	if err := cfg.fits(request.ACLSize(cfg.ACL)); err != nil {
		bad("ACL: %w", err)
	}
	return oneline.Join(errs...)
}

// orZero returns what an option has set, or zero without it.
func orZero[T any](set *T) (value T) {
	if set != nil {
		value = *set
	}
	return value
}

// Bounds of a session timeout that a server grants in place of the requested
// one. A shorter one would cause a storm of requests, and a session of days
// would keep the client waiting for days after the servers have forgotten it.
const (
	shortestGranted = 100 * time.Millisecond
	longestGranted  = time.Hour
)

// accepts returns an error if a server must not grant this session timeout.
func (cfg *Config) accepts(granted time.Duration) error {
	requested := cfg.SessionTimeout.Truncate(time.Millisecond) // as it is sent
	if granted < min(requested, shortestGranted) || granted > max(requested, longestGranted) {
		return fmt.Errorf("%w: a session timeout of %v was granted, %v was requested", zkerr.Malformed, granted, cfg.SessionTimeout)
	}
	return nil
}

// margin returns the stop margin for the negotiated timeout, which may be
// shorter than the requested one.
func (cfg *Config) margin(timeout time.Duration) time.Duration {
	if cfg.StopMargin != nil {
		return min(*cfg.StopMargin, timeout/3)
	}
	return timeout / 10
}

// checkSASL returns what is wrong with the option, if anything is.
func (cfg *Config) checkSASL() error {
	switch {
	case len(cfg.SASL) == 0:
		return nil
	case len(cfg.SASL) > 1:
		return fmt.Errorf("SASL: the option was given %d times", len(cfg.SASL))
	case cfg.SASL[0].Begin == nil:
		return errors.New("SASL: nil")
	}
	if m, ok := cfg.SASL[0].Of.(interface{ Check() error }); ok {
		if err := m.Check(); err != nil {
			return fmt.Errorf("SASL: %w", err)
		}
	}
	return nil
}

// mechanism returns the zero Mechanism without SASL.
func (cfg *Config) mechanism() (in talk.Mechanism) {
	if len(cfg.SASL) > 0 {
		in = cfg.SASL[0].Mechanism
	}
	return in
}

// fits returns an error if a request whose body has size bytes is too large.
func (cfg *Config) fits(size int) error { return request.Fits(size, cfg.MaxRequest) }
