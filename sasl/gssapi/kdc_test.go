package gssapi_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/child"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

const realm = "EXAMPLE.TEST"

// kdc is a real KDC of MIT Kerberos with its own realm. It needs no root.
type kdc struct {
	t       *testing.T
	dir     string
	address string
	skew    string // for faketime
	process *exec.Cmd
}

// startKDC starts a KDC with the principals app (with the password "secret",
// and a key in app.keytab) and zookeeper/localhost. It skips the test where
// Debian's packages are missing, unless ZKR_REAL=1.
func startKDC(t *testing.T) *kdc {
	t.Helper()
	for _, program := range []string{"krb5kdc", "kdb5_util", "kadmin.local", "kinit", "faketime"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("ZKR_REAL") == "1" || os.Getenv("CI") != "" {
				t.Fatal(err)
			}
			t.Skipf("needs Debian's packages krb5-kdc, krb5-admin-server, krb5-user and faketime: %v", err)
		}
	}
	k := &kdc{t: t, dir: t.TempDir()}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	k.address = l.Addr().String()
	must(t, l.Close())
	k.write("krb5.conf", fmt.Sprintf(`[libdefaults]
  default_realm = %s
  rdns = false
  dns_canonicalize_hostname = false
  dns_lookup_kdc = false
  udp_preference_limit = 1
[realms]
  %[1]s = {
    kdc = %s
  }
`, realm, k.address))
	k.write("kdc.conf", fmt.Sprintf(`[kdcdefaults]
  kdc_listen = ""
  kdc_tcp_listen = %s
[realms]
  %s = {
    database_name = %[3]s/principal
    key_stash_file = %[3]s/stash
    acl_file = %[3]s/acl
    max_life = 10h
  }
`, k.address, realm, k.dir))
	k.run("kdb5_util", "create", "-s", "-r", realm, "-P", "master")
	k.admin("addprinc -pw secret app", "ktadd -norandkey -k "+k.path("app.keytab")+" app",
		"addprinc -randkey zookeeper/localhost", "ktadd -k "+k.path("zookeeper.keytab")+" zookeeper/localhost")
	k.start()
	t.Cleanup(k.stop)
	return k
}

func (k *kdc) path(name string) string { return filepath.Join(k.dir, name) }

func (k *kdc) write(name, text string) string {
	k.t.Helper()
	must(k.t, os.WriteFile(k.path(name), []byte(text), 0o600))
	return k.path(name)
}

func (k *kdc) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "KRB5_CONFIG="+k.path("krb5.conf"), "KRB5_KDC_PROFILE="+k.path("kdc.conf"), "KRB5CCNAME="+k.path("ccache"))
	if k.skew != "" { // without the program faketime, which would be another process to end
		cmd.Env = append(cmd.Env, "LD_PRELOAD="+faketime(k.t), "FAKETIME="+k.skew)
	}
	return cmd
}

// faketime returns its library.
func faketime(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	if err != nil || len(found) == 0 {
		t.Fatalf("no libfaketime: %v", err)
	}
	return found[0]
}

func (k *kdc) run(program string, args ...string) {
	k.t.Helper()
	if text, err := k.command(program, args...).CombinedOutput(); err != nil {
		k.t.Fatalf("%s %q: %v\n%s", program, args, err, text)
	}
}

// admin executes queries of kadmin.local.
func (k *kdc) admin(queries ...string) {
	k.t.Helper()
	for _, query := range queries {
		k.run("kadmin.local", "-r", realm, "-q", query)
	}
}

// kinit fills the file ccache.
func (k *kdc) kinit(args ...string) {
	k.t.Helper()
	k.run("kinit", append(args, "-k", "-t", k.path("app.keytab"), "app")...)
}

func (k *kdc) start() {
	k.t.Helper()
	k.process = k.command("krb5kdc", "-n")
	log, err := os.Create(k.path("log"))
	must(k.t, err)
	defer log.Close()
	k.process.Stderr = log
	child.DieWithParent(k.process)
	must(k.t, k.process.Start())
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial("tcp", k.address)
		if err == nil {
			must(k.t, conn.Close())
			return
		}
		if time.Since(began) > time.Minute {
			k.stop()
			said, _ := os.ReadFile(k.path("log"))
			k.t.Fatalf("the KDC does not answer: %v\n%s", err, said)
		}
	}
}

func (k *kdc) stop() {
	if k.process == nil {
		return
	}
	must(k.t, k.process.Process.Kill())
	_ = k.process.Wait() // it was killed
	k.process = nil
}

// ensemble starts a real ensemble that requires SASL, with more settings.
func (k *kdc) ensemble(opts ...apache.Option) *apache.Ensemble {
	jaas := k.write("jaas.conf", fmt.Sprintf(`Server {
  com.sun.security.auth.module.Krb5LoginModule required
  useKeyTab=true keyTab=%q storeKey=true useTicketCache=false principal="zookeeper/localhost@%s";
};
`, k.path("zookeeper.keytab"), realm))
	return apache.Start(k.t, 1, append([]apache.Option{
		apache.WithProperty("java.security.auth.login.config", jaas),
		apache.WithProperty("java.security.krb5.conf", k.path("krb5.conf")),
		apache.WithProperty("zookeeper.authProvider.1", "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"),
		apache.WithProperty("zookeeper.sessionRequireClientSASLAuth", "true"),
	}, opts...)...)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
