//go:build unix

package zkrtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// columns is what stands between the columns of a table. How wide they are
// depends on what varies in other lines.
var columns = regexp.MustCompile(" {2,}")

// programs are those that not every machine with a shell has.
var programs = regexp.MustCompile(`\b(grep|sed|awk|jq|head|wc)\b`)

// longest is how long all examples of a page may take.
const longest = 3 * time.Minute

// RunExamples runs the examples of a page one after the other in a shell, and
// compares what they print. It returns how many there are. It skips the test if
// the machine lacks a program that they use.
func RunExamples(t *testing.T, page, servers string) int {
	t.Helper()
	bin := t.TempDir()
	wrapper := "#!/bin/sh\nZKR_TEST_ROLE=zkr exec '" + Self(t) + "' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "zkr"), []byte(wrapper), 0o700); err != nil {
		t.Fatal(err)
	}
	const mark = "=== the next example"
	var script strings.Builder
	var commands, want []string
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(page, -1) {
		for _, example := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			command, output, _ := strings.Cut(example, "\n")
			commands, want = append(commands, command), append(want, strings.TrimSuffix(output, "\n"))
			fmt.Fprintf(&script, "%s\necho '%s'\n", command, mark)
		}
	}
	for _, program := range programs.FindAllString(script.String(), -1) {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("skipped: the examples use %s: %v", program, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	shell := exec.CommandContext(ctx, "sh", "-c", script.String())
	shell.WaitDelay = time.Second // what the shell has started may live, and keep its output open
	shell.Dir = t.TempDir()
	shell.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "ZKR_SERVERS="+servers)
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := strings.Split(string(out), mark+"\n")
	if len(got) != len(want)+1 {
		t.Fatalf("%d examples have %d outputs: %s", len(want), len(got)-1, out)
	}
	for i := range want {
		pattern := strings.ReplaceAll(regexp.QuoteMeta(want[i]), regexp.QuoteMeta("..."), ".*")
		pattern = columns.ReplaceAllString(pattern, " {2,}")
		// PATH... is a part of a usage line, and matches itself.
		if !regexp.MustCompile("^" + pattern + "$").MatchString(strings.TrimSuffix(got[i], "\n")) {
			t.Errorf("%s\nprints\n%s\nbut the page says\n%s", commands[i], got[i], want[i])
		}
	}
	return len(want)
}
