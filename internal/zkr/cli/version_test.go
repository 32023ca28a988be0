package cli

import (
	"bytes"
	"encoding/json"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
)

func TestVersion(t *testing.T) {
	var out, errs bytes.Buffer
	if code := zkrtest.Run([]string{"version"}, &out, &errs); code != 0 || errs.Len() > 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	if got := out.String(); !strings.HasPrefix(got, "zkr ") || !strings.HasSuffix(got, runtime.GOOS+"/"+runtime.GOARCH+"\n") {
		t.Errorf("printed %q", got)
	}

	out.Reset()
	if code := zkrtest.Run([]string{"version", "--json"}, &out, &errs); code != 0 || errs.Len() > 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	var b build
	if err := json.Unmarshal(out.Bytes(), &b); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if b.Version == "" || b.Go != runtime.Version() || b.OS != runtime.GOOS || b.Arch != runtime.GOARCH {
		t.Errorf("printed %s", out.String())
	}

	if code := zkrtest.Run([]string{"version", "1"}, &out, &errs); code != ExitUsage {
		t.Errorf("with an argument the exit code is %d", code)
	}
}

// A release is built from a tag, `go install` builds from the module proxy
// without a revision, and a developer builds from changed sources.
func TestVersionSaysWhereTheSourcesAreFrom(t *testing.T) {
	on := ", " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH + "\n"
	commit := []debug.BuildSetting{
		{Key: "vcs", Value: "git"},
		{Key: "vcs.revision", Value: "1bf5f57ae6b1"},
		{Key: "vcs.time", Value: "2026-11-20T10:00:00Z"},
	}
	changed := append(commit[:3:3], debug.BuildSetting{Key: "vcs.modified", Value: "true"})
	for _, test := range []struct {
		name string
		info *debug.BuildInfo
		want string
	}{
		{"not recorded", nil, "zkr (devel)" + on},
		{"no version", &debug.BuildInfo{}, "zkr (devel)" + on},
		{"go install", &debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"}}, "zkr v0.1.0" + on},
		{
			"a tag", &debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"}, Settings: commit},
			"zkr v0.1.0, revision 1bf5f57ae6b1 of 2026-11-20T10:00:00Z" + on,
		},
		{
			"changed sources", &debug.BuildInfo{Main: debug.Module{Version: "v0.1.1-0.20261120100000-1bf5f57ae6b1+dirty"}, Settings: changed},
			"zkr v0.1.1-0.20261120100000-1bf5f57ae6b1+dirty, revision 1bf5f57ae6b1 of 2026-11-20T10:00:00Z, modified" + on,
		},
	} {
		var out bytes.Buffer
		if err := printVersion(&out, newBuild(test.info)); err != nil || out.String() != test.want {
			t.Errorf("%s: printed %q, want %q (%v)", test.name, out.String(), test.want, err)
		}
	}
}
