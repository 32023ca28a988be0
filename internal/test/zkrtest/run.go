package zkrtest

import (
	"bytes"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Zkr runs a subcommand against an ensemble, inside the test. It returns the
// exit code, and what was printed. Its times are long enough for a machine that
// stops for seconds.
func Zkr(e *testutil.Embedded, verb string, args ...string) (int, string) {
	var out bytes.Buffer
	code := Run(append([]string{verb, "--servers", e.Servers(), "--session-timeout", "30s", "--connect-timeout", "30s"}, args...), &out, &out)
	return code, out.String()
}

// SomeID begins the name of a contender, as Curator and this module write it.
const SomeID = "_c_2f1b6a5e-9c0d-4e4f-8a39-0f4f6f2c1d77-"

// Dial returns a client of the ensemble, which is closed when the test ends.
func Dial(t *testing.T, e *testutil.Embedded) *framework.Client {
	t.Helper()
	c, err := framework.New(e.Servers(), framework.WithDialer(e.Dial))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Apart runs a subcommand and returns what it prints to stdout and to stderr.
func Apart(servers string, args ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	code = Run(append([]string{args[0], "--servers", servers}, args[1:]...), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// ExpectZkr runs a subcommand, which must succeed and print want.
func ExpectZkr(t *testing.T, e *testutil.Embedded, want, verb string, args ...string) {
	t.Helper()
	if code, text := Zkr(e, verb, args...); code != 0 || text != want {
		t.Errorf("zkr %s %q: exit code %d; it printed\n%s\nwant\n%s", verb, args, code, text, want)
	}
}

// RefusesZkr runs a subcommand, which must fail with one line that has all of
// says in it.
func RefusesZkr(t *testing.T, e *testutil.Embedded, want int, says []string, verb string, args ...string) {
	t.Helper()
	code, text := Zkr(e, verb, args...)
	if code != want {
		t.Errorf("zkr %s %q: exit code %d, want %d; it printed %q", verb, args, code, want, text)
	}
	for _, each := range says {
		if !strings.Contains(text, each) {
			t.Errorf("zkr %s %q printed %q, want %q in it", verb, args, text, each)
		}
	}
	if want == 1 && strings.Count(text, "\n") != 1 {
		t.Errorf("zkr %s %q printed more than one line: %q", verb, args, text)
	}
}
