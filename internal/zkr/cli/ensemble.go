package cli

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/framework"
)

// Ensemble says which ensemble to use and how: the global flags.
type Ensemble struct {
	Servers        string
	ServersFile    string
	track          bool
	SessionTimeout time.Duration
	ConnectTimeout time.Duration
	Auth           []string
	AuthFile       string
	createChroot   bool
	noContainers   bool
	verbose        bool
	sasl           saslFlags
	kerberos       Kerberos // nil: this zkr has none
	tls            tlsFlags

	identities []string // those that the credentials give the client, as ACLs name them

	printed []*output // stdout and stderr

	// Of tests in virtual time:
	Dial    func(network, address string, timeout time.Duration) (net.Conn, error)
	Signals *Signals                // instead of the process's
	Left    func(*framework.Client) // gets a client that would end with the process
}

func (e *Ensemble) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&e.Servers, "servers", "127.0.0.1:2181", "addresses of the ensemble, host:port,host:port/chroot")
	flags.StringVar(&e.ServersFile, "servers-file", "", "file with what --servers has, used instead of it, and read again about once a minute and in an outage")
	flags.BoolVar(&e.track, "track", false, "follow the members in /zookeeper/config")
	flags.BoolVar(&e.createChroot, "create-chroot", false, "create the chroot in --servers if it is missing, when a command creates something below it")
	flags.BoolVar(&e.noContainers, "no-containers", false, "make directories that stay, for servers without container znodes")
	flags.DurationVar(&e.SessionTimeout, "session-timeout", framework.DefaultSessionTimeout, "session timeout to request")
	flags.DurationVar(&e.ConnectTimeout, "connect-timeout", 10*time.Second, "how long to wait for the first connection")
	flags.StringVar(&e.AuthFile, "auth-file", "", "file with credentials, one scheme:credentials a line, that only its owner and group can read")
	flags.StringArrayVar(&e.Auth, "auth", nil, "credentials, scheme:credentials as in digest:user:password, which other users can see in the list of processes; may be repeated")
	e.sasl.add(flags)
	e.tls.add(flags)
	flags.BoolVar(&e.verbose, "verbose", false, "print what the client does, and the details of an error, to stderr")
	nameVariables(flags)
}

// Connect returns a connected client. Wrong flags are a usage error. It waits
// for the connect timeout at most, and for less if ctx has an earlier deadline.
func (e *Ensemble) Connect(ctx context.Context, more ...framework.Option) (*framework.Client, error) {
	opts, err := e.Options()
	if err != nil {
		return nil, err
	}
	if e.ConnectTimeout <= 0 {
		return nil, Usage("--connect-timeout %v: must be more than 0", e.ConnectTimeout)
	}
	called := &calls{tls: e.tls.used(), latest: map[string]call{}}
	if e.Dial == nil {
		opts = append(opts, framework.WithDialer(called.dial), framework.WithResolver(net.DefaultResolver))
	}
	client, err := framework.New(e.Servers, append(opts, more...)...)
	if err != nil {
		return nil, Usage("%w", err)
	}
	limit := e.ConnectTimeout
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end).Round(time.Millisecond))
	}
	wait, cancel := context.WithTimeout(ctx, e.ConnectTimeout)
	defer cancel()
	if err := client.WaitConnected(wait); err != nil {
		client.Close() // nothing was done yet, so its error does not matter
		if errors.Is(wait.Err(), context.Canceled) {
			return nil, context.Cause(ctx)
		}
		return nil, e.unreachable(err, limit, called)
	}
	return client, nil
}

// Verbose reports whether zkr prints what it does.
func (e *Ensemble) Verbose() bool { return e.verbose }

// Slack is how long before the deadline of a lease all must be over: a process
// does not end in the instant of its SIGKILL, and zkr prints its last line.
func (e *Ensemble) Slack() time.Duration { return min(200*time.Millisecond, e.SessionTimeout/50) }

// Chroot returns the path in --servers below which all paths are, or an empty
// one.
func (e *Ensemble) Chroot() string {
	if i := strings.IndexByte(e.Servers, '/'); i >= 0 {
		return e.Servers[i:]
	}
	return ""
}

// Options returns the options of a client. Wrong flags are a usage error.
func (e *Ensemble) Options() ([]framework.Option, error) {
	opts := []framework.Option{framework.WithSessionTimeout(e.SessionTimeout)}
	if e.Dial != nil {
		opts = append(opts, framework.WithDialer(e.Dial))
	}
	fromFile, err := e.fromServersFile()
	if err != nil {
		return nil, Usage("%w", err)
	}
	opts = append(opts, fromFile...)
	if e.track {
		opts = append(opts, framework.WithEnsembleTracking())
	}
	credentials, err := e.credentials()
	if err != nil {
		return nil, Usage("%w", err)
	}
	e.identities = nil
	for _, c := range credentials {
		opts = append(opts, framework.WithAuth(c.scheme, []byte(c.secret)))
		e.identities = append(e.identities, c.identity())
	}
	sasl, err := e.sasl.option(e.kerberos)
	if err != nil {
		return nil, Usage("%w", err)
	}
	if sasl != nil {
		opts = append(opts, sasl)
		e.identities = append(e.identities, "sasl:"+cmp.Or(e.sasl.user, "the owner of the tickets"))
	}
	if e.createChroot {
		opts = append(opts, framework.WithCreateChroot())
	}
	if e.noContainers {
		opts = append(opts, framework.WithContainers(false))
	}
	if e.verbose {
		log, err := zap.NewDevelopment()
		if err != nil {
			return nil, Failed(err)
		}
		opts = append(opts, framework.WithLogger(log))
	}
	if e.tls.used() {
		current, err := e.tls.configuration(os.Stderr)
		if err != nil {
			return nil, Usage("%w", err)
		}
		opts = append(opts, framework.WithTLSFunc(current))
		if e.tls.cert != "" {
			e.identities = append(e.identities, "x509:the subject of --tls-cert")
		}
	}
	return opts, nil
}

// Hosts returns the servers with their ports and without the chroot, separated
// by commas.
func (e *Ensemble) Hosts() string {
	var names []string
	for _, name := range strings.Split(strings.TrimSuffix(e.Servers, e.Chroot()), ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(name); err != nil {
			name += ":2181"
		}
		names = append(names, name)
	}
	return strings.Join(names, ",")
}

// Full returns the path of a line with the chroot.
func (e *Ensemble) Full(path string) string {
	return strings.TrimSuffix(e.Chroot(), "/") + path
}
