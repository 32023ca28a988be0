//go:build unix

package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/doctor"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestDoctor: on each kind of ensemble all promises hold, also as JSON, and
// nothing is left. Only servers that do not say their release (before 3.5) have
// no containers.
func TestDoctor(t *testing.T) {
	zkrtest.Parallel(t)
	zkrtest.OnEach(t, func(t *testing.T, e zkrtest.Target) {
		counts := regexp.MustCompile(`(?m)^all promises hold; addresses: \d+, ok: (\d+), notes: (\d+)\n\z`)
		shown := func(word, text string) string { return strconv.Itoa(strings.Count("\n"+text, "\n"+word+" ")) }
		code, out, errs := zkrtest.Apart(e.Servers, "doctor")
		last := counts.FindStringSubmatch(out)
		if code != 0 || errs != "" || last == nil || shown("ok", out) != "0" || shown("note", out) != last[2] {
			t.Errorf("exit code %d; it printed\n%s%s", code, out, errs)
		}
		if strings.HasPrefix(out, "\n") || strings.Contains(out, "\n\nall") != (last != nil && last[2] != "0") {
			t.Errorf("an empty line without lines before it, or none: %q", out)
		}
		code, out, errs = zkrtest.Apart(e.Servers, "doctor", "--all")
		if last = counts.FindStringSubmatch(out); code != 0 || errs != "" || last == nil || shown("ok", out) != last[1] || shown("note", out) != last[2] {
			t.Errorf("exit code %d; with --all it printed\n%s%s", code, out, errs)
		}
		code, out, errs = zkrtest.Apart(e.Servers, "doctor", "--json")
		in := json.NewDecoder(strings.NewReader(out))
		in.DisallowUnknownFields()
		answers := 0
		for in.More() {
			var a doctor.Answer
			if err := in.Decode(&a); err != nil || a.Question == "" || a.Seen == "" || a.Verdict == doctor.Fails {
				t.Errorf("%+v, %v", a, err)
			}
			answers++
		}
		if code != 0 || errs != "" || answers < 13 {
			t.Errorf("exit code %d, %d answers; it printed\n%s%s", code, answers, out, errs)
		}
		if left, _, err := e.Client(t).Children(t.Context(), "/"); err != nil || slices.ContainsFunc(left, func(name string) bool { return strings.HasPrefix(name, "zkr-doctor") }) {
			judge.Errorf(t, "left: %q, %v", left, err)
		}
	})
}

// TestDoctorFails: a broken promise, and no ensemble, have exit codes of their
// own. What is wrong is said with what to do.
func TestDoctorFails(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		run := func(servers string, dial func(network, address string, timeout time.Duration) (net.Conn, error)) (int, string) {
			t.Helper()
			var out bytes.Buffer
			x := examination{to: &cli.Ensemble{Servers: servers, SessionTimeout: 10 * time.Second, Dial: dial}}
			err := x.run(t.Context(), &out, &out)
			var end *cli.Exit
			if !errors.As(err, &end) {
				t.Fatalf("%v\n%s", err, out.String())
			}
			return end.Code, out.String() + end.Error()
		}
		stop := w.Embedded.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpSync && r.Path == "/" {
				return testutil.Fail(testutil.CodeNoNode)
			}
			return testutil.Pass()
		})
		code, text := run(w.Servers(), w.Dial)
		for _, want := range []string{
			"FAILS  member0:2181  proof: sync of /: no node\n       promise: a round trip", "\n       do: use framework.WithProof",
			"a promise does not hold: proof at member0:2181", "\n\npromises that fail: 1; addresses: 1, ok: ",
		} {
			if code != cli.ExitBroken || !strings.Contains(text, want) || strings.Contains(text, "ok     member0") {
				t.Errorf("exit code %d, want %q in\n%s", code, want, text)
			}
		}
		stop()
		code, text = run("nowhere:2181", func(string, string, time.Duration) (net.Conn, error) { return nil, syscall.ECONNREFUSED })
		if code != cli.ExitNoEnsemble || !strings.Contains(text, "FAILS  nowhere:2181  session: connection refused") {
			t.Errorf("exit code %d\n%s", code, text)
		}
		code, text = run(w.Servers()+"/missing", w.Dial)
		if code != cli.ExitBroken || !strings.Contains(text, "check the path in --servers") {
			t.Errorf("exit code %d\n%s", code, text)
		}
	})
}

// TestDoctorUsage: wrong flags are refused before anything is dialed.
func TestDoctorUsage(t *testing.T) {
	for _, args := range [][]string{
		{"doctor", "/path"},
		{"doctor", "--servers", ","},
		{"doctor", "--session-timeout", "0s"},
		{"doctor", "--sasl", "digest-md5"},
		{"doctor", "--tls-cert", "x"},
		{"doctor", "--never"},
	} {
		var out bytes.Buffer
		if code := zkrtest.Run(args, &out, &out); code != cli.ExitUsage || !strings.Contains(out.String(), "usage: zkr doctor [flags]") {
			t.Errorf("%q: exit code %d: %s", args, code, out.String())
		}
	}
}

// TestDoctorInterrupted: after a signal it ends early, and leaves nothing.
func TestDoctorInterrupted(t *testing.T) {
	t.Parallel()
	e := testutil.Start(t)
	p := zkrtest.Start(t, "doctor", "--servers", e.Servers(), "--slow")
	bubble.AwaitTrue(t, "a slow question is asked", func() bool { return strings.Contains(e.Tree(), "-expiry") })
	p.Signal(t, syscall.SIGTERM)
	if code := p.Wait(t); code != cli.ExitSignal+int(syscall.SIGTERM) || strings.Contains(p.Text(), "FAILS") {
		t.Errorf("exit code %d; it printed %q", code, p.Text())
	}
	if sessions, left := e.Sessions(), e.Children("/"); len(sessions) > 0 || len(left) > 1 {
		judge.Errorf(t, "left: %v, %q", sessions, left)
	}
}
