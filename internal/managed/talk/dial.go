package talk

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/serverlist"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// DialServer opens a connection to one server, with TLS if that is configured,
// within limit, unless stop is closed. It does not count as an attempt.
func (t *Talker) DialServer(stop <-chan struct{}, network string, to serverlist.Server, limit time.Duration) (net.Conn, error) {
	if t.cfg.TLS == nil {
		return t.cfg.Dial(network, to.Address, limit)
	}
	end := time.Now().Add(limit)
	left := func() time.Duration { return max(time.Until(end), time.Millisecond) }
	cfg, err := supplied.Get(context.Background(), t.cfg.Supplying, stop, limit, func(context.Context) (*tls.Config, error) { return t.cfg.TLS() })
	if err == nil && cfg == nil {
		err = errNoTLS
	}
	if err != nil {
		return nil, fmt.Errorf("TLS: configuration: %w", err)
	}
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName, _, _ = net.SplitHostPort(to.Name)
	}
	conn, err := t.cfg.Dial(network, to.Address, left())
	if err != nil {
		return nil, err
	}
	secured := tls.Client(conn, cfg)
	_, err = supplied.Get(context.Background(), t.cfg.Supplying, stop, left(), func(ctx context.Context) (struct{}, error) { // it calls functions of cfg
		return struct{}{}, secured.HandshakeContext(ctx)
	})
	if err != nil {
		_ = conn.Close()
		return nil, explainTLS(err)
	}
	return abruptConn{secured}, nil
}

var errNoTLS = errors.New("nil")

// explainTLS puts before the error of a handshake who has refused whom, and
// why: what to change, and on which side.
func explainTLS(err error) error {
	var (
		header    tls.RecordHeaderError
		unproven  *tls.CertificateVerificationError
		name      x509.HostnameError
		authority x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
		slow      net.Error
		why       = "the handshake has failed"
	)
	switch {
	case zkerr.IsHangUp(err):
		why = "the server has ended the handshake, as one that does not expect TLS at this address"
	case errors.As(err, &header):
		why = "the server does not speak TLS at this address"
	case isAlert(err):
		why = "the server refuses the handshake, as one that wants a certificate of the client, or has no cipher in common"
		if strings.Contains(err.Error(), "certificate") {
			why = "the server refuses the client's certificate"
		}
	case errors.As(err, &name):
		why = "the server's certificate is for another name"
	case errors.As(err, &authority):
		why = "the server's certificate is of an authority that the client does not trust"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		why = "the server's certificate has expired, or is not valid yet"
	case errors.As(err, &unproven):
		why = "the client refuses the server's certificate"
	case errors.Is(err, supplied.ErrNoResult), errors.As(err, &slow) && slow.Timeout():
		why = "the handshake does not end, as at a server that is silent"
	}
	return fmt.Errorf("TLS: %s: %w", why, err)
}

// isAlert reports whether the other end says why it ends the connection.
func isAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

// abruptConn closes without the goodbye of TLS to the other end. That can take
// seconds, too long where a connection is closed because the deadline is near.
type abruptConn struct{ *tls.Conn }

func (c abruptConn) Close() error { return c.NetConn().Close() }

// Read explains that the server refuses the client's certificate: in TLS 1.3 it
// says so only when the handshake has succeeded here.
func (c abruptConn) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	if isAlert(err) {
		err = explainTLS(err)
	}
	return n, err
}
