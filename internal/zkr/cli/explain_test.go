package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// noChroot is the library's error for a chroot that does not exist.
type noChroot struct{}

func (noChroot) Error() string {
	return "chroot /app does not exist, and the client was made without WithCreateChroot: " + zk.ErrNoNode.Error()
}

func (noChroot) Unwrap() error { return zk.ErrNoNode }

func (noChroot) MissingChroot() string { return "/app" }

// TestExplain: an error is one line that says what failed, where, and what to
// do. --verbose adds the errors that it wraps.
func TestExplain(t *testing.T) {
	e := Ensemble{Servers: "zk1:2181,zk2:2181/app"}
	for _, test := range []struct {
		err  error
		want string
	}{
		{errors.New("plain"), "plain"},
		{
			fmt.Errorf("get /x: %w", zk.ErrNoNode),
			"get /x: node does not exist; looked at zk1:2181,zk2:2181/app: check the path and --servers",
		},
		{
			fmt.Errorf("get /x: %w", noChroot{}),
			"get /x: chroot /app does not exist: node does not exist; " +
				"check --servers zk1:2181,zk2:2181/app, or create it with --create-chroot",
		},
		{
			fmt.Errorf("get /x: %w", zk.ErrNoAuth),
			"get /x: not allowed by the ACL; at zk1:2181,zk2:2181/app this client has no identity: give credentials with --auth-file or --sasl",
		},
		{
			fmt.Errorf("list /x: %w", zk.ErrConnectionClosed),
			"list /x: connection closed; if it happens again, zkr doctor says why: a server hangs up on a client that must authenticate",
		},
		{fmt.Errorf("/x: %w: znode n deleted: %w", ErrLost, zk.ErrNoNode), "/x: lease lost: znode n deleted: node does not exist"},
		{fmt.Errorf("set /x: %w", zk.ErrBadVersion), "set /x: version conflict; the znode was changed: zkr stat shows its version"},
		{fmt.Errorf("locks: acquire /x: create /x: %w", zk.ErrNoNode), "acquire /x: create /x: node does not exist; looked at zk1:2181,zk2:2181/app: check the path and --servers"},
		{errors.Join(errors.New("framework: one"), errors.New("leader: two, my framework: three")), "one; two, my framework: three"},
		{fmt.Errorf("set /x: %w (; see WithMaxRequest)", framework.ErrTooLarge), "set /x: request too large ()"},
		{
			fmt.Errorf("testutil: member 0: listen tcp 127.0.0.1:2181: bind: %w", syscall.EADDRINUSE),
			"member 0: listen tcp 127.0.0.1:2181: bind: address already in use; another program listens there: choose another address",
		},
		{fmt.Errorf("acquire /x: %w: timed out after 1s", context.DeadlineExceeded), "acquire /x: timed out after 1s"},
		{errors.New("name \x1b[2J"), `name \x1b[2J`},
	} {
		if got := e.explain(test.err); got != test.want {
			t.Errorf("explained as %q, want %q", got, test.want)
		}
	}
	e.identities = []string{credential{"digest", "app:secret"}.identity(), credential{"ticket", "secret:too"}.identity(), "sasl:ops"}
	if got, want := e.explain(fmt.Errorf("get /x: %w", zk.ErrNoAuth)), "get /x: not allowed by the ACL; at zk1:2181,zk2:2181/app this client is digest:app, ticket:..., sasl:ops"; got != want {
		t.Errorf("explained as %q, want %q", got, want)
	}
	e.verbose = true
	want := "get /x: node does not exist; looked at zk1:2181,zk2:2181/app: check the path and --servers\n" +
		"  *fmt.wrapError: get /x: zk: node does not exist\n" +
		"    *errors.errorString: zk: node does not exist"
	if got := e.explain(fmt.Errorf("get /x: %w", zk.ErrNoNode)); got != want {
		t.Errorf("explained as %q, want %q", got, want)
	}
}

// TestUnreachable: the error says which servers did not answer, why, and what
// to check. A rejected credential is another matter.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	const patient = "5s" // for the refusal, on a slow machine too
	var out bytes.Buffer
	code := zkrtest.Run([]string{"inspect", "--servers", "127.0.0.1:1/app", "--connect-timeout", patient, "/x"}, &out, &out)
	for _, want := range []string{"127.0.0.1:1/app", patient, "127.0.0.1:1 refuses connections; ", "check --servers"} {
		if code != ExitNoEnsemble || !strings.Contains(out.String(), want) {
			t.Errorf("exit code %d: %q, want %q in it", code, out.String(), want)
		}
	}
	if strings.Count(out.String(), "\n") != 1 {
		t.Errorf("more than one line: %q", out.String())
	}
	var end *Exit
	if err := (&Ensemble{}).unreachable(fmt.Errorf("x: %w", zk.ErrAuthFailed), 0, nil); !errors.As(err, &end) || end.Code != ExitFailed {
		t.Errorf("%v", err)
	}
}

// TestWrongChroot: the error says that the chroot is missing, and not only the
// znode.
func TestWrongChroot(t *testing.T) {
	e := testutil.Start(t)
	for _, args := range [][]string{{"get", "/x"}, {"ls", "/x"}, {"set", "/x", "y"}, {"rm", "/x"}, {"create", "/x/y"}} {
		var out bytes.Buffer
		servers := e.Servers() + "/missing"
		code := zkrtest.Run(append([]string{args[0], "--servers", servers}, args[1:]...), &out, &out)
		if want := "chroot /missing does not exist"; code != ExitFailed || !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "check --servers "+servers) {
			t.Errorf("%q: exit code %d: %s", args, code, out.String())
		}
	}
}

// TestUnknownCommand: a command that is nearly right is suggested, in one line.
func TestUnknownCommand(t *testing.T) {
	for name, want := range map[string]string{
		"lss":      `zkr: unknown command "lss": did you mean ls?` + "\n",
		"elct":     `zkr: unknown command "elct": did you mean elect?` + "\n",
		"nonsense": `zkr: unknown command "nonsense"` + "\n",
	} {
		var out bytes.Buffer
		if code := zkrtest.Run([]string{name, "/x"}, &out, &out); code != ExitUsage || !strings.HasPrefix(out.String(), want) {
			t.Errorf("%s: exit code %d: %s", name, code, out.String())
		}
	}
}
