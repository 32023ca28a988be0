// Package zkrtest runs zkr for tests: inside the test, or as a process. That
// process is the test binary itself, built with the race detector or without.
package zkrtest

import (
	"flag"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// program is zkr with all its subcommands. A package with subcommands cannot
// import it.
var program func(args []string, stdout, stderr io.Writer) int

// Run executes zkr inside the test, and returns the exit code.
func Run(args []string, stdout, stderr io.Writer) int { return program(args, stdout, stderr) }

// Main is for TestMain. zkr is the program with all subcommands. patient keeps
// a process from saying that it waits: a slow machine must not change what it
// prints. The test binary can also act as a command for zkr to run, one that
// handles signals more reliably than shells do, which can lose one while they
// fork.
func Main(m *testing.M, zkr func(args []string, stdout, stderr io.Writer) int, patient func()) {
	program = zkr
	if len(os.Args) > 2 && os.Args[1] == "guard" && os.Args[2] == "--fd" { // the child of a zkr, also of one inside the test
		os.Exit(zkr(os.Args[1:], os.Stdout, os.Stderr))
	}
	const role = "ZKR_TEST_ROLE"
	switch os.Getenv(role) {
	case "zkr":
		os.Setenv(role, "command") // for the process that zkr runs
		if os.Getenv(ImpatientVariable) == "" {
			patient()
		}
		os.Exit(zkr(withoutGuardian(os.Args[1:]), os.Stdout, os.Stderr))
	case "command":
		command()
	}
	for _, each := range os.Environ() { // what sets the global flags
		if name, _, _ := strings.Cut(each, "="); strings.HasPrefix(name, "ZKR_") && name != "ZKR_REAL" && name != "ZKR_WHOLE" && !strings.HasPrefix(name, "ZKR_TEST_") {
			os.Unsetenv(name)
		}
	}
	// Built with the race detector, a process sleeps for a second before
	// it ends. There are hundreds here.
	os.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0"))
	// Under nohup SIGHUP is ignored, and in the background of a script SIGINT
	// and SIGQUIT are. All child processes would inherit that. A caught signal
	// is reset to the default for them.
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	_ = flag.Set("test.parallel", "8") // they mostly wait; -parallel overrides it
	code := m.Run()
	closeReal()
	os.Exit(code)
}

// guarded are the subcommands that start a guardian.
var guarded = []string{"lock", "read", "write", "semaphore", "elect", "join", "register", "barrier"}

// withoutGuardian returns arguments by which zkr starts no guardian, unless
// they name one: another process for each zkr is too much for the times of
// these tests on a busy machine. See bubble.Whole.
func withoutGuardian(args []string) []string {
	if os.Getenv("ZKR_WHOLE") != "" || len(args) == 0 || !slices.Contains(guarded, args[0]) || slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--guardian") }) {
		return args
	}
	return slices.Insert(slices.Clone(args), 1, "--guardian=off")
}

// ImpatientVariable makes zkr say after a second that it waits, as it always
// does outside of tests.
const ImpatientVariable = "ZKR_TEST_IMPATIENT"
