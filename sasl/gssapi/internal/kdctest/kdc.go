// Package kdctest runs a real KDC of MIT Kerberos, and real ZooKeeper members
// that know it.
package kdctest

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

// Realm is the realm of each KDC.
const Realm = "EXAMPLE.TEST"

// KDC is one with its own database. It needs no root.
type KDC struct {
	t       *testing.T
	dir     string
	Address string
	Skew    string // for faketime, from the next Start on
	process *exec.Cmd
}

// New starts a KDC with the principals app (with the password "secret",
// and a key in app.keytab) and zookeeper/localhost. It skips the test where
// Debian's packages are missing, unless ZKR_REAL=1.
func New(t *testing.T) *KDC {
	t.Helper()
	for _, program := range []string{"krb5kdc", "kdb5_util", "kadmin.local", "kinit", "faketime"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("ZKR_REAL") == "1" || os.Getenv("CI") != "" {
				t.Fatal(err)
			}
			t.Skipf("needs Debian's packages krb5-kdc, krb5-admin-server, krb5-user and faketime: %v", err)
		}
	}
	k := &KDC{t: t, dir: t.TempDir()}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	k.Address = l.Addr().String()
	must(t, l.Close())
	k.Write("krb5.conf", fmt.Sprintf(`[libdefaults]
  default_realm = %s
  rdns = false
  dns_canonicalize_hostname = false
  dns_lookup_kdc = false
  udp_preference_limit = 1
[realms]
  %[1]s = {
    kdc = %s
  }
`, Realm, k.Address))
	k.Write("kdc.conf", fmt.Sprintf(`[kdcdefaults]
  kdc_listen = ""
  kdc_tcp_listen = %s
[realms]
  %s = {
    database_name = %[3]s/principal
    key_stash_file = %[3]s/stash
    acl_file = %[3]s/acl
    max_life = 10h
  }
`, k.Address, Realm, k.dir))
	k.Run("kdb5_util", "create", "-s", "-r", Realm, "-P", "master")
	k.Admin("addprinc -pw secret app", "ktadd -norandkey -k "+k.Path("app.keytab")+" app",
		"addprinc -randkey zookeeper/localhost", "ktadd -k "+k.Path("zookeeper.keytab")+" zookeeper/localhost")
	k.Start()
	t.Cleanup(k.Stop)
	return k
}

// Path returns that of a file in the KDC's directory.
func (k *KDC) Path(name string) string { return filepath.Join(k.dir, name) }

// Write writes such a file, and returns its path.
func (k *KDC) Write(name, text string) string {
	k.t.Helper()
	must(k.t, os.WriteFile(k.Path(name), []byte(text), 0o600))
	return k.Path(name)
}

func (k *KDC) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "KRB5_CONFIG="+k.Path("krb5.conf"), "KRB5_KDC_PROFILE="+k.Path("kdc.conf"), "KRB5CCNAME="+k.Path("ccache"))
	if k.Skew != "" { // without the program faketime, which would be another process to end
		cmd.Env = append(cmd.Env, "LD_PRELOAD="+Faketime(k.t), "FAKETIME="+k.Skew)
	}
	return cmd
}

// Faketime returns the library of faketime.
func Faketime(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	if err != nil || len(found) == 0 {
		t.Fatalf("no libfaketime: %v", err)
	}
	return found[0]
}

// Run runs a program that knows the KDC.
func (k *KDC) Run(program string, args ...string) {
	k.t.Helper()
	if text, err := k.command(program, args...).CombinedOutput(); err != nil {
		k.t.Fatalf("%s %q: %v\n%s", program, args, err, text)
	}
}

// Admin executes queries of kadmin.local.
func (k *KDC) Admin(queries ...string) {
	k.t.Helper()
	for _, query := range queries {
		k.Run("kadmin.local", "-r", Realm, "-q", query)
	}
}

// Kinit fills the file ccache.
func (k *KDC) Kinit(args ...string) {
	k.t.Helper()
	k.Run("kinit", append(args, "-k", "-t", k.Path("app.keytab"), "app")...)
}

// ExpiredCCache writes a credential cache whose tickets have expired when it
// returns: the least lifetime is a second.
func (k *KDC) ExpiredCCache(name string) {
	k.t.Helper()
	k.Kinit("-l", "1s", "-c", k.Path(name))
	time.Sleep(1100 * time.Millisecond)
}

// Start starts it again.
func (k *KDC) Start() {
	k.t.Helper()
	k.process = k.command("krb5kdc", "-n")
	log, err := os.Create(k.Path("log"))
	must(k.t, err)
	defer log.Close()
	k.process.Stderr = log
	child.DieWithParent(k.process)
	must(k.t, k.process.Start())
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial("tcp", k.Address)
		if err == nil {
			must(k.t, conn.Close())
			return
		}
		if time.Since(began) > time.Minute {
			k.Stop()
			said, _ := os.ReadFile(k.Path("log"))
			k.t.Fatalf("the KDC does not answer: %v\n%s", err, said)
		}
	}
}

// Stop ends it.
func (k *KDC) Stop() {
	if k.process == nil {
		return
	}
	must(k.t, k.process.Process.Kill())
	_ = k.process.Wait() // it was killed
	k.process = nil
}

// Pause makes the KDC silent: it accepts connections, and answers nothing.
func (k *KDC) Pause() { k.signal("STOP") }

// Resume ends that.
func (k *KDC) Resume() { k.signal("CONT") }

func (k *KDC) signal(name string) {
	k.t.Helper()
	k.Run("sh", "-c", fmt.Sprintf("kill -%s %d", name, k.process.Process.Pid))
}

// Ensemble starts a real ensemble that requires SASL, with more settings.
func (k *KDC) Ensemble(opts ...apache.Option) *apache.Ensemble {
	jaas := k.Write("jaas.conf", fmt.Sprintf(`Server {
  com.sun.security.auth.module.Krb5LoginModule required
  useKeyTab=true keyTab=%q storeKey=true useTicketCache=false principal="zookeeper/localhost@%s";
};
`, k.Path("zookeeper.keytab"), Realm))
	return apache.Start(k.t, 1, append([]apache.Option{
		apache.WithProperty("java.security.auth.login.config", jaas),
		apache.WithProperty("java.security.krb5.conf", k.Path("krb5.conf")),
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
