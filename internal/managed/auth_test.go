package managed_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Every znode has the client's ACL, parents and contenders included. The
// credentials are presented before anything else, on every connection and in
// every session. Known failures elsewhere: CURATOR-58, -715.
func TestAuthAndACL(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		secret := zk.DigestACL(zk.PermAll, "app", "pw")
		c, network := connect(t, ens, framework.WithAuth("digest", []byte("app:pw")), framework.WithACL(secret...))
		stranger, _ := connect(t, ens)
		must(t, c.MakeContainerPath(t.Context(), "/app/locks"))
		for range 3 {
			made, err := session(t, c).CreateProtected(t.Context(), "/app/locks", "lock-", nil, sequential)
			must(t, err)
			for _, path := range []string{"/app", "/app/locks", made.Path} {
				if _, _, err := c.Get(t.Context(), path); err != nil {
					t.Errorf("%s: %v", path, err)
				}
				if _, _, err := stranger.Get(t.Context(), path); !errors.Is(err, zk.ErrNoAuth) {
					t.Errorf("a stranger reads %s: %v", path, err)
				}
			}
			if err := stranger.MakeContainerPath(t.Context(), "/app/locks/x"); !errors.Is(err, zk.ErrNoAuth) {
				t.Errorf("a stranger makes znodes: %v", err)
			}
			network.Drop()
			time.Sleep(time.Second)
		}
		must(t, ens.ExpireSession(session(t, c).ID()))
		time.Sleep(10 * time.Second)
		if _, _, err := c.Get(t.Context(), "/app"); err != nil {
			t.Errorf("in the next session: %v", err)
		}
	})
}

// If the ensemble rejects the credentials, whatever waits fails with an error
// that says so. It used to wait forever.
func TestRejectedCredentials(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := start(t, ens, framework.WithAuth("nonsense", []byte("x")))
		if err := c.WaitConnected(within(t, time.Hour)); !errors.Is(err, zk.ErrAuthFailed) {
			t.Errorf("WaitConnected: %v", err)
		}
		if _, _, err := c.Get(t.Context(), "/"); !errors.Is(err, zk.ErrAuthFailed) {
			t.Errorf("Get: %v", err)
		}
	})
}

// One member rejected credentials that the others accept, and only for a while.
// The client remembered that forever: at each later disconnect, requests failed
// that should have waited for the reconnect.
func TestRejectionThatPasses(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		defer once(ens, testutil.OpAuth, testutil.Fail(-115))()
		c, network := start(t, ens, framework.WithAuth("digest", []byte("app:pw")))
		if err := c.WaitConnected(within(t, time.Minute)); !errors.Is(err, zk.ErrAuthFailed) {
			t.Errorf("rejected, but %v", err)
		}
		network.Drop() // as the real server does
		time.Sleep(timeout)
		must(t, c.WaitConnected(within(t, time.Minute)))
		network.Cut()
		network.Drop()
		time.Sleep(10 * time.Millisecond)
		time.AfterFunc(time.Second, network.Heal)
		if _, _, err := c.Get(t.Context(), "/"); err != nil {
			t.Errorf("after a disconnect: %v", err)
		}
	})
}

// A connection breaks while credentials are presented again. If the wire client
// sees the failed write, it hangs for good. A known failure elsewhere:
// go-zookeeper #163.
func TestBreakWhileAuthenticating(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens, framework.WithAuth("digest", []byte("app:pw")))
		s := session(t, c)
		for _, action := range []testutil.Action{testutil.DropBefore(), testutil.DropAfter(), testutil.Delay(time.Second)} {
			stop := once(ens, testutil.OpAuth, action)
			network.Drop()
			time.Sleep(4 * time.Second)
			stop()
			if _, _, err := c.Get(t.Context(), "/"); err != nil || s.Err() != nil {
				t.Fatalf("after %+v: %v, session %v", action, err, s.Err())
			}
		}
	})
}

