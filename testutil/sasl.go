package testutil

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/zkrecipes/zkrecipes/internal/md5digest"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// WithSASL lets clients authenticate by SASL's DIGEST-MD5, with these users and
// their passwords: at all members, or at those that are named. It may be
// repeated. A client whose exchange succeeds has the identity of its user in
// the scheme sasl; [WithEnforcedAuth] with "sasl" requires it. By default a
// member has no SASL, and answers as the real server does then: yes, with a
// null token.
func WithSASL(users map[string]string, members ...int) Option {
	users = maps.Clone(users)
	return func(c *config) {
		if c.sasl == nil {
			c.sasl = make(map[int]map[string]string)
		}
		if len(members) == 0 {
			members = []int{allMembers}
		}
		for _, m := range members {
			c.sasl[m] = users
		}
	}
}

// allMembers stands for the members without users of their own.
const allMembers = -1

// saslUsers returns the users of a member, nil if it has no SASL.
func (c *config) saslUsers(member int) map[string]string {
	if users, ok := c.sasl[member]; ok {
		return users
	}
	return c.sasl[allMembers]
}

// saslLocked answers a token: the first with a challenge, the second with the
// server's proof. A client that does not know the password, or sends a third
// one, is told so, and its connection is closed; the session stays.
func (c *conn) saslLocked(r *request) {
	token := r.body.(*wire.Token).Token
	users := c.m.e.cfg.saslUsers(c.m.index)
	switch {
	case token == nil: // the real server fails to read it
		c.m.e.cfg.logf("testutil: member %d closes the connection of session %#x: SASL: a null token", c.m.index, c.session)
		c.closeLocked()
		return
	case users == nil:
		c.replyLocked(r, wire.OK, &wire.Token{})
		return
	case c.saslNonce == "":
		c.saslNonce = rand.Text()
		c.replyLocked(r, wire.OK, &wire.Token{Token: fmt.Appendf(nil, "realm=%s,nonce=%s,charset=utf-8,algorithm=md5-sess",
			md5digest.Quote(md5digest.Realm), md5digest.Quote(c.saslNonce))})
		return
	}
	user, proof, err := checkResponse(token, c.saslNonce, users)
	if c.saslDone {
		err = errors.New("the exchange is over")
	}
	c.saslDone = true
	if err != nil {
		c.m.e.cfg.logf("testutil: member %d closes the connection of session %#x: SASL: %v", c.m.index, c.session, err)
		code := wire.AuthFailed
		if slices.Contains(c.m.e.cfg.authSchemes, "sasl") {
			code = wire.SessionClosedRequire
		}
		c.replyLocked(r, code, &wire.Token{})
		c.closeAfterSendingLocked()
		return
	}
	c.addAuthLocked(wire.ID{Scheme: "sasl", ID: user})
	c.replyLocked(r, wire.OK, &wire.Token{Token: []byte("rspauth=" + proof)})
}

// checkResponse returns the user of a response, and the server's proof for it.
func checkResponse(token []byte, nonce string, users map[string]string) (user, proof string, err error) {
	said, err := md5digest.Parse(token)
	if err != nil {
		return "", "", err
	}
	user = said["username"]
	password, ok := users[user]
	if !ok {
		return "", "", fmt.Errorf("no user %q", user)
	}
	p := md5digest.Proof{
		User: user, Realm: said["realm"], Password: password, Nonce: nonce, CNonce: said["cnonce"],
		Count: said["nc"], QOP: said["qop"], URI: said["digest-uri"], ActAs: said["authzid"],
	}
	if said["nonce"] != nonce || p.Count != md5digest.Count || p.QOP != md5digest.QOP || p.Realm != md5digest.Realm {
		return "", "", fmt.Errorf("not a response to the challenge: %q", token)
	}
	want, err := p.Response()
	if err != nil {
		return "", "", err
	}
	if subtle.ConstantTimeCompare([]byte(said["response"]), []byte(want)) != 1 {
		return "", "", fmt.Errorf("wrong password for %q", user)
	}
	proof, err = p.ServerResponse()
	return user, proof, err
}
