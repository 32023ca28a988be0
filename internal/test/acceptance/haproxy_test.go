package acceptance_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/child"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
)

// balancer is HAProxy in front of an ensemble: clients know its address alone.
type balancer struct{ address, control string }

// startBalancer starts HAProxy in front of servers. It ends connections on
// which nothing was said for a while, and ends with the test.
func startBalancer(t *testing.T, servers []string, idle time.Duration) *balancer {
	t.Helper()
	program, err := exec.LookPath("haproxy")
	if err != nil {
		missing(t, "Debian's package haproxy", err)
	}
	dir := t.TempDir()
	b := &balancer{freeAddress(t), filepath.Join(dir, "control")}
	text := fmt.Sprintf(`global
  stats socket %[1]s level admin
defaults
  mode tcp
  timeout connect 1s
  timeout client %[2]dms
  timeout server %[2]dms
  option redispatch
  default-server check inter 200ms fall 1 rise 1
listen zookeeper
  bind %[3]s
`, b.control, idle.Milliseconds(), b.address)
	for i, server := range servers {
		text += fmt.Sprintf("  server member%d %s\n", i, server)
	}
	file := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-db", "-f", file)
	cmd.Stderr = os.Stderr
	child.DieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	bubble.AwaitTrue(t, "haproxy listens", func() bool {
		conn, err := net.Dial("tcp", b.address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return b
}

// add puts another server behind it, as an operator does when a member has
// joined.
func (b *balancer) add(t *testing.T, member int, address string) {
	t.Helper()
	for _, command := range []string{
		fmt.Sprintf("add server zookeeper/member%d %s check inter 200ms fall 1 rise 1", member, address),
		fmt.Sprintf("enable server zookeeper/member%d", member),
		fmt.Sprintf("enable health zookeeper/member%d", member),
	} {
		conn, err := net.DialTimeout("unix", b.control, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.WriteString(conn, command+"\n")
		answer, err2 := io.ReadAll(conn)
		_ = conn.Close() // it was read to its end
		if text := strings.TrimSpace(string(answer)); err != nil || err2 != nil || text != "" && text != "New server registered." {
			t.Fatalf("haproxy: %s: %v, %v, %q", command, err, err2, answer)
		}
	}
}
