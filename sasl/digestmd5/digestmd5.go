// Package digestmd5 has SASL DIGEST-MD5 for framework.WithSASL. The servers
// have the user and the password in their JAAS configuration
// (DigestLoginModule).
//
// A listener can only guess the password, offline. The server proves that it
// has it. Nothing is encrypted, and no request is protected: for that, use TLS.
// Servers before 3.9.3 let an unknown user in who has the last user's password
// (ZOOKEEPER-4839). Where MD5 is not allowed (FIPS 140), each exchange fails
// with an error that says so.
package digestmd5

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/md5digest"
)

type mechanism struct {
	fixed *credentials // nil: ask returns them
	ask   func() (user, password string, err error)
	last  atomic.Pointer[credentials] // of the latest exchange
}

type credentials struct{ user, password string }

// New returns the mechanism for one user. framework.New returns an error for an
// empty user or password, and for one with a zero byte or more than a line.
func New(user, password string) framework.SASL {
	return &mechanism{fixed: &credentials{user, password}}
}

// Func returns the mechanism for the user and the password that ask returns. It
// is called for each connection, on a goroutine of its own, so it may read a
// file that changes. Several calls may be under way. Its error means that the
// server is not dialed. While the client pauses after a refusal it is also
// called once a second: if it returns something else than before, the client
// tries at once.
func Func(ask func() (user, password string, err error)) framework.SASL {
	return &mechanism{ask: ask}
}

// Check returns an error if New or Func was called with something that cannot
// work.
func (m *mechanism) Check() error {
	if m.fixed != nil {
		return m.fixed.check()
	}
	if m.ask == nil {
		return errors.New("digestmd5.Func(nil)")
	}
	return nil
}

func (c credentials) check() error {
	for _, one := range []struct{ name, value string }{{"user", c.user}, {"password", c.password}} {
		switch {
		case one.value == "":
			return fmt.Errorf("no %s", one.name)
		case strings.ContainsAny(one.value, "\x00\r\n"):
			return fmt.Errorf("the %s has a zero byte, or more than one line", one.name)
		}
	}
	return nil
}

// Begin implements framework.SASL.
func (m *mechanism) Begin(context.Context, framework.SASLServer) (framework.SASLExchange, error) {
	c := m.fixed
	if c == nil {
		user, password, err := m.ask()
		if err != nil {
			return nil, err
		}
		c = &credentials{user, password}
		m.last.Store(c)
		if err := c.check(); err != nil {
			return nil, err
		}
	}
	return &exchange{credentials: *c}, nil
}

// Changed reports whether Func's function returns other credentials than for
// the latest exchange.
func (m *mechanism) Changed() bool {
	if m.fixed != nil {
		return false
	}
	user, password, err := m.ask()
	last := m.last.Load()
	return err == nil && last != nil && *last != credentials{user, password}
}

// exchange is the client's side: an empty token, the response to the challenge,
// and a look at the server's proof.
type exchange struct {
	credentials
	step  int
	proof md5digest.Proof
}

// Next implements framework.SASLExchange.
func (x *exchange) Next(challenge []byte) (response []byte, done bool, err error) {
	x.step++
	switch x.step {
	case 1:
		return []byte{}, false, nil
	case 2:
		response, err = x.respond(challenge)
		return response, false, err
	}
	return nil, true, x.checkServer(challenge)
}

func (x *exchange) respond(challenge []byte) ([]byte, error) {
	offer, err := md5digest.Parse(challenge)
	if err != nil {
		return nil, fmt.Errorf("the server's challenge is not one of DIGEST-MD5: %w", err)
	}
	if offer["nonce"] == "" || offer["algorithm"] != "md5-sess" {
		return nil, errors.New("the server's challenge is not one of DIGEST-MD5")
	}
	if qop, ok := offer["qop"]; ok && !offers(qop, md5digest.QOP) {
		return nil, fmt.Errorf("the server offers the protection %q only", qop)
	}
	random := make([]byte, 24)
	if _, err := rand.Read(random); err != nil {
		return nil, err
	}
	x.proof = md5digest.Proof{
		User: x.user, Realm: offer["realm"], Password: x.password,
		Nonce: offer["nonce"], CNonce: base64.StdEncoding.EncodeToString(random),
		Count: md5digest.Count, QOP: md5digest.QOP, URI: md5digest.URI,
	}
	sum, err := x.proof.Response()
	if err != nil {
		return nil, err
	}
	p := x.proof
	return fmt.Appendf(nil, "charset=utf-8,username=%s,realm=%s,nonce=%s,nc=%s,cnonce=%s,digest-uri=%s,maxbuf=65536,response=%s,qop=%s",
		md5digest.Quote(p.User), md5digest.Quote(p.Realm), md5digest.Quote(p.Nonce), p.Count, md5digest.Quote(p.CNonce),
		md5digest.Quote(p.URI), sum, p.QOP), nil
}

func offers(list, want string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(one) == want {
			return true
		}
	}
	return false
}

// checkServer checks that the server knows the password.
func (x *exchange) checkServer(last []byte) error {
	answer, err := md5digest.Parse(last)
	if err != nil {
		return fmt.Errorf("the server's proof cannot be read: %w", err)
	}
	want, err := x.proof.ServerResponse()
	if err != nil {
		return err
	}
	if subtle.ConstantTimeCompare([]byte(answer["rspauth"]), []byte(want)) != 1 {
		return errors.New("the server does not prove that it knows the password")
	}
	return nil
}
