package gssapi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"

	"github.com/zkrecipes/zkrecipes/framework"
)

// write writes files below a directory of the test. DIR in a text is its path.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "DIR", dir)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Files that include others, as distributions ship them, and several files.
func TestConfig(t *testing.T) {
	dir := write(t, map[string]string{
		"krb5.conf": `# comment
includedir DIR/conf.d/
include DIR/more
[logging]
  default = FILE:/var/log/krb5.log
[libdefaults]
  default_realm = LATER.TEST
  dns_canonicalize_hostname = fallback
  zookeeper = {
  rdns = true
 }
 rdns = false
`,
		"conf.d/first":        "[libdefaults]\n default_realm = FIRST.TEST\n[realms]\nFIRST.TEST = {\n  kdc = first.test\n}\n",
		"conf.d/second.conf":  "[realms]\nSECOND.TEST = {\n  kdc = second.test:89\n}\n[domain_realm]\n.second.test = SECOND.TEST\n",
		"conf.d/.hidden":      "not for us",
		"conf.d/third.rpmnew": "not for us",
		"more":                "include DIR/deeper\n",
		"deeper":              "[realms]\nTHIRD.TEST = {\n  kdc = third.test\n}\n",
		"also.conf":           "[realms]\nFOURTH.TEST = {\n  kdc = fourth.test\n}\n",
		"loop":                "include DIR/loop\n",
		"lost":                "include DIR/none\n",
		"bad":                 "[libdefaults]\n rdns = perhaps\n",
	})
	at := func(name string) string { return filepath.Join(dir, name) }
	cfg, err := loadConfig([]string{at("none"), at("krb5.conf"), at("also.conf")})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.LibDefaults.DefaultRealm != "FIRST.TEST" || cfg.LibDefaults.RDNS || cfg.LibDefaults.DNSCanonicalizeHostname || cfg.ResolveRealm("zk.second.test") != "SECOND.TEST" {
		t.Errorf("%+v", cfg.LibDefaults)
	}
	for _, realm := range []string{"FIRST.TEST", "SECOND.TEST", "THIRD.TEST", "FOURTH.TEST"} {
		if err := hasKDC(cfg, realm); err != nil {
			t.Error(err)
		}
	}
	if err := hasKDC(cfg, "FIFTH.TEST"); !errors.Is(err, framework.ErrAuthFailed) {
		t.Errorf("error %v", err)
	}
	for name, want := range map[string]string{"loop": "levels deep", "lost": "include", "bad": "rdns", "none": "no such file"} {
		if _, err := loadConfig([]string{at(name)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// Names of files in the environment come before those in the configuration.
func TestNamesOfFiles(t *testing.T) {
	dir := write(t, map[string]string{
		"krb5.conf": "[libdefaults]\n default_ccache_name = FILE:DIR/%{uid}-%{euid}\n default_client_keytab_name = FILE:DIR/%{null}keytab\n",
		"keytab":    "",
		"missing":   "[libdefaults]\n default_client_keytab_name = FILE:DIR/none\n",
		"unknown":   "[libdefaults]\n default_ccache_name = FILE:%{other}/cache\n",
		"bad":       "[libdefaults]\n default_client_keytab_name = %{other}/keytab\n",
	})
	uid := strconv.Itoa(os.Getuid())
	for _, tt := range []struct{ cacheVariable, keytabVariable, file, cache, keytab, err string }{
		{"", "", "krb5.conf", "FILE:" + dir + "/" + uid + "-" + uid, dir + "/keytab", ""},
		{"FILE:/a", "FILE:/b", "krb5.conf", "FILE:/a", "/b", ""},
		{"", "", "missing", "/tmp/krb5cc_" + uid, "", ""},
		{"/a", "", "missing", "/a", "", ""},
		{"", "/b", "unknown", "", "", "cannot expand %{other}"},
		{"/a", "/b", "unknown", "/a", "/b", ""},
		{"/a", "", "bad", "", "", "cannot expand %{other}"},
		{"", "", "none", "", "", "no such file"},
	} {
		t.Setenv("KRB5CCNAME", tt.cacheVariable)
		t.Setenv("KRB5_CLIENT_KTNAME", tt.keytabVariable)
		found, err := findNamed([]string{filepath.Join(dir, tt.file)})
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%+v: error %v", tt, err)
			}
			continue
		}
		keytab, _ := found.keytab.(keytabSource)
		if err != nil || found.cache.(ccacheSource).file != tt.cache || keytab.file != tt.keytab || (found.keytab == nil) != (tt.keytab == "") {
			t.Errorf("%+v: %+v, %v", tt, found, err)
		}
	}
}

// dns is a resolver.
type dns struct {
	addrs, cnames map[string]string
	hosts         map[string][]string
}

var errNoName = errors.New("no such host")

func (d dns) LookupAddr(_ context.Context, addr string) ([]string, error) {
	if name := d.addrs[addr]; name != "" {
		return []string{name}, nil
	}
	return nil, errNoName
}

func (d dns) LookupCNAME(_ context.Context, host string) (string, error) {
	if name := d.cnames[host]; name != "" {
		return name, nil
	}
	return "", errNoName
}

func (d dns) LookupHost(_ context.Context, host string) ([]string, error) {
	if found := d.hosts[host]; found != nil {
		return found, nil
	}
	return nil, errNoName
}

// The name in a server's principal, by the two settings.
func TestCanonicalName(t *testing.T) {
	names := dns{
		addrs:  map[string]string{"10.0.0.1": "Zk1.dc.example.", "10.0.0.2": "zk2.dc.example."},
		cnames: map[string]string{"zk": "zk1.alias.example."},
		hosts:  map[string][]string{"zk": {"10.0.0.1"}, "bare": {"10.0.0.9"}},
	}
	for _, tt := range []struct {
		canonicalize, rdns bool
		name, address      string
		want               string
	}{
		{true, true, "zk:2181", "10.0.0.2:2181", "zk2.dc.example"}, // the address that is dialed
		{true, true, "zk:2181", "zk:2181", "zk1.dc.example"},
		{true, true, "10.0.0.1:2181", "10.0.0.1:2181", "zk1.dc.example"},
		{true, true, "bare:2181", "bare:2181", "bare"},
		{true, true, "Gone:2181", "Gone:2181", "gone"},
		{true, true, "[::1]:2181", "[::1]:2181", "::1"},
		{true, false, "zk:2181", "10.0.0.2:2181", "zk1.alias.example"},
		{true, false, "bare:2181", "10.0.0.9:2181", "bare"},
		{true, false, "10.0.0.1:2181", "10.0.0.1:2181", "10.0.0.1"},
		{false, true, "Zk:2181", "10.0.0.2:2181", "zk"},
	} {
		cfg := config.New()
		cfg.LibDefaults.DNSCanonicalizeHostname, cfg.LibDefaults.RDNS = tt.canonicalize, tt.rdns
		if got := canonical(t.Context(), cfg, names, framework.SASLServer{Name: tt.name, Address: tt.address}); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}

// The server's principal has the realm that the configuration has for its host.
func TestPrincipalOfAServer(t *testing.T) {
	dir := write(t, map[string]string{"krb5.conf": "[libdefaults]\n dns_canonicalize_hostname = false\n[domain_realm]\n.dc.example = DC.EXAMPLE\n"})
	for server, want := range map[string]string{
		"": "zookeeper/zk.dc.example@DC.EXAMPLE", "zk/zk.dc.example": "zk/zk.dc.example@DC.EXAMPLE", "zookeeper/a@B": "zookeeper/a@B", "zk/other": "zk/other",
	} {
		m := &mechanism{configFiles: []string{filepath.Join(dir, "krb5.conf")}, serverPrincipal: server}
		got, err := m.principalOf(t.Context(), framework.SASLServer{Name: "zk.dc.example:2181", Address: "10.0.0.1:2181"})
		if err != nil || got.String() != want {
			t.Errorf("%q: %v, %v", server, got, err)
		}
	}
}

// someone is a source that needs no file.
type someone struct{ source }

func (someone) look() (principal, error) { return principal{"app", "R"}, nil }

// fetching returns a mechanism whose KDC takes 5s for each request.
func fetching(fail *atomic.Bool, asked *atomic.Int32) *mechanism {
	m := &mechanism{sources: []source{someone{}}, kept: map[principal]*ticket{}}
	m.fetch = func(server principal) (*ticket, error) {
		asked.Add(1)
		time.Sleep(5 * time.Second)
		if fail.Load() {
			return nil, errors.New("no KDC")
		}
		now := time.Now()
		return &ticket{client: principal{"app", "R"}, server: server, began: now, ends: now.Add(100 * time.Second), ticket: messages.Ticket{}, key: types.EncryptionKey{}}, nil
	}
	return m
}

// A KDC that is slower than an attempt to connect: later attempts join the
// request that is under way, or find the ticket that it has brought.
func TestASlowKDC(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fail atomic.Bool
		var asked atomic.Int32
		m := fetching(&fail, &asked)
		server := principal{"zookeeper/a", "R"}
		ask := func(limit time.Duration) (*ticket, error) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			return m.ticketFor(ctx, server)
		}
		if _, err := ask(3 * time.Second); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, framework.ErrAuthFailed) {
			t.Errorf("error %v", err)
		}
		if _, err := ask(3 * time.Second); err != nil || asked.Load() != 1 { // after 5s
			t.Errorf("error %v, asked %d times", err, asked.Load())
		}
		began := time.Now()
		if _, err := ask(3 * time.Second); err != nil || time.Since(began) > 0 || asked.Load() != 1 {
			t.Errorf("error %v, asked %d times", err, asked.Load())
		}
		// Past 80 % of its life another one is asked for, and the old one does.
		fail.Store(true)
		time.Sleep(81 * time.Second)
		began = time.Now()
		if _, err := ask(3 * time.Second); err != nil || time.Since(began) != 1500*time.Millisecond {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
		time.Sleep(20 * time.Second)
		if _, err := ask(10 * time.Second); err == nil {
			t.Error("a ticket that has ended is used")
		}
	})
}

