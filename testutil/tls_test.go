package testutil_test

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/tlstest"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// secured is an ensemble that is reached by TLS.
type secured struct {
	testutil.Ensemble
	config *tls.Config
}

func (e secured) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	nc, err := e.Ensemble.Dial(network, address, timeout)
	if err != nil {
		return nil, err
	}
	return tls.Client(nc, e.config), nil
}

// throughTLS is what clients see of members with TLS: one with a certificate,
// another one, one without, and those whose certificate is a stranger's or has
// expired.
func throughTLS(t *testing.T, ens testutil.Ensemble, trusted, stranger *tlstest.Authority) []string {
	log := &transcript{sessions: map[int64]string{0: "nobody"}}
	client := func(pairs ...tls.Certificate) testutil.Ensemble {
		return secured{ens, &tls.Config{RootCAs: trusted.Pool(), ServerName: "ensemble.example", Certificates: pairs}}
	}
	for _, each := range []struct {
		name string
		ens  testutil.Ensemble
	}{
		{"app", client(trusted.Issue("app", time.Hour))},
		{"other", client(trusted.Issue("other", time.Hour))},
		{"none", client()},
		{"stranger", client(stranger.Issue("app", time.Hour))},
		{"expired", client(trusted.Issue("app", -time.Hour))},
	} {
		nc, err := each.ens.Dial("tcp", strings.Split(ens.Servers(), ",")[0], time.Second)
		must(t, err)
		t.Cleanup(func() { nc.Close() })
		answer := attach(t, nc, &wire.ConnectRequest{Timeout: 10_000, Password: make([]byte, 16)})
		if answer == nil {
			log.add("%s -> closed", each.name)
			continue
		}
		p := &peer{t: t, name: each.name, nc: nc, session: answer.SessionID, log: log}
		log.sessions[p.session] = each.name
		p.do(wire.OpCreate, &wire.CreateRequest{Path: "/mine", ACL: []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "auth"}}}})
		for _, id := range []string{"CN=app,O=shop", "app"} {
			p.do(wire.OpCreate, &wire.CreateRequest{Path: "/for-" + id, ACL: []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "x509", ID: id}}}})
			p.do(wire.OpGetData, look("/for-"+id, false))
		}
		p.do(wire.OpGetACL, &wire.PathRequest{Path: "/mine"})
		p.do(wire.OpGetData, look("/mine", false))
		p.do(wire.OpCloseSession, nil)
	}
	return log.lines
}

// recordedTLS is what Apache ZooKeeper 3.8.0 answers.
const recordedTLS = "testdata/tls.txt"

// authorities returns one that the members trust and one that they do not, and
// the members' certificate.
func authorities(t *testing.T) (trusted, stranger *tlstest.Authority, own tls.Certificate) {
	t.Helper()
	trusted = tlstest.NewAuthority(t)
	return trusted, tlstest.NewAuthority(t), trusted.Issue("ensemble.example", time.Hour)
}

// The embedded ensemble answers over TLS as the real server, and takes a
// certificate for the same identity. In memory it does the same.
func TestTLS(t *testing.T) {
	for name, opts := range map[string][]testutil.Option{"over TCP": nil, "in memory": {testutil.InMemory()}} {
		t.Run(name, func(t *testing.T) {
			trusted, stranger, own := authorities(t)
			cfg := &tls.Config{Certificates: []tls.Certificate{own}, ClientCAs: trusted.Pool(), ClientAuth: tls.RequireAndVerifyClientCert}
			ens := testutil.Start(t, append(opts, testutil.WithTLS(cfg))...)
			same(t, throughTLS(t, ens, trusted, stranger), recordedLines(t, recordedTLS))
		})
	}
}

// TestTLSOnTheRealServer asks the installed server again, or that in
// ZOOKEEPER_HOME.
func TestTLSOnTheRealServer(t *testing.T) {
	trusted, stranger, own := authorities(t)
	dir := t.TempDir()
	ca, both := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "both.pem")
	trusted.Write(ca)
	tlstest.WritePair(t, own, both, both)
	ens := apache.Start(t, 1,
		apache.WithProperty("zookeeper.serverCnxnFactory", "org.apache.zookeeper.server.NettyServerCnxnFactory"),
		apache.WithProperty("zookeeper.client.portUnification", "true"),
		apache.WithProperty("zookeeper.ssl.keyStore.location", both), apache.WithProperty("zookeeper.ssl.keyStore.type", "PEM"),
		apache.WithProperty("zookeeper.ssl.trustStore.location", ca), apache.WithProperty("zookeeper.ssl.trustStore.type", "PEM"),
		apache.WithProperty("zookeeper.ssl.clientAuth", "need"),
		apache.WithProperty("zookeeper.authProvider.1", "org.apache.zookeeper.server.auth.X509AuthenticationProvider"))
	lines := throughTLS(t, ens, trusted, stranger)
	if *record {
		must(t, os.WriteFile(recordedTLS, []byte(strings.Join(lines, "\n")+"\n"), 0o644))
	}
	same(t, lines, recordedLines(t, recordedTLS))
}

// Where x509 is enforced, a client without a certificate can ask nothing, and
// one without TLS gets no answer. A member stops although a client is in its
// handshake.
func TestTLSIsEnforced(t *testing.T) {
	trusted, _, own := authorities(t)
	cfg := &tls.Config{Certificates: []tls.Certificate{own}, ClientCAs: trusted.Pool(), ClientAuth: tls.VerifyClientCertIfGiven}
	ens := testutil.Start(t, testutil.WithTLS(cfg), testutil.WithEnforcedAuth("x509"))
	silent, err := ens.Dial("tcp", ens.Servers(), time.Second) // never says a word
	must(t, err)
	defer silent.Close()
	for want, pairs := range map[wire.Code][]tls.Certificate{
		wire.NoNode:               {trusted.Issue("app", time.Hour)},
		wire.SessionClosedRequire: nil,
	} {
		nc, err := ens.ClientNet(want.String()).Dial("tcp", ens.Servers(), time.Second)
		must(t, err)
		nc = tls.Client(nc, &tls.Config{RootCAs: trusted.Pool(), ServerName: "ensemble.example", Certificates: pairs})
		p := newPeer(t, "client", nc, patience, nil)
		p.send(wire.OpExists, look("/none", false))
		if head, _, err := p.next(); err != nil || head.Err != want {
			t.Errorf("answer %v, %v, want %v", head.Err, err, want)
		}
	}
	plain, err := ens.Dial("tcp", ens.Servers(), time.Second)
	must(t, err)
	defer plain.Close()
	if answer := attach(t, plain, &wire.ConnectRequest{Timeout: 10_000, Password: make([]byte, 16)}); answer != nil {
		t.Errorf("without TLS the answer is %+v", answer)
	}
	must(t, ens.Stop(0))
	if _, err := io.ReadAll(silent); err != nil {
		t.Errorf("the silent client is told %v", err)
	}
	must(t, ens.Restart(0))
}
