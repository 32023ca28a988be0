package judge

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// recorder notes what a test would print.
type recorder struct{ said []string }

func (r *recorder) Helper()           {}
func (r *recorder) Error(args ...any) { r.said = append(r.said, "error "+fmt.Sprint(args...)) }
func (r *recorder) Fatal(args ...any) { r.said = append(r.said, "fatal "+fmt.Sprint(args...)) }

func TestMark(t *testing.T) {
	var r recorder
	Errorf(&r, "left: %v", []int{1})
	Fatalf(&r, "%d%% and %s", 2, "two held")
	if got, want := fmt.Sprint(r.said), "[error JUDGE: left: [1] fatal JUDGE: 2% and two held]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// judged matches messages that need the mark.
var judged = regexp.MustCompile(`\.(Error|Fatal)f?\(.*"[^"]*(\bleft( in| at| behind| in line)?( %\w+)?:|\b(is|are) left\b|\btokens? %\w+,? after|two at once|counted to|fter Close it stands)`)

// Tests on real servers, and what checks for them, mark these failures. Tests
// in virtual time need no mark: they are never run again.
func TestWhatIsLeftIsMarked(t *testing.T) {
	harness := regexp.MustCompile(`internal/test/(acceptance|bubble|load|cutnet|untrusted)/`)
	marked := 0
	err := filepath.WalkDir("../../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		real := harness.MatchString(filepath.ToSlash(path)) ||
			strings.Contains(string(text), `zkrecipes/testutil/apache"`) || strings.Contains(string(text), `internal/test/zkrtest"`)
		if !real {
			return nil
		}
		for i, line := range strings.Split(string(text), "\n") {
			switch {
			case !judged.MatchString(line):
			case strings.Contains(line, "judge."):
				marked++
			default:
				t.Errorf("%s:%d: use judge.Errorf: %s", path, i+1, strings.TrimSpace(line))
			}
		}
		return nil
	})
	if err != nil || marked < 50 {
		t.Errorf("%d are marked; %v", marked, err)
	}
}
