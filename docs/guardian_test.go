package docs

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// What a guardian takes away, and costs, stands where people look for it.
func TestWhatAGuardianTakesAway(t *testing.T) {
	for page, phrases := range map[string][]string{
		"proof.md":                {"localSessionsEnabled", "the kernel says when a process is dead", "Helpers of a command", "takes away](../guardian)"},
		"../guardian/guardian.go": {"from a snapshot", "--after of zkr guard", "without Command", "the kernel says"},
		"trust.md":                {"localSessionsEnabled", "trusts the kernel's word for a death"},
		"../CHANGELOG.md":         {"With `localSessionsEnabled` only", "come back from a snapshot", "the kernel's word for a death", "a process of 15 MB", "2.6 ms", "past its lease"},
		"zkr help lock":           {"With localSessionsEnabled", "come back from a snapshot", "the kernel's word for a death", "process of 15 MB", "2.6 ms", "past its lease", "Requests to others"},
	} {
		text, err := os.ReadFile(page)
		if page == "zkr help lock" {
			text, err = exec.Command("go", "run", "../cmd/zkr", "help", "lock").Output()
		}
		if err != nil {
			t.Fatalf("%s: %v", page, err)
		}
		words := strings.Join(strings.Fields(strings.ReplaceAll(string(text), "\n//", "\n")), " ")
		for _, phrase := range phrases {
			if !strings.Contains(words, phrase) {
				t.Errorf("%s does not say %q", page, phrase)
			}
		}
	}
}
