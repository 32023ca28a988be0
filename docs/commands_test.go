package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// goTest matches a command that runs some tests of packages that it names.
	goTest = regexp.MustCompile(`(?:go|\$\(GO\)) test (?:'[^']*'|"[^"]*"|[^&|;'"\n` + "`" + `])*`)
	run    = regexp.MustCompile(`-run '?([^' "]+)`)
	within = regexp.MustCompile(` (\./[a-z/]+[a-z])\b`)
	ownArg = regexp.MustCompile(` -([a-z]+\.[a-z]+)=`)
	name   = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)
)

// A command of a page, the Makefile or the gate that runs some tests names
// packages that have such tests, and flags that they have: go test itself does
// not complain if there is no such test.
func TestCommandsRunTests(t *testing.T) {
	files, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, file := range append(files, "../README.md", "../ARCHITECTURE.md", "../Makefile", "../.ci/run", "../.ci/matrix") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range goTest.FindAllString(string(text), -1) {
			command = strings.NewReplacer(`\|`, "|", "$$", "$").Replace(command)
			wanted := run.FindStringSubmatch(command)
			if wanted == nil || wanted[1] == "^$" || strings.Contains(wanted[1], "$(") {
				continue
			}
			pattern, err := regexp.Compile(strings.Split(wanted[1], "/")[0])
			if err != nil {
				t.Errorf("%s: %s: %v", file, command, err)
				continue
			}
			for _, dir := range within.FindAllStringSubmatch(command, -1) {
				checked++
				tests := testSources(t, dir[1])
				found := false
				for _, test := range name.FindAllStringSubmatch(tests, -1) {
					found = found || pattern.MatchString(test[1])
				}
				if !found {
					t.Errorf("%s: %s: %s has no such test", file, command, dir[1])
				}
				for _, flag := range ownArg.FindAllStringSubmatch(command, -1) {
					if flag[1] != "rapid.checks" && !strings.Contains(tests, `"`+flag[1]+`"`) {
						t.Errorf("%s: %s: %s has no flag %s", file, command, dir[1], flag[1])
					}
				}
			}
		}
	}
	if checked < 15 {
		t.Errorf("only %d commands were found", checked)
	}
}
