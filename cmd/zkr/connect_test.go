//go:build unix

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestAuth: credentials from the flag or the environment give access to
// protected znodes.
func TestAuth(t *testing.T) {
	e := testutil.Start(t)
	if _, err := dial(t, e).Create(t.Context(), "/closed", nil, 0, zk.DigestACL(zk.PermAll, "user", "pass:word")...); err != nil {
		t.Fatal(err)
	}
	lock := func(flags ...string) *process {
		return start(t, append(append([]string{"lock", "--servers", e.Servers()}, flags...), "/closed", "--", "true")...)
	}
	if p := lock(); p.wait(t) != exitFailed || !strings.Contains(p.text(), "not authenticated") {
		t.Errorf("without credentials: exit code %d; it printed %q", p.code, p.text())
	}
	if p := lock("--auth", "digest:user:pass:word"); p.wait(t) != 0 {
		t.Errorf("with --auth: exit code %d", p.code)
	}
	t.Setenv("ZKR_AUTH", "digest:user:pass:word")
	if p := lock(); p.wait(t) != 0 {
		t.Errorf("with ZKR_AUTH: exit code %d", p.code)
	}
	if p := lock("--auth", "digest:nobody:wrong"); p.wait(t) != exitFailed {
		t.Errorf("the flag counts, not the environment: exit code %d", p.code)
	}
}

// TestTLS: the client shows its certificate and checks the servers'.
func TestTLS(t *testing.T) {
	parallel(t)
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	selfSigned(t, cert, key, "ensemble.example")
	e := testutil.Start(t)
	front := terminateTLS(t, cert, key, e)
	for _, test := range []struct {
		name  string
		flags []string
		want  int
		says  string
	}{
		{"all as it should be", []string{"--tls-ca", cert, "--tls-cert", cert, "--tls-key", key, "--tls-server-name", "ensemble.example"}, 0, ""},
		{"another name", []string{"--tls-ca", cert, "--tls-cert", cert, "--tls-key", key}, exitNoEnsemble, "certificate"},
		{"not trusted", []string{"--tls", "--tls-cert", cert, "--tls-key", key, "--tls-server-name", "ensemble.example"}, exitNoEnsemble, "certificate"},
		{"without a certificate of our own", []string{"--tls-ca", cert, "--tls-server-name", "ensemble.example"}, exitNoEnsemble, ""},
		{"without TLS", nil, exitNoEnsemble, ""},
		{"no such file", []string{"--tls-ca", cert + ".missing"}, exitUsage, "--tls-ca"},
		{"a file without certificates", []string{"--tls-ca", key}, exitUsage, "no certificate"},
		{"a key that is none", []string{"--tls-cert", cert, "--tls-key", cert}, exitUsage, "--tls-key"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			patient := "500ms"
			switch {
			case test.want == 0:
				patient = "20s"
			case test.says != "": // the error must be reported within the time limit, on a slow machine too
				patient = "5s"
			}
			args := append([]string{"lock", "--servers", front, "--connect-timeout", patient}, test.flags...)
			p := start(t, append(args, "/tls", "--", "true")...)
			if code := p.wait(t); code != test.want || !strings.Contains(p.text(), test.says) {
				t.Errorf("exit code %d, want %d; it printed %q, want %q in it", code, test.want, p.text(), test.says)
			}
		})
	}
}

// terminateTLS accepts TLS from clients that have the certificate and forwards
// to the ensemble without TLS. It returns its address.
func terminateTLS(t *testing.T, cert, key string, e *testutil.Embedded) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AddCert(pair.Leaf)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() { // ends with the listener
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the connection
				defer near.Close()
				if far, err := net.Dial("tcp", e.Servers()); err == nil {
					go func() {
						io.Copy(far, near)
						far.Close()
					}()
					io.Copy(near, far)
				}
			}()
		}
	}()
	return l.Addr().String()
}

func selfSigned(t *testing.T, cert, key, name string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: certificate}, key: {Type: "PRIVATE KEY", Bytes: encoded}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