// TLS over the connections of the ensemble. The dialer is the server's end of
// it.
func TestTLS(t *testing.T) {
	certificate, pool := selfSigned(t, "member0")
	synctest.Test(t, func(t *testing.T) {
		ens := testutil.Start(t, testutil.InMemory())
		dial := func(network, address string, limit time.Duration) (net.Conn, error) {
			inner, err := ens.Dial(network, address, limit)
			if err != nil {
				return nil, err
			}
			client, server := net.Pipe()
			secured := tls.Server(server, &tls.Config{Certificates: []tls.Certificate{certificate}})
			for _, way := range [][2]net.Conn{{inner, secured}, {secured, inner}} {
				go func() {
					_, _ = io.Copy(way[0], way[1])
					way[0].Close()
					way[1].Close()
				}()
			}
			return client, nil
		}
		c, err := framework.New(ens.Servers(), framework.WithDialer(dial), framework.WithTLS(&tls.Config{RootCAs: pool}))
		must(t, err)
		if _, _, err := c.Get(within(t, time.Minute), "/"); err != nil {
			t.Errorf("over TLS: %v", err)
		}
		must(t, c.Close())

		distrustful, err := framework.New(ens.Servers(), framework.WithDialer(dial), framework.WithTLS(&tls.Config{}))
		must(t, err)
		err = distrustful.WaitConnected(within(t, 5*time.Second))
		var unknown x509.UnknownAuthorityError
		if !errors.As(err, &unknown) {
			t.Errorf("an unknown authority must be what WaitConnected says: %v", err)
		}
		must(t, distrustful.Close())
	})
}

func selfSigned(t *testing.T, name string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	parsed, err := x509.ParseCertificate(der)
	must(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// The options used to keep the caller's slices. If the caller changed them
// later, the client created and presented the changed values.
func TestOptionsKeepNothingOfTheCaller(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		acl := zk.DigestACL(zk.PermAll, "user", "password")
		want := acl[0].ID
		credentials := []byte("user:password")
		withACL, withAuth := framework.WithACL(acl...), framework.WithAuth("digest", credentials)
		acl[0] = zk.ACL{Perms: 0, Scheme: "world", ID: "anyone"}
		copy(credentials, "nobody:knows")
		c, _ := connect(t, ens, withACL, withAuth)
		_, err := c.Create(t.Context(), "/a", []byte("data"), 0)
		must(t, err)
		got, _, err := c.GetACL(t.Context(), "/a")
		must(t, err)
		if len(got) != 1 || got[0].ID != want || got[0].Perms != zk.PermAll {
			t.Errorf("created with %v", got)
		}
		if _, _, err := c.Get(t.Context(), "/a"); err != nil {
			t.Errorf("the credentials are not those that were given: %v", err)
		}
	})
}

// The first connection of a session is not up before the credentials are
// accepted. If a server answers the connect and then nothing, the next
// connection has the same session. It used to be given up after a session
// timeout.
func TestAServerThatStopsAtTheCredentialsIsLeft(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		first := int64(0) // the session on whose connection nothing more is answered
		defer ens.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpAuth && first == 0 {
				first = r.Session
				return testutil.HoldReply(nil)
			}
			return testutil.Pass()
		})()
		var left []framework.AbandonReason
		began := time.Now()
		c, _ := connect(t, ens, framework.WithAuth("digest", []byte("app:pw")),
			framework.WithObserver(framework.Observer{Abandoned: func(a framework.Abandonment) { left = append(left, a.Reason) }}))
		if took, want := time.Since(began), timeout*2/3; (took - want).Abs() > timeout/60 {
			t.Errorf("connected after %v, want %v", took, want)
		}
		if synctest.Wait(); !slices.Equal(left, []framework.AbandonReason{framework.AbandonedSilent}) {
			t.Errorf("observers were told of %q", left)
		}
		if id := session(t, c).ID(); id != first {
			t.Errorf("session %x, want that of the first connection, %x", id, first)
		}
	})
}
