package doctor_test

import (
	"crypto/tls"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/doctor"
	"github.com/zkrecipes/zkrecipes/internal/test/tlstest"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestCertificates: over TLS the same promises hold. Certificates that end soon
// are a note, and what TLS refuses is said.
func TestCertificates(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	const year = 365 * 24 * time.Hour
	e := testutil.Start(t)
	for _, test := range []struct {
		name          string
		server, ours  time.Duration // for which the certificates are good
		serverName    string
		want          []string
		seen          string
		noCertificate bool
	}{
		{name: "good", server: year, ours: year, want: nil, seen: "ours ends in 365 days, the server's ends in 365 days"},
		{name: "ours ends", server: year, ours: time.Hour, want: []string{"certificate note"}, seen: "ours ends in 0 days"},
		{name: "the server's ends", server: 24 * time.Hour, ours: year, want: []string{"certificate note"}, seen: "the server's ends in 1 days"},
		{name: "expired", server: -time.Hour, ours: year, want: []string{"session FAILS"}, seen: "expired"},
		{name: "another name", server: year, ours: year, serverName: "other.example", want: []string{"session FAILS"}, seen: "other.example"},
		{name: "no certificate", server: year, noCertificate: true, want: []string{"session FAILS"}, seen: "certificate"},
	} {
		t.Run(test.name, func(t *testing.T) {
			front := tlstest.NewFront(t, e.Servers(), &tls.Config{
				Certificates: []tls.Certificate{authority.Issue("ensemble.example", test.server)},
				ClientCAs:    authority.Pool(), ClientAuth: tls.RequireAndVerifyClientCert,
			})
			config := &tls.Config{RootCAs: authority.Pool(), ServerName: "ensemble.example"}
			if test.serverName != "" {
				config.ServerName = test.serverName
			}
			if !test.noCertificate {
				config.Certificates = []tls.Certificate{authority.Issue("app", test.ours)}
			}
			x := examine(t, front.Address, false, framework.WithTLS(config), framework.WithSessionTimeout(30*time.Second))
			if bad := x.unwell(); !slices.Equal(bad, test.want) || !strings.Contains(x.String(), test.seen) {
				t.Errorf("found %q, want %q and %q\n%s", bad, test.want, test.seen, x)
			}
			clean(t, e, x)
		})
	}
	front := tlstest.NewFront(t, e.Servers(), &tls.Config{Certificates: []tls.Certificate{authority.Issue("ensemble.example", year)}})
	x := examine(t, front.Address, false)
	if len(x.answers) != 1 || x.answers[0].Verdict != doctor.Fails || !strings.Contains(x.answers[0].Do, "expects TLS") || x.Reached != 0 {
		t.Errorf("without TLS: %s", x)
	}
}
