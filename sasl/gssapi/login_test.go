package gssapi_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/sasl/gssapi"
	"github.com/zkrecipes/zkrecipes/sasl/gssapi/internal/kdctest"
)

const realm = kdctest.Realm

type kdc struct{ *kdctest.KDC }

func startKDC(t *testing.T) kdc {
	t.Helper()
	return kdc{kdctest.New(t)}
}

// mechanism returns one for the KDC's realm.
func (k kdc) mechanism(source gssapi.Option, more ...gssapi.Option) framework.SASL {
	return gssapi.New(append([]gssapi.Option{source, gssapi.WithConfig(k.Path("krb5.conf"))}, more...)...)
}

func (k kdc) keytab() gssapi.Option { return gssapi.WithKeytab(k.Path("app.keytab"), "app@"+realm) }

// begin begins an exchange with zookeeper/localhost, as a client with a session
// timeout of 10s does.
func begin(t *testing.T, m framework.SASL) error {
	t.Helper()
	return beginWith(t, m, "localhost:2181")
}

func beginWith(t *testing.T, m framework.SASL, server string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second/3)
	defer cancel()
	_, err := m.Begin(ctx, framework.SASLServer{Name: server, Address: server})
	return err
}

// What a KDC refuses counts as refusal and is named; a KDC that cannot be
// reached does not.
func TestLoginFails(t *testing.T) {
	k := startKDC(t)
	k.Admin("addprinc -pw secret +requires_preauth careful", "addprinc -pw secret moved", "ktadd -norandkey -k "+k.Path("old.keytab")+" moved",
		"cpw -pw other moved")
	k.ExpiredCCache("expired")
	k.Write("empty", "")
	k.Write("cut", "\x05\x04\x00\x0c\x00")
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and answers nothing
	must(t, err)
	t.Cleanup(func() { silent.Close() })
	config, err := os.ReadFile(k.Path("krb5.conf"))
	must(t, err)
	at := func(name, address string) gssapi.Option {
		return gssapi.WithConfig(k.Write(name, strings.ReplaceAll(string(config), k.Address, address)))
	}
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, nobody.Close())
	password := func(of, password string) framework.SASL { return k.mechanism(gssapi.WithPassword(of, password)) }
	for name, tt := range map[string]struct {
		m       framework.SASL
		refused bool
		want    string
	}{
		"right":                     {password("app@"+realm, "secret"), false, ""},
		"right, with preauth":       {password("careful@"+realm, "secret"), false, ""},
		"wrong password":            {password("app@"+realm, "wrong"), true, "password or the key"},
		"wrong, with preauth":       {password("careful@"+realm, "wrong"), true, "password or the key"},
		"old keytab":                {k.mechanism(gssapi.WithKeytab(k.Path("old.keytab"), "moved@"+realm)), true, "password or the key"},
		"unknown user":              {password("nobody@"+realm, "secret"), true, "PRINCIPAL_UNKNOWN"},
		"unknown realm":             {password("app@ELSEWHERE.TEST", "secret"), true, "no KDC for realm \"ELSEWHERE.TEST\""},
		"unknown server":            {k.mechanism(k.keytab(), gssapi.WithServerPrincipal("zookeeper/nowhere")), true, "zookeeper/nowhere: "},
		"server in another realm":   {k.mechanism(k.keytab(), gssapi.WithServerPrincipal("zookeeper/a@ELSEWHERE.TEST")), true, "zookeeper/a@ELSEWHERE.TEST: "},
		"expired ccache":            {k.mechanism(gssapi.WithCCache(k.Path("expired"))), true, "has expired at"},
		"no ccache":                 {k.mechanism(gssapi.WithCCache(k.Path("none"))), true, "run kinit"},
		"an empty ccache":           {k.mechanism(gssapi.WithCCache(k.Path("empty"))), false, "malformed"},
		"a ccache that is cut off":  {k.mechanism(gssapi.WithCCache(k.Path("cut"))), false, "credentials cache"},
		"KEYRING":                   {k.mechanism(gssapi.WithCCache("KEYRING:persistent:0")), true, "KEYRING:persistent:0: of the kinds of caches only FILE"},
		"KCM":                       {k.mechanism(gssapi.WithCCache("KCM:")), true, "only FILE"},
		"no KDC there":              {gssapi.New(k.keytab(), at("nobody.conf", nobody.Addr().String())), false, "zookeeper/localhost: "},
		"a KDC that does not speak": {gssapi.New(k.keytab(), at("silent.conf", silent.Addr().String())), false, "has not answered in time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := begin(t, tt.m)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) || errors.Is(err, framework.ErrAuthFailed) != tt.refused {
				t.Errorf("error %v", err)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the password is in %v", err)
			}
		})
	}
}

