package testutil_test

import (
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// enforced is what clients see of members that enforce the scheme digest: a
// request without such credentials is refused, whatever it asks for, and its
// connection is closed. The session stays.
func enforced(t *testing.T, ens testutil.Ensemble) []string {
	s := &script{t: t, ens: ens, log: &transcript{sessions: map[int64]string{0: "nobody"}}}
	for _, op := range []wire.Op{wire.OpPing, wire.OpSync, wire.OpCloseSession, wire.OpCreate, wire.Op(9999)} {
		p := s.peer("without", patience)
		p.do(op, create("/"+op.String(), "", 1))
		p.do(wire.OpPing, nil)
	}
	address := s.peer("address", patience)
	address.do(wire.OpAuth, &wire.AuthRequest{Scheme: "ip"})
	address.do(wire.OpExists, look("/", false))
	p := s.peer("with", patience)
	p.do(wire.OpAuth, &wire.AuthRequest{Scheme: "digest", Auth: []byte("app:pw")})
	p.do(wire.OpCreate, create("/with", "", 1))
	p.do(wire.OpCloseSession, nil)
	return s.log.lines
}

func TestEnforcedAuth(t *testing.T) {
	lines := enforced(t, testutil.Start(t, testutil.WithEnforcedAuth("digest")))
	text := strings.Join(lines, "\n")
	if n := strings.Count(text, " -124"); n != 6 {
		t.Errorf("%d requests were refused, want 6:\n%s", n, text)
	}
	if n := strings.Count(text, "closed"); n != 5 {
		t.Errorf("%d connections were closed, want 5:\n%s", n, text)
	}
}

// TestEnforcedAuthOnTheRealServer compares it with the real server, which can
// do so since 3.7.
func TestEnforcedAuthOnTheRealServer(t *testing.T) {
	ens := apache.Start(t, 1, apache.WithProperty("zookeeper.enforce.auth.enabled", "true"), apache.WithProperty("zookeeper.enforce.auth.schemes", "digest"))
	if release := releaseOf(t, ens); olderThan(release, "3.7.0") {
		t.Skip(release, "enforces no schemes")
	}
	same(t, enforced(t, testutil.Start(t, testutil.WithEnforcedAuth("digest"))), enforced(t, ens))
}
