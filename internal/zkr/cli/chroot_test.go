package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestAMissingChrootIsRefused: zkr created the chroot of a mistyped --servers.
// Two hosts that spelled it differently both ran the command.
func TestAMissingChrootIsRefused(t *testing.T) {
	e := testutil.Start(t)
	servers := e.Servers() + "/app/one"
	// One request may need a retry on a slow machine, so this is no limit.
	for _, args := range []string{
		"lock /x -- true", "lock /x /y -- true", "lock --try /x -- true", "read /x -- true", "write /x -- true",
		"semaphore --max 2 /x -- true", "semaphore --max 2 --set-max /x -- true", "elect /x -- true", "elect --once /x -- true",
		"join /x --id a -- true", "join / --id a",
		"lock --layout kazoo /x -- true", "bench --duration 1m", "bench --duration 1m --recipe semaphore",
		"watch /x", "watch --of children /x", "watch /", "create --parents /a/b",
		"counter get /x", "counter add /x 1", "counter add --once a /x 1", "counter set /x 1",
	} {
		began := time.Now()
		code, out, errs := zkrtest.Apart(servers, strings.Fields(args)...)
		if code != ExitFailed || out != "" || !strings.Contains(errs, "chroot /app/one does not exist") ||
			!strings.Contains(errs, "; check --servers "+servers+", or create it with --create-chroot") || strings.Contains(errs, "WithCreateChroot") {
			t.Errorf("zkr %s: exit code %d; it printed %q and %q", args, code, out, errs)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("zkr %s took %v", args, took)
		}
	}
	if tree := e.Tree(); tree != "" {
		t.Errorf("created:\n%s", tree)
	}
}

// TestCreateChroot: --create-chroot creates it, as persistent znodes, for
// commands that create something.
func TestCreateChroot(t *testing.T) {
	for _, args := range []string{
		"lock /x -- true", "read /x -- true", "write /x -- true", "semaphore --max 2 /x -- true", "elect --once /x -- true",
		"join /x --id a -- true", "bench --duration 500ms", "create --parents /a/b",
		"counter add /x 1",
	} {
		e := testutil.Start(t)
		servers := e.Servers() + "/app/one"
		for _, reading := range []string{"ls /", "watch /x", "inspect /x"} {
			if code, _, errs := zkrtest.Apart(servers, append(strings.Fields(reading), "--create-chroot")...); code != ExitFailed || e.Exists("/app") {
				t.Errorf("zkr %s --create-chroot: exit code %d; it printed %q", reading, code, errs)
			}
		}
		verb, rest, _ := strings.Cut(args, " ")
		if code, _, errs := zkrtest.Apart(servers, append([]string{verb, "--create-chroot"}, strings.Fields(rest)...)...); code != 0 {
			t.Errorf("zkr %s: exit code %d; it printed %q", args, code, errs)
		}
		if tree := "\n" + e.Tree(); !strings.Contains(tree, "\n/app\n/app/one\n") {
			t.Errorf("zkr %s: not persistent:%s", args, tree)
		}
	}
	e := testutil.Start(t)
	t.Setenv("ZKR_CREATE_CHROOT", "true")
	if code, _, errs := zkrtest.Apart(e.Servers()+"/app", "create", "/x"); code != 0 || !e.Exists("/app/x") {
		t.Errorf("with the variable: exit code %d; it printed %q", code, errs)
	}
}

// TestAChrootBehindEachServer: it was taken for one server, and a chroot with a
// comma.
func TestAChrootBehindEachServer(t *testing.T) {
	e := testutil.Start(t)
	servers := e.Servers() + "/a," + e.Servers() + "/a"
	right := e.Servers() + "," + e.Servers() + "/a"
	for _, args := range []string{"lock /x -- true", "ls /", "bench", "watch /x"} {
		code, out, errs := zkrtest.Apart(servers, strings.Fields(args)...)
		if code != ExitUsage || out != "" || !strings.Contains(errs, `as in "`+right+`"`) {
			t.Errorf("zkr %s: exit code %d; it printed %q and %q", args, code, out, errs)
		}
	}
}

// TestTheServersOwnZnodesAreNoLocks: zkr stood in line below /zookeeper.
func TestTheServersOwnZnodesAreNoLocks(t *testing.T) {
	for _, args := range []string{
		"lock /zookeeper/x -- true", "lock /a /zookeeper/x -- true", "read /zookeeper -- true", "write /zookeeper/x -- true",
		"semaphore --max 2 /zookeeper/x -- true", "elect /zookeeper/x -- true",
	} {
		for _, servers := range []string{"127.0.0.1:1", "127.0.0.1:1/zookeeper", "127.0.0.1:1/zookeeper/quota"} { // nobody is asked
			code, out, errs := zkrtest.Apart(servers, strings.Fields(args)...)
			if code != ExitUsage || out != "" || !strings.Contains(errs, "/zookeeper is for the servers' own znodes") {
				t.Errorf("zkr %s at %s: exit code %d; it printed %q and %q", args, servers, code, out, errs)
			}
		}
	}
	if IsServers("/app", "/zookeeper") || IsServers("", "/zookeepers") {
		t.Error("a znode of others is refused")
	}
}