// At most one request is under way, whatever the number of servers.
func TestOneRequestAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fail atomic.Bool
		var asked atomic.Int32
		m := fetching(&fail, &asked)
		began := time.Now()
		done := make(chan error)
		for i := range 9 {
			go func() {
				_, err := m.ticketFor(t.Context(), principal{fmt.Sprint("zookeeper/", i%3), "R"})
				done <- err
			}()
		}
		for range 9 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); asked.Load() != 3 || took != 15*time.Second {
			t.Errorf("%d requests in %v", asked.Load(), took)
		}
	})
}

// A fetch that panics, or ends its goroutine, is an error, and the next one is
// made. So is a password function, which a fetch calls.
func TestAFetchThatDoesNotReturn(t *testing.T) {
	config := filepath.Join(write(t, map[string]string{"krb5.conf": "[libdefaults]\ndefault_realm = R\n"}), "krb5.conf")
	for want, end := range map[string]func(){"panic: bad": func() { panic("bad") }, "ended its goroutine": runtime.Goexit} {
		fetches := &mechanism{sources: []source{someone{}}, kept: map[principal]*ticket{}}
		fetches.fetch = func(principal) (*ticket, error) { end(); return nil, nil }
		asks := New(WithConfig(config), WithPasswordFunc("app@R", func() (string, error) { end(); return "", nil })).(*mechanism)
		for range 2 {
			for _, m := range []*mechanism{fetches, asks} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if _, err := m.ticketFor(ctx, principal{"a", "R"}); err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, framework.ErrAuthFailed) {
					t.Errorf("error %v, want %q", err, want)
				}
			}
		}
	}
}

