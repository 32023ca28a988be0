package testutil_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/md5digest"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/sasl/digestmd5"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// unique are the parts of tokens that are others each time.
var unique = regexp.MustCompile(`(nonce=\\"|rspauth=)[^"\\]*`)

// authenticating is what clients see that authenticate by SASL, or try to, or
// do not: each on a connection of its own.
func authenticating(t *testing.T, ens testutil.Ensemble) []string {
	s := &script{t: t, ens: ens, log: &transcript{sessions: map[int64]string{0: "nobody"}}}
	say := func(p *peer, what string, token []byte) (challenge []byte) {
		p.send(wire.OpSASL, &wire.Token{Token: token})
		head, body, err := p.next()
		if err != nil {
			s.log.add("%s %s -> closed", p.name, what)
			return nil
		}
		s.log.add("%s %s -> %s", p.name, what, unique.ReplaceAllString(p.describe(wire.OpSASL, head, body), "$1"))
		var answer wire.Token
		answer.Decode(wire.NewDecoder(body))
		return answer.Token
	}
	exchange := func(p *peer, user, password string) {
		x, err := digestmd5.New(user, password).Begin(t.Context(), framework.SASLServer{})
		if err != nil {
			t.Fatal(err)
		}
		var challenge []byte
		for n := range 2 {
			response, _, err := x.Next(challenge)
			if err != nil { // the server has none
				s.log.add("%s: %v", p.name, err)
				return
			}
			challenge = say(p, fmt.Sprintf("token %d of %s", n+1, user), response)
		}
	}
	ask := func(p *peer) {
		p.do(wire.OpExists, look("/none", false))
		p.do(wire.OpPing, nil)
	}
	mine := func(path string) *wire.CreateRequest {
		return &wire.CreateRequest{Path: path, ACL: []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "auth"}}}, Mode: 1}
	}

	for _, request := range []wire.Op{wire.OpPing, wire.OpExists, wire.OpCloseSession} {
		p := s.peer("without", patience)
		p.do(request, look("/none", false))
		ask(p)
	}
	p := s.peer("right", patience)
	exchange(p, "app", "secret")
	p.do(wire.OpCreate, mine("/mine"))
	p.do(wire.OpGetACL, &wire.PathRequest{Path: "/mine"})
	say(p, "one more", []byte{})
	ask(p)
	for _, other := range []string{"app", "another"} { // Java's client names the user, Kazoo's and ours nobody
		p = s.peer("for "+other, patience)
		offer, err := md5digest.Parse(say(p, "empty", []byte{}))
		if err != nil {
			t.Fatal(err)
		}
		proof := md5digest.Proof{
			User: "app", Realm: offer["realm"], Password: "secret", Nonce: offer["nonce"], CNonce: "c",
			Count: md5digest.Count, QOP: md5digest.QOP, URI: md5digest.URI, ActAs: other,
		}
		sum, err := proof.Response()
		if err != nil {
			t.Fatal(err)
		}
		say(p, "response", fmt.Appendf(nil, `charset=utf-8,username="app",realm="%s",nonce="%s",nc=%s,cnonce="c",digest-uri="%s",maxbuf=65536,response=%s,qop=auth,authzid="%s"`,
			proof.Realm, proof.Nonce, proof.Count, proof.URI, sum, other))
		p.do(wire.OpCreate, mine("/for-"+other))
		p.do(wire.OpGetACL, &wire.PathRequest{Path: "/for-" + other})
	}
	p = s.peer("wrong", patience)
	exchange(p, "app", "other")
	ask(p)
	p = s.peer("unknown", patience)
	exchange(p, "nobody", "nothing")
	ask(p)
	for _, first := range [][]byte{nil, []byte("hello")} {
		p = s.peer("other", patience)
		say(p, fmt.Sprintf("first token %q", first), first)
		ask(p)
	}
	p = s.peer("second", patience)
	say(p, "empty", []byte{})
	say(p, "empty again", []byte{})
	ask(p)
	p = s.peer("later", patience)
	say(p, "empty", []byte{})
	say(p, "garbage", []byte("hello"))
	ask(p)
	return s.log.lines
}

// recordedSASL is what Apache ZooKeeper 3.8.0 answers.
const recordedSASL = "testdata/sasl.txt"

var saslKinds = []struct {
	name     string
	embedded []testutil.Option
	real     []apache.Option
}{
	{"there is no SASL", nil, nil},
	{"SASL is optional", []testutil.Option{testutil.WithSASL(digestUsers)}, []apache.Option{digestJAAS}},
	{
		"SASL is required",
		[]testutil.Option{testutil.WithSASL(digestUsers), testutil.WithEnforcedAuth("sasl")},
		[]apache.Option{digestJAAS, apache.WithProperty("zookeeper.sessionRequireClientSASLAuth", "true")},
	},
}

var (
	digestUsers = map[string]string{"app": "secret"}
	digestJAAS  = apache.WithJAAS(`Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_app="secret"; };`)
)

// The embedded ensemble answers as the real server: where SASL is required,
// where it is not, and where there is none.
func TestSASL(t *testing.T) {
	var lines []string
	for _, kind := range saslKinds {
		lines = append(append(lines, "# "+kind.name), authenticating(t, testutil.Start(t, kind.embedded...))...)
	}
	same(t, lines, recordedLines(t, recordedSASL))
}

// TestSASLOnTheRealServer asks the installed server again, or that in
// ZOOKEEPER_HOME.
func TestSASLOnTheRealServer(t *testing.T) {
	var lines []string
	for _, kind := range saslKinds {
		ens := apache.Start(t, 1, kind.real...)
		if release := releaseOf(t, ens); olderThan(release, "3.7.0") {
			t.Skip(release, "requires no authentication")
		}
		lines = append(append(lines, "# "+kind.name), authenticating(t, ens)...)
	}
	if *record {
		must(t, os.WriteFile(recordedSASL, []byte(strings.Join(lines, "\n")+"\n"), 0o644))
	}
	same(t, lines, recordedLines(t, recordedSASL))
}
