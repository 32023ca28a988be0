package doctor_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/child"
	"github.com/zkrecipes/zkrecipes/internal/doctor"
)

// zetcdVariable names the program zetcd. `make matrix` builds it.
const zetcdVariable = "ZKR_ZETCD"

// TestZetcd: of zetcd, which speaks ZooKeeper's protocol in front of etcd, the
// doctor says why no lock can rely on it, and removes what it has made.
func TestZetcd(t *testing.T) {
	zetcd := os.Getenv(zetcdVariable)
	if zetcd == "" {
		t.Skip("needs etcd, and zetcd in " + zetcdVariable)
	}
	client, peer, address := free(t), free(t), free(t)
	run(t, "etcd", "--data-dir", filepath.Join(t.TempDir(), "etcd"), "--initial-cluster", "default=http://"+peer,
		"--listen-client-urls", "http://"+client, "--advertise-client-urls", "http://"+client,
		"--listen-peer-urls", "http://"+peer, "--initial-advertise-peer-urls", "http://"+peer)
	run(t, zetcd, "--zkaddr", address, "--endpoints", client)
	timeout := framework.WithSessionTimeout(4 * time.Second)
	c, err := framework.New(address, timeout)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.WaitConnected(t.Context()); err != nil {
		t.Fatal(err)
	}
	x := examine(t, address, true, timeout)
	want := []string{"clock note", "containers note", "expiry FAILS", "identity FAILS", "moves note", "proof FAILS", "size note", "watches note"}
	bad := slices.DeleteFunc(x.unwell(), func(s string) bool { return s == "events FAILS" }) // in some runs they come late
	if !slices.Equal(bad, want) || x.Left != nil {
		t.Errorf("found %q, want %q; left %v\n%s", bad, want, x.Left, x)
	}
	for _, says := range []string{"proof: sync of /: no node", "identity: getACL: ", "still stands after"} {
		if !slices.ContainsFunc(x.answers, func(a doctor.Answer) bool {
			return a.Verdict == doctor.Fails && strings.Contains(a.Question+": "+a.Seen, says)
		}) {
			t.Errorf("nothing says %q\n%s", says, x)
		}
	}
	left, _, err := c.Children(t.Context(), "/")
	if err != nil || slices.ContainsFunc(left, func(name string) bool { return strings.HasPrefix(name, "zkr-doctor-") }) {
		t.Errorf("znodes are left: %q, %v", left, err)
	}
}

// free returns an address that nothing listens on.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// run runs a program until the test ends.
func run(t *testing.T, program string, args ...string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = out, out
	child.DieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // it was killed
		if t.Failed() {
			text, _ := os.ReadFile(log)
			t.Logf("%s said:\n%s", program, text[max(0, len(text)-2000):])
		}
	})
}
