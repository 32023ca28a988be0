package load

import (
	"strings"
	"testing"
)

func TestHistoriesAreJudged(t *testing.T) {
	in := func(mode string, n int, who string) string {
		return "in " + mode + " " + recipesToken(t, n) + " " + who
	}
	down := func(n int, who string) string { return "down " + recipesToken(t, n) + " " + who }
	for _, test := range []struct {
		name  string
		limit int
		lines []string
		fine  bool
	}{
		{"nothing", 0, []string{"quiet 0"}, true},
		{"one after the other", 0, []string{
			"ask X 1.a", "ask X 2.a", in("X", 1, "1.a"), "writing 1 1.a", "wrote yes 1.a", "out 1.a", in("X", 2, "2.a"), "left true 1.a",
			"writing 2 2.a", "wrote yes 2.a", "out 2.a", "left true 2.a", "quiet 2", "ask X 1.a", in("X", 3, "1.a"), "writing 3 1.a", "wrote yes 1.a", "out 1.a", "left true 1.a", "quiet 3",
		}, true},
		{"two at once", 0, []string{"ask X 1.a", "ask X 2.a", in("X", 1, "1.a"), in("X", 2, "2.a"), "out 1.a", "out 2.a", "left true 1.a", "left true 2.a", "quiet 0"}, false},
		{"a holder that was lost is succeeded", 0, []string{"ask X 1.a", "ask X 2.a", in("X", 1, "1.a"), "out 1.a", in("X", 2, "2.a"), "out 2.a", "left true 2.a", "left false 1.a", "quiet 0"}, true},
		{"a holder that was lost, and stays", 0, []string{"ask X 1.a", "ask X 2.a", in("X", 1, "1.a"), in("X", 2, "2.a"), "out 2.a", "left true 2.a", "out 1.a", "left false 1.a", "quiet 0"}, false},
		{"two in the order of an older token", 0, []string{"ask X 1.a", in("X", 2, "1.a"), "out 1.a", "left true 1.a", "ask X 2.a", in("X", 1, "2.a"), "out 2.a", "left true 2.a", "quiet 0"}, false},
		{"a write that nobody has seen", 0, []string{"ask X 1.a", in("X", 1, "1.a"), "writing 1 1.a", "wrote yes 1.a", "out 1.a", "left true 1.a", "quiet 2"}, false},
		{"a write that was undone", 0, []string{"ask X 1.a", in("X", 1, "1.a"), "writing 1 1.a", "wrote yes 1.a", "out 1.a", "left true 1.a", "quiet 0"}, false},
		{"a version twice", 0, []string{
			"ask X 1.a", "ask X 2.a", in("X", 1, "1.a"), "writing 1 1.a", "wrote yes 1.a", "out 1.a", "left true 1.a",
			in("X", 2, "2.a"), "writing 1 2.a", "wrote yes 2.a", "out 2.a", "left true 2.a", "quiet 2",
		}, false},
		{"an unknown write that was executed", 0, []string{"ask X 1.a", in("X", 1, "1.a"), "writing 1 1.a", "wrote unknown 1.a", "out 1.a", "left false 1.a", "quiet 1"}, true},
		{"an unknown write that was not", 0, []string{"ask X 1.a", in("X", 1, "1.a"), "writing 1 1.a", "wrote unknown 1.a", "out 1.a", "left false 1.a", "quiet 0"}, true},
		{"an unknown write after the next holder came", 0, []string{
			"ask X 1.a", in("X", 1, "1.a"), "writing 1 1.a", "wrote unknown 1.a", "out 1.a", "ask X 2.a", in("X", 2, "2.a"), "writing 1 2.a", "wrote yes 2.a",
			"out 2.a", "left true 2.a", "left false 1.a", "quiet 2",
		}, false},
		{"an unknown write before the next holder came", 0, []string{
			"ask X 1.a", in("X", 1, "1.a"), "writing 1 1.a", "wrote unknown 1.a", "out 1.a", "ask X 2.a", in("X", 2, "2.a"), "writing 2 2.a", "wrote yes 2.a",
			"out 2.a", "left true 2.a", "left false 1.a", "quiet 2",
		}, true},
		{"a refused write", 0, []string{"ask X 1.a", in("X", 1, "1.a"), "writing 1 1.a", "wrote no 1.a", "out 1.a", "left false 1.a", "quiet 0"}, true},
		{"readers together", 0, []string{"ask S 1.a", "ask S 2.a", in("S", 1, "1.a"), in("S", 1, "2.a"), "out 1.a", "out 2.a", "left true 1.a", "left true 2.a", "quiet 0"}, true},
		{"a downgrade", 0, []string{
			"ask X 1.a", "ask S 2.a", in("X", 1, "1.a"), down(1, "1.a"), "gave true 1.a", in("S", 2, "2.a"), "out 1.a", "left true 1.a", "out 2.a", "left true 2.a", "quiet 0",
		}, true},
		{"a writer beside a downgraded one", 0, []string{
			"ask X 1.a", "ask X 2.a", in("X", 1, "1.a"), down(1, "1.a"), "gave true 1.a", in("X", 2, "2.a"), "out 1.a", "left true 1.a", "out 2.a", "left true 2.a", "quiet 0",
		}, false},
		{"permits up to the limit", 3, []string{"ask P2 1.a", "ask P 2.a", in("P2", 1, "1.a"), in("P", 2, "2.a"), "out 1.a", "left true 1.a", "out 2.a", "left true 2.a", "quiet 0"}, true},
		{"a permit too many", 2, []string{"ask P2 1.a", "ask P 2.a", in("P2", 1, "1.a"), in("P", 2, "2.a"), "out 1.a", "left true 1.a", "out 2.a", "left true 2.a", "quiet 0"}, false},
		{"terms of one candidate", 0, []string{"ask X 1.l", in("X", 1, "1.l"), "out 1.l", "ask X 1.l", in("X", 2, "1.l"), "out 1.l", "ask X 1.l", "quiet 0"}, true},
		{"a lease that was lost before it was there", 0, []string{"ask X 1.a", "none 1.a", "left false 1.a", "ask X 1.a", in("X", 1, "1.a"), "out 1.a", "left true 1.a", "quiet 0"}, true},
		{"an Acquire that was given up", 0, []string{"ask X 1.a", "quiet 0"}, true},
		{"no quiet", 0, []string{"ask X 1.a"}, false},
		{"in without an ask", 0, []string{in("X", 1, "1.a"), "out 1.a", "left true 1.a", "quiet 0"}, false},
		{"out without in", 0, []string{"ask X 1.a", "out 1.a", "quiet 0"}, false},
		{"no sense", 0, []string{"what 1.a", "quiet 0"}, false},
		{"an empty line", 0, []string{"", "quiet 0"}, false},
	} {
		text := strings.Join(append(test.lines, ""), "\n")
		if _, _, err := JudgeHistory(test.name, text, test.limit, ""); (err == nil) != test.fine {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}