// The clocks of the KDC and of this machine are ten minutes apart. gokrb5 says
// that the password is wrong.
func TestSkewedClock(t *testing.T) {
	t.Parallel()
	for _, skew := range []string{"+10m", "-10m"} {
		k := startKDC(t)
		k.Admin("addprinc -pw secret +requires_preauth careful")
		k.Stop()
		k.Skew = skew
		k.Start()
		for _, user := range []string{"app", "careful"} {
			err := begin(t, k.mechanism(gssapi.WithPassword(user+"@"+realm, "secret")))
			if !errors.Is(err, framework.ErrAuthFailed) || !strings.Contains(err.Error(), "clocks of this machine and of the KDC") {
				t.Errorf("%s, %s: error %v", skew, user, err)
			}
		}
	}
}

// While a ticket lives no KDC is needed for that server, and for a new one a
// KDC that comes back is enough.
func TestKDCIsDown(t *testing.T) {
	t.Parallel()
	k := startKDC(t)
	k.Admin("addprinc -randkey zookeeper/other")
	m := k.mechanism(k.keytab())
	k.Stop()
	if err := begin(t, m); err == nil || errors.Is(err, framework.ErrAuthFailed) {
		t.Errorf("at the first connection: %v", err)
	}
	k.Start()
	must(t, begin(t, m))
	k.Stop()
	must(t, begin(t, m))
	if err := beginWith(t, m, "other:2181"); err == nil || errors.Is(err, framework.ErrAuthFailed) {
		t.Errorf("for another server: %v", err)
	}
	k.Start()
	must(t, beginWith(t, m, "other:2181"))
}

// Tickets are replaced at 80 % of their life by Renew. After that the KDC may
// be away past the end of the first ones.
func TestTicketsAreRenewed(t *testing.T) {
	t.Parallel()
	k := startKDC(t)
	k.Admin("modprinc -maxlife 5s app")
	m := k.mechanism(k.keytab())
	renew, here := m.(framework.SASLRenewer).Renew, []framework.SASLServer{{Name: "localhost:2181", Address: "localhost:2181"}}
	if next, err := renew(t.Context(), here); err != nil || time.Until(next) < 3*time.Second {
		t.Errorf("without a ticket the next call is at %v, %v", next, err)
	}
	must(t, begin(t, m))
	began := time.Now()
	next, err := renew(t.Context(), here)
	if life := time.Until(next); err != nil || life > 4*time.Second || life < 2*time.Second {
		t.Fatalf("renewed after %v, %v", life, err)
	}
	time.Sleep(time.Until(next))
	if next, err = renew(t.Context(), here); err != nil || time.Until(next) < 2*time.Second {
		t.Errorf("renewed after %v, %v", time.Until(next), err)
	}
	k.Stop()
	time.Sleep(time.Until(began.Add(5500 * time.Millisecond))) // the first ticket has ended
	must(t, begin(t, m))
	time.Sleep(time.Until(next))
	if _, err = renew(t.Context(), here); err == nil || errors.Is(err, framework.ErrAuthFailed) {
		t.Errorf("without a KDC: %v", err)
	}
	must(t, begin(t, m)) // with the old one
	time.Sleep(1500 * time.Millisecond)
	if err := begin(t, m); err == nil || errors.Is(err, framework.ErrAuthFailed) {
		t.Errorf("after the end of the ticket: %v", err)
	}
	k.Start()
	must(t, begin(t, m))
}

// A credentials cache is read again at each connection: another user's tickets
// replace the first one's, and without the file there is no connection.
func TestCCacheIsReadAgain(t *testing.T) {
	t.Parallel()
	k := startKDC(t)
	m := k.mechanism(gssapi.WithCCache("FILE:" + k.Path("ccache"))).(interface {
		framework.SASL
		Changed() bool
	})
	if err := begin(t, m); !errors.Is(err, framework.ErrAuthFailed) {
		t.Errorf("without the file: %v", err)
	}
	k.Kinit()
	if !m.Changed() {
		t.Error("a new file is no change")
	}
	must(t, begin(t, m))
	if m.Changed() {
		t.Error("the same file is a change")
	}
	must(t, os.Remove(k.Path("ccache")))
	if err := begin(t, m); !errors.Is(err, framework.ErrAuthFailed) {
		t.Errorf("without the file: %v", err)
	}
}

