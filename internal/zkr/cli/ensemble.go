package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
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
	SessionTimeout time.Duration
	ConnectTimeout time.Duration
	Auth           []string
	AuthFile       string
	createChroot   bool
	verbose        bool
	sasl           saslFlags

	Dial func(network, address string, timeout time.Duration) (net.Conn, error) // of tests in virtual time
	tls  struct {
		on                      bool
		ca, cert, key, hostname string
	}
}

func (e *Ensemble) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&e.Servers, "servers", "127.0.0.1:2181", "addresses of the ensemble, host:port,host:port/chroot")
	flags.BoolVar(&e.createChroot, "create-chroot", false, "create the chroot in --servers if it is missing, when a command creates something below it")
	flags.DurationVar(&e.SessionTimeout, "session-timeout", framework.DefaultSessionTimeout, "session timeout to request")
	flags.DurationVar(&e.ConnectTimeout, "connect-timeout", 10*time.Second, "how long to wait for the first connection")
	flags.StringVar(&e.AuthFile, "auth-file", "", "file with credentials, one scheme:credentials a line, that only its owner and group can read")
	flags.StringArrayVar(&e.Auth, "auth", nil, "credentials, scheme:credentials as in digest:user:password, which other users can see in the list of processes; may be repeated")
	e.sasl.add(flags)
	flags.BoolVar(&e.tls.on, "tls", false, "use TLS; implied by the other --tls flags")
	flags.StringVar(&e.tls.ca, "tls-ca", "", "file with the certificates to trust instead of the system's")
	flags.StringVar(&e.tls.cert, "tls-cert", "", "file with the client's certificate")
	flags.StringVar(&e.tls.key, "tls-key", "", "file with the client's key")
	flags.StringVar(&e.tls.hostname, "tls-server-name", "", "name in the servers' certificates, if it differs from --servers")
	flags.BoolVar(&e.verbose, "verbose", false, "print what the client does, and the details of an error, to stderr")
	nameVariables(flags)
}

// Connect returns a connected client. Wrong flags are a usage error.
func (e *Ensemble) Connect(ctx context.Context, more ...framework.Option) (*framework.Client, error) {
	opts, err := e.options()
	if err != nil {
		return nil, err
	}
	if e.ConnectTimeout <= 0 {
		return nil, Usage("--connect-timeout %v: must be more than 0", e.ConnectTimeout)
	}
	called := &calls{latest: map[string]call{}}
	if e.Dial != nil {
		opts = append(opts, framework.WithDialer(e.Dial))
	} else {
		opts = append(opts, framework.WithDialer(called.dial), framework.WithResolver(net.DefaultResolver))
	}
	client, err := framework.New(e.Servers, append(opts, more...)...)
	if err != nil {
		return nil, Usage("%w", err)
	}
	wait, cancel := context.WithTimeout(ctx, e.ConnectTimeout)
	defer cancel()
	if err := client.WaitConnected(wait); err != nil {
		client.Close() // nothing was done yet, so its error does not matter
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, e.unreachable(err, called)
	}
	return client, nil
}

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

func (e *Ensemble) options() ([]framework.Option, error) {
	opts := []framework.Option{framework.WithSessionTimeout(e.SessionTimeout)}
	credentials, err := e.credentials()
	if err != nil {
		return nil, Usage("%w", err)
	}
	for _, c := range credentials {
		opts = append(opts, framework.WithAuth(c.scheme, []byte(c.secret)))
	}
	sasl, err := e.sasl.option()
	if err != nil {
		return nil, Usage("%w", err)
	}
	if sasl != nil {
		opts = append(opts, sasl)
	}
	if e.createChroot {
		opts = append(opts, framework.WithCreateChroot())
	}
	if e.verbose {
		log, err := zap.NewDevelopment()
		if err != nil {
			return nil, Failed(err)
		}
		opts = append(opts, framework.WithLogger(log))
	}
	config, err := e.tlsConfig()
	if err != nil {
		return nil, Usage("%w", err)
	}
	if config != nil {
		opts = append(opts, framework.WithTLS(config))
	}
	return opts, nil
}

func (e *Ensemble) usesTLS() bool {
	t := e.tls
	return t.on || t.ca != "" || t.cert != "" || t.key != "" || t.hostname != ""
}

// tlsConfig returns nil if no flag asks for TLS.
func (e *Ensemble) tlsConfig() (*tls.Config, error) {
	if !e.usesTLS() {
		return nil, nil
	}
	t := e.tls
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.hostname}
	if t.ca != "" {
		pem, err := os.ReadFile(t.ca)
		if err != nil {
			return nil, fmt.Errorf("--tls-ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--tls-ca: no certificate in %s", t.ca)
		}
	}
	if (t.cert == "") != (t.key == "") {
		return nil, errors.New("--tls-cert and --tls-key must be given together")
	}
	if t.cert != "" {
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
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
