package load

import (
	"fmt"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/recipes"
)

func TestTheLedgerIsJudged(t *testing.T) {
	token := func(n int) string { return recipesToken(t, n) }
	in := func(mode string, n int, who string) string { return "in " + mode + " " + token(n) + " " + who }
	for _, test := range []struct {
		name  string
		lines []string
		fine  bool
	}{
		{"nothing", nil, true},
		{"one after the other", []string{in("X", 1, "1.1"), "out 1.1", in("X", 2, "2.1"), "out 2.1"}, true},
		{"two at once", []string{in("X", 1, "1.1"), in("X", 2, "2.1"), "out 1.1", "out 2.1"}, false},
		{"two goroutines at once", []string{in("X", 1, "1.1"), in("X", 2, "1.2"), "out 1.1", "out 1.2"}, false},
		{"a token twice", []string{in("X", 1, "1.1"), "out 1.1", in("X", 1, "2.1"), "out 2.1"}, false},
		{"a token from before", []string{in("X", 2, "1.1"), "out 1.1", in("X", 1, "2.1"), "out 2.1"}, false},
		{"readers together", []string{in("S", 1, "1.1"), in("S", 1, "2.1"), "out 1.1", "out 2.1", in("X", 2, "1.1"), "out 1.1"}, true},
		{"a writer among readers", []string{in("S", 1, "1.1"), in("X", 2, "2.1"), "out 1.1", "out 2.1"}, false},
		{"a reader beside a writer", []string{in("X", 1, "1.1"), in("S", 2, "2.1"), "out 1.1", "out 2.1"}, false},
		{"a reader with a writer's token", []string{in("X", 1, "1.1"), "out 1.1", in("S", 1, "2.1"), "out 2.1"}, false},
		{"a writer with a reader's token", []string{in("S", 1, "1.1"), "out 1.1", in("X", 1, "2.1"), "out 2.1"}, false},
		{"readers in any order", []string{in("S", 3, "1.1"), in("S", 2, "2.1"), "out 1.1", "out 2.1"}, true},
		{"permits up to the limit", []string{in("P", 2, "1.1"), in("P", 1, "2.1"), "out 1.1", "out 2.1"}, true},
		{"a permit too many", []string{in("P", 1, "1.1"), in("P", 2, "2.1"), in("P", 3, "3.1"), "out 1.1", "out 2.1", "out 3.1"}, false},
		{"who was killed is succeeded", []string{in("X", 1, "1.1"), "gone 1", in("X", 2, "2.1"), "out 2.1"}, true},
		{"who was killed before it was", []string{in("X", 1, "1.1"), in("X", 2, "2.1"), "gone 1", "out 2.1"}, false},
		{"who was frozen ends late", []string{in("X", 1, "1.1"), "gone 1", in("X", 2, "2.1"), "out 1.1", "out 2.1"}, false},
		{"another that was killed", []string{in("X", 1, "1.1"), "gone 11", in("X", 2, "2.1"), "out 1.1", "out 2.1"}, false},
		{"who was frozen acts late", []string{in("X", 1, "1.1"), "frozen 1", in("X", 2, "2.1"), "out 1.1", in("X", 1, "1.2"), "out 2.1", "thawed 1", "out 1.2"}, true},
		{"who was frozen goes on", []string{"frozen 1", "thawed 1", in("X", 1, "1.1"), "out 1.1", in("X", 2, "2.1"), "out 2.1"}, true},
		{"two at once after a thaw", []string{"frozen 1", "thawed 1", in("X", 1, "1.1"), in("X", 2, "2.1"), "out 1.1", "out 2.1"}, false},
		{"two at once while a third is frozen", []string{"frozen 3", in("X", 1, "1.1"), in("X", 2, "2.1"), "out 1.1", "out 2.1"}, false},
		{"a late section twice", []string{"frozen 1", in("X", 1, "1.1"), "thawed 1", "out 1.1", "out 1.1"}, false},
		{"a thaw of who was not frozen", []string{"thawed 1"}, false},
		{"out without in", []string{"out 1.1"}, false},
		{"out twice", []string{in("X", 1, "1.1"), "out 1.1", "out 1.1"}, false},
		{"in twice", []string{in("S", 1, "1.1"), in("S", 1, "1.1"), "out 1.1"}, false},
		{"in to the end", []string{in("X", 1, "1.1")}, false},
		{"no token", []string{"in X nonsense 1.1", "out 1.1"}, false},
		{"no sense", []string{"in 1.1"}, false},
		{"two permits at once", []string{in("P2", 1, "1.1"), "out 1.1", in("P", 2, "2.1"), "out 2.1"}, true},
		{"two permits beside one, of two", []string{in("P", 1, "1.1"), in("P2", 2, "2.1"), "out 1.1", "out 2.1"}, false},
		{"one permit beside two, of two", []string{in("P2", 1, "1.1"), in("P", 2, "2.1"), "out 1.1", "out 2.1"}, false},
		{"a reader beside a downgraded one", []string{in("X", 1, "1.1"), "down " + token(1) + " 1.1", in("S", 2, "2.1"), "out 1.1", "out 2.1"}, true},
		{"a writer beside a downgraded one", []string{in("X", 1, "1.1"), "down " + token(1) + " 1.1", in("X", 2, "2.1"), "out 1.1", "out 2.1"}, false},
		{"a downgrade of a reader", []string{in("S", 1, "1.1"), "down " + token(1) + " 1.1", "out 1.1"}, false},
		{"a history", []string{"ask X 1.1", in("X", 1, "1.1"), "writing 1 1.1", "wrote yes 1.1", "out 1.1", "left true 1.1", "quiet 1"}, true},
		{"a holder in the quiet", []string{"ask X 1.1", in("X", 1, "1.1"), "quiet 0", "out 1.1"}, false},
		{"half an ask", []string{"ask 1.1"}, false},
		{"an empty line", []string{"", in("X", 1, "1.1"), "out 1.1"}, false},
	} {
		text := strings.Join(append(test.lines, ""), "\n")
		if _, err := Judge(text, 2); (err == nil) != test.fine {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	if _, err := Judge(in("X", 1, "1.1")+"\nout 1", 2); err == nil {
		t.Error("a torn line was not rejected")
	}
}

// recipesToken returns a token that grows with n.
func recipesToken(t *testing.T, n int) string {
	t.Helper()
	text := fmt.Sprintf("%0*d", len(recipes.Token{}.String()), n)
	if _, err := recipes.ParseToken(text); err != nil {
		t.Fatal(err)
	}
	return text
}