// A file that another process is about to write is no refusal, however much of
// it is there: no call fails for it, and no pause grows.
func TestHalfWrittenFiles(t *testing.T) {
	t.Parallel()
	k := startKDC(t)
	k.Kinit()
	for file, source := range map[string]gssapi.Option{
		"ccache":     gssapi.WithCCache(k.Path("half")),
		"app.keytab": gssapi.WithKeytab(k.Path("half"), "app@"+realm),
	} {
		whole, err := os.ReadFile(k.Path(file))
		must(t, err)
		m := k.mechanism(source)
		failed := 0
		for n := range whole {
			k.Write("half", string(whole[:n]))
			if err := begin(t, m); errors.Is(err, framework.ErrAuthFailed) {
				t.Fatalf("%d of %d bytes of the %s: %v", n, len(whole), file, err)
			} else if err != nil {
				failed++
			}
		}
		if failed < len(whole)/4 {
			t.Errorf("%s: %d of %d parts are an error", file, failed, len(whole))
		}
		k.Write("half", string(whole))
		must(t, begin(t, m))
	}
}

// While a cache is half written, the environment's keytab is not used instead:
// it may be another user's.
func TestHalfWrittenCacheOfTheEnvironment(t *testing.T) {
	k := startKDC(t)
	t.Setenv("KRB5_CONFIG", k.Path("krb5.conf"))
	t.Setenv("KRB5CCNAME", k.Write("ccache", "\x05\x04"))
	t.Setenv("KRB5_CLIENT_KTNAME", k.Path("app.keytab"))
	if err := begin(t, gssapi.New()); err == nil || errors.Is(err, framework.ErrAuthFailed) || !strings.Contains(err.Error(), "half written") {
		t.Errorf("error %v", err)
	}
}

// A keytab that was replaced is a change, and is read at the next login.
func TestKeytabIsReplaced(t *testing.T) {
	t.Parallel()
	k := startKDC(t)
	old, err := os.ReadFile(k.Path("app.keytab"))
	must(t, err)
	k.Admin("cpw -pw other app", "ktadd -norandkey -k "+k.Path("new.keytab")+" app")
	m := k.mechanism(k.keytab()).(interface {
		framework.SASL
		Changed() bool
	})
	if err := begin(t, m); !errors.Is(err, framework.ErrAuthFailed) || m.Changed() {
		t.Errorf("with %d bytes of an old key: %v", len(old), err)
	}
	must(t, os.Rename(k.Path("new.keytab"), k.Path("app.keytab")))
	if !m.Changed() {
		t.Error("a new file is no change")
	}
	must(t, begin(t, m))
}

// Without an option the environment has the credentials: the cache while its
// ticket lives, and then the keytab.
func TestEnvironment(t *testing.T) {
	k := startKDC(t)
	t.Setenv("KRB5_CONFIG", k.Path("krb5.conf"))
	t.Setenv("KRB5CCNAME", "FILE:"+k.Path("ccache"))
	t.Setenv("KRB5_CLIENT_KTNAME", "")
	if err := begin(t, gssapi.New()); !errors.Is(err, framework.ErrAuthFailed) || !strings.Contains(err.Error(), "ccache") {
		t.Errorf("without anything: %v", err)
	}
	k.Kinit("-l", "2s")
	must(t, begin(t, gssapi.New()))
	time.Sleep(2100 * time.Millisecond)
	if err := begin(t, gssapi.New()); !errors.Is(err, framework.ErrAuthFailed) {
		t.Errorf("with a ticket that has ended: %v", err)
	}
	t.Setenv("KRB5_CLIENT_KTNAME", "FILE:"+k.Path("app.keytab"))
	must(t, begin(t, gssapi.New()))
	t.Setenv("KRB5_CLIENT_KTNAME", "")

	// Of the configuration.
	t.Setenv("KRB5CCNAME", "")
	text, err := os.ReadFile(k.Path("krb5.conf"))
	must(t, err)
	name := func(key, file string) {
		k.Write("krb5.conf", strings.Replace(string(text), "[libdefaults]", "[libdefaults]\n  "+key+" = FILE:"+file, 1))
	}
	name("default_ccache_name", k.Path("ccache"))
	m := gssapi.New()
	if err := begin(t, m); !errors.Is(err, framework.ErrAuthFailed) || !strings.Contains(err.Error(), "has expired") {
		t.Errorf("with a ticket that has ended: %v", err)
	}
	k.Kinit()
	must(t, begin(t, m))
	name("default_client_keytab_name", k.Path("app.keytab"))
	must(t, begin(t, gssapi.New()))
}

