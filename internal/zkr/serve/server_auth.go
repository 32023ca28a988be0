package serve

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// serverAuth says how clients of zkr server authenticate.
type serverAuth struct {
	users, cert, key, ca string
	required             []string
}

func (a *serverAuth) add(flags *pflag.FlagSet) {
	flags.StringVar(&a.users, "sasl-users", "", "file with a line user:password for each user of SASL DIGEST-MD5, that only its owner and group can read")
	flags.StringSliceVar(&a.required, "enforce-auth", nil, "schemes of which a client must have credentials: digest, sasl, x509")
	flags.StringVar(&a.cert, "tls-cert", "", "file with the members' certificate: they take connections with TLS alone")
	flags.StringVar(&a.key, "tls-key", "", "file with its key")
	flags.StringVar(&a.ca, "tls-ca", "", "file with the certificates that those of clients are checked against; a client may have none")
}

// options returns an error for flags that do not go together.
func (a *serverAuth) options() (opts []testutil.Option, err error) {
	for _, scheme := range a.required {
		switch {
		case !slices.Contains([]string{"digest", "sasl", "x509"}, scheme):
			return nil, fmt.Errorf("--enforce-auth %s: want digest, sasl or x509", scheme)
		case len(a.required) == 1 && (scheme == "sasl" && a.users == "" || scheme == "x509" && a.ca == ""):
			return nil, fmt.Errorf("--enforce-auth %s: no client could authenticate without --sasl-users or --tls-ca", scheme)
		}
	}
	if a.required != nil {
		opts = append(opts, testutil.WithEnforcedAuth(a.required...))
	}
	if a.users != "" {
		users, err := readUsers(a.users)
		if err != nil {
			return nil, fmt.Errorf("--sasl-users: %w", err)
		}
		opts = append(opts, testutil.WithSASL(users))
	}
	if a.cert == "" && a.key == "" && a.ca == "" {
		return opts, nil
	}
	cfg, err := a.tls()
	return append(opts, testutil.WithTLS(cfg)), err
}

// readUsers reads a file of users and passwords. An error does not have them.
func readUsers(name string) (map[string]string, error) {
	text, err := cli.ReadPrivate(name)
	if err != nil {
		return nil, err
	}
	users := map[string]string{}
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		user, password, ok := strings.Cut(strings.TrimSuffix(line, "\r"), ":")
		if _, twice := users[user]; !ok || user == "" || password == "" || twice {
			return nil, fmt.Errorf("%s:%d: want user:password, once for each user", name, i+1)
		}
		users[user] = password
	}
	return users, nil
}

func (a *serverAuth) tls() (*tls.Config, error) {
	if a.cert == "" || a.key == "" {
		return nil, errors.New("--tls-cert and --tls-key must be given together")
	}
	pair, err := tls.LoadX509KeyPair(a.cert, a.key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if a.ca == "" {
		return cfg, nil
	}
	pem, err := os.ReadFile(a.ca)
	if err != nil {
		return nil, fmt.Errorf("--tls-ca: %w", err)
	}
	cfg.ClientCAs, cfg.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven
	if !cfg.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--tls-ca: no certificate in %s", a.ca)
	}
	return cfg, nil
}
