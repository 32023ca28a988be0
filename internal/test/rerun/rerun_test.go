package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tests are those of a module that is made for this test.
const tests = `package p

import ("fmt"; "os"; "path/filepath"; "testing")

// passes reports whether the test is run for the second time.
func passes(t *testing.T) bool {
	name := filepath.Join(os.Getenv("STATE"), filepath.Base(t.Name()))
	_, err := os.Stat(name)
	os.WriteFile(name, nil, 0o600)
	return err == nil
}

func TestFine(t *testing.T) { t.Log("fine") }

func TestOnce(t *testing.T) {
	t.Run("a", func(t *testing.T) { t.Log("JUDGE: of a subtest that passes") })
	t.Run("b", func(t *testing.T) {
		t.Log("testutil: member 2 leads")
		if !passes(t) { t.Error("too late") }
	})
}

func TestAlways(t *testing.T) { t.Error("wrong") }

func TestSkippedThen(t *testing.T) {
	if passes(t) { t.Skip("not now") }
	t.Error("wrong")
}

func TestJudged(t *testing.T) {
	t.Error("slow")
	t.Run("a", func(t *testing.T) {
		if !passes(t) { t.Error("JUDGE: two held") }
	})
}

func TestJudgedThen(t *testing.T) {
	if !passes(t) { t.Fatal("slow") }
	t.Error("JUDGE: left: 1")
}

func TestPanics(t *testing.T) { if !passes(t) { panic("no") } }

func TestAnotherGoroutinePanics(t *testing.T) {
	if !passes(t) { go panic("no"); select {} }
}

func TestExits(t *testing.T) { if !passes(t) { fmt.Println("bye"); os.Exit(3) } }

func TestRunsOutOfTime(t *testing.T) { if !passes(t) { select {} } }
`

// What is run again, and what is said of it.
func TestRerun(t *testing.T) {
	if testing.Short() {
		t.Skip("it links many programs, and none does two things at a time")
	}
	o := options{dir: t.TempDir()}
	for name, text := range map[string]string{"go.mod": "module p\n", "p_test.go": tests} {
		if err := os.WriteFile(filepath.Join(o.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		run, want string // want is a part of what is printed, or of the error
		ok        bool
	}{
		{"TestFine", "ok  \tp", true},
		{"TestOnce|TestFine", "\nflaky: p.TestOnce: too late\n", true},
		{"TestAlways", "failed twice: p.TestAlways: wrong", false},
		{"TestSkippedThen", "failed twice: p.TestSkippedThen: wrong", false},
		{"TestOnce|TestJudged", "not run again: p.TestJudged: JUDGE: two held", false},
		{"TestJudgedThen", "failed: p.TestJudgedThen: JUDGE: left: 1", false},
		{"TestOnce|TestPanics", "not run again: p.TestPanics: ", false},
		{"TestAnotherGoroutinePanics", "not run again: p.TestAnotherGoroutinePanics: ", false},
		{"TestExits", "not run again: p.TestExits: ", false},
		{"TestRunsOutOfTime", "not run again: p.TestRunsOutOfTime: ", false},
		{"TestNone(", "not run again: p.: it failed as a whole", false},
	} {
		t.Setenv("STATE", t.TempDir())
		o.pattern = "^(" + tt.run + ")$"
		timeout := "1m"
		if tt.run == "TestRunsOutOfTime" {
			timeout = "100ms"
		}
		o.tries(t, tt.run, tt.want, tt.ok, ".", "--", "-timeout", timeout)
	}
	// The second run, later.
	t.Setenv("STATE", t.TempDir())
	o.pattern, o.later = "^(TestOnce|TestAlways)$", t.TempDir()
	o.tries(t, "the first run", "--- FAIL: TestOnce/b", true, ".")
	o.later, o.again = "", o.later
	o.tries(t, "the second run", "failed twice: p.TestAlways: wrong", false)
	if flaky, err := os.ReadFile(filepath.Join(o.again, "flaky")); err != nil || string(flaky) != "flaky: p.TestOnce: too late\n" {
		t.Errorf("flaky: %q, %v", flaky, err)
	}
	o.again = t.TempDir()
	o.tries(t, "a second run of nothing", "", true)
}

func (o options) tries(t *testing.T, what, want string, ok bool, args ...string) {
	t.Helper()
	var out strings.Builder
	err := run(o, args, &out)
	said := out.String()
	if err != nil {
		said = err.Error()
	}
	if (err == nil) != ok || !strings.Contains(said, want) {
		t.Errorf("%s: %v, want %q; it printed\n%s", what, err, want, &out)
	}
}

// A run that is killed has not passed, even if what had failed by then passes
// alone.
func TestAKilledRun(t *testing.T) {
	bin, state := t.TempDir(), t.TempDir()
	script := `#!/bin/sh
if [ -e $STATE/again ]; then
	echo '{"Action":"run","Package":"p","Test":"TestA"}'
	echo '{"Action":"pass","Package":"p","Test":"TestA"}'
	echo '{"Action":"pass","Package":"p"}'
	exit 0
fi
: >$STATE/again
echo '{"Action":"run","Package":"p","Test":"TestA"}'
echo '{"Action":"fail","Package":"p","Test":"TestA"}'
echo '{"Action":"fail","Package":"p"}'
echo '{"Action":"start","Package":"q"}'
kill -9 $$
`
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("STATE", state)
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	var out strings.Builder
	if err := run(options{dir: "."}, []string{"p", "q"}, &out); err == nil || !strings.Contains(err.Error(), "q has not ended") {
		t.Errorf("%v, after\n%s", err, &out)
	}
}