// A ticket that cannot be renewed keeps no other from it, in whatever order
// they come, and is tried again. That of a server that has left the list is
// left to end, and then forgotten.
func TestRenewOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := map[principal]int{}
		m := New().(*mechanism)
		m.sources, m.serverPrincipal = []source{someone{}}, ""
		var refuse principal
		m.fetch = func(server principal) (*ticket, error) {
			asked[server]++
			if server == refuse {
				return nil, refused("unknown")
			}
			return &ticket{client: principal{"app", "R"}, server: server, began: time.Now(), ends: time.Now().Add(100 * time.Second)}, nil
		}
		var servers []framework.SASLServer
		var of []principal
		for i := range 8 {
			s := framework.SASLServer{Name: fmt.Sprint("zk", i), Address: fmt.Sprint("10.0.0.", i)}
			p := principal{"zookeeper/" + s.Name, "R"}
			servers, of = append(servers, s), append(of, p)
			if _, err := m.newTicket(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			m.asked[s] = p
		}
		refuse = of[3]
		time.Sleep(90 * time.Second)
		for round := range 3 {
			if _, err := m.Renew(t.Context(), servers); !errors.Is(err, framework.ErrAuthFailed) || !strings.Contains(err.Error(), "zookeeper/zk3@R") {
				t.Errorf("error %v", err)
			}
			for i, p := range of {
				if want := map[bool]int{true: 2 + round, false: 2}[i == 3]; asked[p] != want {
					t.Errorf("%s: asked %d times, want %d", p, asked[p], want)
				}
			}
		}
		servers = servers[4:]
		time.Sleep(90 * time.Second)
		if _, err := m.Renew(t.Context(), servers); err != nil || len(m.kept) != 7 {
			t.Errorf("error %v, %d tickets", err, len(m.kept))
		}
		time.Sleep(20 * time.Second)
		if _, err := m.Renew(t.Context(), servers); err != nil || len(m.kept) != 4 || len(m.asked) != 4 {
			t.Errorf("error %v, %d tickets, of %d servers", err, len(m.kept), len(m.asked))
		}
		for i, p := range of[:3] {
			if asked[p] != 2 {
				t.Errorf("%s has left: asked %d times", of[i], asked[p])
			}
		}
	})
}

