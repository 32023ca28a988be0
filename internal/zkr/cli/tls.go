package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/pflag"
)

// tlsFlags say how the client and the servers know each other.
type tlsFlags struct {
	on                      bool
	ca, cert, key, hostname string
}

func (t *tlsFlags) add(flags *pflag.FlagSet) {
	flags.BoolVar(&t.on, "tls", false, "use TLS; implied by the other --tls flags")
	flags.StringVar(&t.ca, "tls-ca", "", "file with the certificates to trust instead of the system's; read again at each connection")
	flags.StringVar(&t.cert, "tls-cert", "", "file with the client's certificate; read again at each connection")
	flags.StringVar(&t.key, "tls-key", "", "file with the client's key; read again at each connection")
	flags.StringVar(&t.hostname, "tls-server-name", "", "name in the servers' certificates, if it differs from --servers")
}

func (t *tlsFlags) used() bool {
	return t.on || t.ca != "" || t.cert != "" || t.key != "" || t.hostname != ""
}

// configuration reads the files, and returns a function that reads them again.
// Files are replaced one after the other. So what cannot be used is said on
// errs, once until it changes, and the last that could be is used instead.
func (t *tlsFlags) configuration(errs io.Writer) (func() (*tls.Config, error), error) {
	if (t.cert == "") != (t.key == "") {
		return nil, errors.New("--tls-cert and --tls-key must be given together")
	}
	trusted, err := t.readCA()
	if err != nil {
		return nil, err
	}
	own, err := t.readPair()
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex // guards trusted, own and said
	var said string
	return func() (*tls.Config, error) {
		ca, badCA := t.readCA()
		pair, badPair := t.readPair()
		mu.Lock()
		defer mu.Unlock()
		if badCA == nil {
			trusted = ca
		}
		if badPair == nil {
			own = pair
		}
		text := ""
		if bad := errors.Join(badCA, badPair); bad != nil {
			text = fmt.Sprintf("zkr: %s; what was read before is used\n", Plain(bad))
		}
		if text != said && text != "" {
			go Say(errs, time.Second, text) // nobody waits for a reader
		}
		said = text
		return &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.hostname, RootCAs: trusted, Certificates: own}, nil
	}, nil
}

// readCA returns nil without the flag: the system's certificates are trusted.
func (t *tlsFlags) readCA() (*x509.CertPool, error) {
	if t.ca == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(t.ca)
	if err != nil {
		return nil, fmt.Errorf("--tls-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--tls-ca: no certificate in %s", t.ca)
	}
	return pool, nil
}

// readPair returns nil without the flags: the client shows no certificate.
func (t *tlsFlags) readPair() ([]tls.Certificate, error) {
	if t.cert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(t.cert, t.key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
	}
	return []tls.Certificate{pair}, nil
}
