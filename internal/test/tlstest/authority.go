// Package tlstest makes certificates for tests, and accepts TLS in front of an
// ensemble.
package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"testing"
	"time"
)

// Authority issues certificates.
type Authority struct {
	t           testing.TB
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewAuthority returns an authority that nobody trusts yet.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, key: newKey(t)}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.certificate = sign(t, lasting(template, time.Hour), nil, a.key, a.key)
	return a
}

// Issue returns a certificate of a server or a client for an hour from now, or
// one that has expired if lifetime is negative.
func (a *Authority) Issue(name string, lifetime time.Duration) tls.Certificate {
	a.t.Helper()
	key := newKey(a.t)
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name, Organization: []string{"shop"}}, DNSNames: []string{name}}
	leaf := sign(a.t, lasting(template, lifetime), a.certificate, key, a.key)
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

// Pool returns the set of authorities that has this one alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// Write writes the authority's own certificate to a file.
func (a *Authority) Write(file string) {
	a.t.Helper()
	write(a.t, file, &pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// WritePair writes a certificate and its key to files, which may be the same.
func WritePair(t testing.TB, pair tls.Certificate, cert, key string) {
	t.Helper()
	encoded, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certificate, private := &pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, &pem.Block{Type: "PRIVATE KEY", Bytes: encoded}
	if cert == key {
		write(t, cert, private, certificate)
		return
	}
	write(t, cert, certificate)
	write(t, key, private)
}

func write(t testing.TB, file string, blocks ...*pem.Block) {
	t.Helper()
	var text []byte
	for _, b := range blocks {
		text = append(text, pem.EncodeToMemory(b)...)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// lasting sets how long a certificate is good for, from two hours ago if that
// is over.
func lasting(c *x509.Certificate, lifetime time.Duration) *x509.Certificate {
	c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(lifetime)
	return c
}

// sign signs a certificate for key, by its own key if there is no parent.
func sign(t testing.TB, template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}