// What is not a principal.
func TestParsePrincipal(t *testing.T) {
	for text, want := range map[string]string{
		"app@R": "app@R", "zookeeper/a@R": "zookeeper/a@R", "app": "app",
		"": "", "@R": "", "a@": "", "a/": "", "/a": "", "a b@R": "", "a\nb": "", "a//b": "",
	} {
		got, err := parsePrincipal(text)
		if (err == nil) != (want != "") || err == nil && got.String() != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// Whatever a configuration has, reading it ends, with an error or without.
func FuzzConfig(f *testing.F) {
	f.Add("[libdefaults]\n default_realm = A\n rdns = no\n[realms]\nA = {\n kdc = a:88\n}\n[domain_realm]\n.a = A\n")
	f.Add("[libdefaults]\n A = {\n kdc = b\n }\n default_tkt_enctypes = aes256-cts\n clockskew = 5m\n[realms]\nA = {\nkdc = b*\nkdc = c\n")
	f.Add("[realms]\n}\n = {\n}\n[domain_realm]\n=\n[libdefaults]\nticket_lifetime = 1d\nnoaddresses = x\n")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		file := filepath.Join(dir, "krb5.conf")
		if strings.Contains(text, "include") {
			return // of other files
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if cfg, err := loadConfig([]string{file}); err == nil {
			_ = hasKDC(cfg, "A")
			_ = cfg.ResolveRealm("zk.a")
		}
	})
}
