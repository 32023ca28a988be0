package gssapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/child"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// The neighbors of the acceptance tests, which say how to talk to them.
const neighbors = "../../internal/test/acceptance/testdata/"

// A mutex in one line with Kazoo's and with Curator's, all by Kerberos, and
// with znodes that are for their user alone.
func TestInOneLineUnderKerberos(t *testing.T) {
	t.Parallel()
	if os.Getenv("ZKR_REAL") != "1" {
		t.Skip("needs real servers and neighbors: set ZKR_REAL=1 to run it")
	}
	k := startKDC(t)
	k.Kinit()
	ens := k.Ensemble()
	_, port, err := net.SplitHostPort(ens.Servers())
	must(t, err)
	servers := "localhost:" + port // as in the server's principal
	own := framework.WithACL(zk.ACL{Perms: zk.PermAll, Scheme: "auth"})
	for name, with := range map[string]struct {
		kind   string
		layout locks.Layout
		start  func(t *testing.T) *exec.Cmd
	}{
		"Kazoo": {"kazoo-lock", locks.LayoutKazoo, func(*testing.T) *exec.Cmd {
			cmd := exec.Command("/usr/bin/python3", neighbors+"neighbor.py", servers, "10")
			cmd.Env = append(os.Environ(), "ZKR_NEIGHBOR_USER=app@"+realm, "KRB5_CONFIG="+k.Path("krb5.conf"), "KRB5CCNAME="+k.Path("ccache"))
			return cmd
		}},
		"Curator": {"mutex", locks.LayoutCurator, func(t *testing.T) *exec.Cmd { return k.curator(t, servers) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := "/with-" + name
			first, _ := k.open(t, ens, k.mechanism(k.keytab(), k.server()), own)
			third, _ := k.open(t, ens, k.mechanism(k.keytab(), k.server()), own)
			second := startNeighbor(t, with.start(t))
			second.ask(t, "open "+with.kind+" "+path+" theirs", "opened")

			lease := acquire(t, first, path, locks.WithLayout(with.layout))
			acquired := second.begin(t, "acquire")
			inLine(t, first, path, 2)
			mutex, err := locks.NewMutex(third, path, locks.WithLayout(with.layout))
			must(t, err)
			last := make(chan error, 1)
			go func() { // ends with the test
				next, err := mutex.Acquire(t.Context())
				if err == nil {
					err = next.Release(t.Context())
				}
				last <- err
			}()
			inLine(t, first, path, 3)
			isOurs(t, first, path)
			select {
			case answer := <-acquired:
				t.Fatalf("granted beside the holder: %s", answer)
			case <-time.After(500 * time.Millisecond):
			}
			must(t, lease.Release(within(t, time.Minute)))
			expect(t, acquired, "acquired")
			select {
			case err := <-last:
				t.Fatalf("granted beside the neighbor: %v", err)
			case <-time.After(500 * time.Millisecond):
			}
			second.ask(t, "release", "released")
			must(t, <-last)
		})
	}
}

// curator returns Curator's process.
func (k kdc) curator(t *testing.T, servers string) *exec.Cmd {
	t.Helper()
	classes, jars := t.TempDir(), "/usr/share/java/curator-recipes.jar:/usr/share/java/curator-x-discovery.jar"
	k.Run("javac", "-d", classes, "-cp", jars, neighbors+"Neighbor.java")
	jaas := k.Write("client.conf", fmt.Sprintf(`Client {
  com.sun.security.auth.module.Krb5LoginModule required
  useKeyTab=true keyTab=%q storeKey=true useTicketCache=false principal="app@%s";
};
`, k.Path("app.keytab"), realm))
	cmd := exec.Command("java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
		"-Djava.security.auth.login.config="+jaas, "-Djava.security.krb5.conf="+k.Path("krb5.conf"),
		"-Dzookeeper.server.principal=zookeeper/localhost@"+realm,
		"-cp", classes+":"+jars, "Neighbor", servers, "10000")
	cmd.Env = append(os.Environ(), "ZKR_NEIGHBOR_USER=app@"+realm)
	return cmd
}

// inLine waits until n contenders stand at path.
func inLine(t *testing.T, c *framework.Client, path string, n int) {
	t.Helper()
	for {
		children, _, err := c.Children(within(t, time.Minute), path)
		must(t, err)
		if len(children) == n {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// isOurs checks that a directory and what is in it are for the user app alone.
func isOurs(t *testing.T, c *framework.Client, path string) {
	t.Helper()
	children, _, err := c.Children(within(t, time.Minute), path)
	must(t, err)
	for _, each := range append(children, "") {
		each = strings.TrimSuffix(path+"/"+each, "/")
		acl, _, err := c.GetACL(within(t, time.Minute), each)
		if err != nil || len(acl) != 1 || acl[0].Scheme != "sasl" || acl[0].ID != "app@"+realm {
			t.Errorf("the ACL of %s is %v, %v", each, acl, err)
		}
	}
}

// neighbor is a process with one member.
type neighbor struct {
	in      io.Writer
	answers chan string
}

func startNeighbor(t *testing.T, cmd *exec.Cmd) neighbor {
	t.Helper()
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	var said strings.Builder
	cmd.Stderr = &said
	child.DieWithParent(cmd)
	must(t, cmd.Start())
	n := neighbor{in, make(chan string, 10)}
	ended := make(chan struct{})
	go func() { // ends with the process
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			n.answers <- lines.Text()
		}
		_ = cmd.Wait() // it was killed
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
		if t.Failed() {
			t.Logf("the neighbor said:\n%s", said.String())
		}
	})
	expect(t, n.answers, "ready")
	return n
}

// begin sends a command, whose answer comes on the channel.
func (n neighbor) begin(t *testing.T, command string) <-chan string {
	t.Helper()
	_, err := fmt.Fprintf(n.in, "0 %s\n", command)
	must(t, err)
	return n.answers
}

func (n neighbor) ask(t *testing.T, command, want string) {
	t.Helper()
	expect(t, n.begin(t, command), want)
}

func expect(t *testing.T, answers <-chan string, want string) {
	t.Helper()
	select {
	case answer := <-answers:
		if strings.TrimPrefix(answer, "0 ") != want {
			t.Fatalf("answer %q, want %q", answer, want)
		}
	case <-within(t, time.Minute).Done():
		t.Fatalf("no answer, want %q", want)
	}
}