// A password that is asked for is asked for again at each login.
func TestPasswordFunc(t *testing.T) {
	t.Parallel()
	k := startKDC(t)
	password, failure := "wrong", error(nil)
	m := k.mechanism(gssapi.WithPasswordFunc("app@"+realm, func() (string, error) { return password, failure })).(interface {
		framework.SASL
		Changed() bool
		Check() error
	})
	must(t, m.Check())
	if err := begin(t, m); !errors.Is(err, framework.ErrAuthFailed) || m.Changed() {
		t.Errorf("changed: %t, error %v", m.Changed(), err)
	}
	failure = errors.New("no file")
	if err := begin(t, m); !errors.Is(err, failure) || errors.Is(err, framework.ErrAuthFailed) || m.Changed() {
		t.Errorf("changed: %t, error %v", m.Changed(), err)
	}
	if err := m.Check(); !errors.Is(err, failure) {
		t.Errorf("error %v", err)
	}
	password, failure = "secret", nil
	if !m.Changed() {
		t.Error("another password is no change")
	}
	must(t, begin(t, m))
	if m.Changed() {
		t.Error("the same password is a change")
	}
}

// Many connections at once ask the KDC once, and join the request that is under
// way (with the race detector).
func TestRequestsAreJoined(t *testing.T) {
	t.Parallel()
	k := startKDC(t)
	m := k.mechanism(k.keytab())
	results := make(chan error)
	for range 20 {
		go func() {
			_, err := m.Begin(t.Context(), framework.SASLServer{Name: "localhost:1", Address: "localhost:1"})
			results <- err
		}()
	}
	for range 20 {
		must(t, <-results)
	}
}

// What cannot work is told by framework.New.
func TestBadOptions(t *testing.T) {
	k := startKDC(t)
	config := gssapi.WithConfig(k.Path("krb5.conf"))
	for name, tt := range map[string]struct {
		opts []gssapi.Option
		want string
	}{
		"nil":               {[]gssapi.Option{nil, k.keytab(), config}, "option 0 is nil"},
		"two sources":       {[]gssapi.Option{k.keytab(), gssapi.WithPassword("app@"+realm, "secret"), config}, "more than one"},
		"twice":             {[]gssapi.Option{k.keytab(), config, config}, "twice"},
		"no realm":          {[]gssapi.Option{gssapi.WithPassword("app", "secret"), config}, "no realm"},
		"an empty realm":    {[]gssapi.Option{gssapi.WithPassword("app@", "secret"), config}, "no realm"},
		"no name":           {[]gssapi.Option{gssapi.WithPassword("@"+realm, "secret"), config}, "want name@REALM"},
		"no password":       {[]gssapi.Option{gssapi.WithPassword("app@"+realm, ""), config}, "no password"},
		"no function":       {[]gssapi.Option{gssapi.WithPasswordFunc("app@"+realm, nil), config}, "WithPasswordFunc(nil)"},
		"no keytab":         {[]gssapi.Option{gssapi.WithKeytab(k.Path("none"), "app@"+realm), config}, "no such file"},
		"an empty keytab":   {[]gssapi.Option{gssapi.WithKeytab(k.Write("empty.keytab", ""), "app@"+realm), config}, "half written"},
		"a keytab of holes": {[]gssapi.Option{gssapi.WithKeytab(k.Write("holes.keytab", "\x05\x02\xff\xff\xff\xfc\x00\x00\x00\x00"), "app@"+realm), config}, "has no keys"},
		"no keytab at all":  {[]gssapi.Option{gssapi.WithKeytab(k.Path("krb5.conf"), "app@"+realm), config}, "keytab"},
		"no such principal": {[]gssapi.Option{gssapi.WithKeytab(k.Path("app.keytab"), "other@"+realm), config}, "has no key of other@"},
		"no configuration":  {[]gssapi.Option{k.keytab(), gssapi.WithConfig(k.Path("none"))}, "no such file"},
		"KEYRING":           {[]gssapi.Option{gssapi.WithCCache("KEYRING:persistent:0"), config}, "only FILE"},
		"a bad server":      {[]gssapi.Option{k.keytab(), config, gssapi.WithServerPrincipal("zookeeper/@X")}, "server: "},
	} {
		c, err := framework.New("localhost", framework.WithSASL(gssapi.New(tt.opts...)))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v", name, err)
		}
		if err == nil {
			must(t, c.Close())
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
