package acceptance_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// ledger is a file that every holder appends to while it holds, in any process:
//
//	in <mode> <token> <who>    a section begins
//	out <who>                  it ends, before the lease is released
//	gone <process>             the test has killed or frozen the process: its sections no longer count
//	frozen <process>           the test is about to freeze it: its open sections, and those that begin before
//	thawed <process>           this line, do not count, since it may act late on lost leases
//	down <token> <who>         an exclusive section goes on as a shared one
//
// The rest is for histories, which history_test.go makes of a ledger:
//
//	ask <mode> <who>           an Acquire begins
//	none <who>                 it returned a lease that was lost already
//	at <time> <who>            the section has begun, in milliseconds since 1970
//	writing <version> <who>    a guarded write begins that would make this version
//	wrote <outcome> <who>      it has ended: yes, no, or unknown
//	gave <held> <who>          the write lease of a downgrade is released, and was held until then or not
//	left <held> <who>          the lease is released, and was held until then or not
//	quiet <version>            nobody holds, and nothing of ours stands at the ensemble
//
// who is a process and one of its goroutines, as in 4711.2. A line is one write at
// the end of the file, so the lines are in the order in which things happened.
type ledger string

// The modes of a section.
const (
	exclusive = "X"
	shared    = "S"
	permit    = "P"
	permits2  = "P2" // two permits at once
)

// permitsOf returns how many permits a mode takes.
func permitsOf(mode string) int {
	switch mode {
	case permit:
		return 1
	case permits2:
		return 2
	}
	return 0
}

// wordsOf is how many words a line has that is only for histories.
var wordsOf = map[string]int{"ask": 3, "none": 2, "at": 3, "writing": 3, "wrote": 3, "gave": 3, "left": 3, "quiet": 2}

func (l ledger) append(format string, args ...any) error {
	f, err := os.OpenFile(string(l), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, format+"\n", args...)
	if failed := f.Close(); err == nil {
		err = failed
	}
	return err
}

func (l ledger) read() ([]byte, error) {
	text, err := os.ReadFile(string(l))
	if os.IsNotExist(err) {
		return nil, nil
	}
	return text, err
}

// grants counts the sections that began.
func (l ledger) grants(t *testing.T) int {
	t.Helper()
	text, err := l.read()
	if err != nil {
		t.Fatal(err)
	}
	n := bytes.Count(text, []byte("\nin "))
	if bytes.HasPrefix(text, []byte("in ")) {
		n++
	}
	return n
}

// section is one that has begun and not ended.
type section struct{ mode, who string }

// judge returns what is wrong with a ledger, and how many sections it has.
// Wrong are sections that overlap and must not, more permits than the limit, a
// token not greater than that of an earlier exclusive section (for an exclusive
// section: of any earlier section), and a malformed line.
func judge(text string, limit int) (grants int, err error) {
	var open []section
	var lastExclusive, last recipes.Token
	gone, frozen := map[string]bool{}, map[string]bool{}
	spared := map[string]bool{} // goroutines in a section that does not count
	number := 0
	fault := func(format string, args ...any) (int, error) {
		return grants, fmt.Errorf("line %d: %s", number, fmt.Sprintf(format, args...))
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		return fault("the last line is torn")
	}
	for line := range strings.Lines(text) {
		number++
		words := strings.Fields(line)
		if len(words) == 0 {
			return fault("it is empty")
		}
		who := words[len(words)-1]
		process, _, _ := strings.Cut(who, ".")
		if words[0] != "gone" && gone[process] {
			return fault("%s goes on after it was gone: %s", process, line)
		}
		at := slices.IndexFunc(open, func(s section) bool { return s.who == who })
		switch {
		case words[0] == "gone" && len(words) == 2:
			gone[who] = true
			open = slices.DeleteFunc(open, func(s section) bool { return strings.HasPrefix(s.who, who+".") })
		case words[0] == "frozen" && len(words) == 2:
			frozen[who] = true
			open = slices.DeleteFunc(open, func(s section) bool {
				theirs := strings.HasPrefix(s.who, who+".")
				spared[s.who] = spared[s.who] || theirs
				return theirs
			})
		case words[0] == "thawed" && len(words) == 2 && frozen[who]:
			frozen[who] = false
		case words[0] == "in" && len(words) == 4 && frozen[process]:
			spared[who] = true
		case words[0] == "out" && len(words) == 2 && spared[who]:
			spared[who] = false
		case words[0] == "out" && len(words) == 2:
			if at < 0 {
				return fault("%s leaves without having come", who)
			}
			open = slices.Delete(open, at, at+1)
		case words[0] == "in" && len(words) == 4:
			mode := words[1]
			token, err := recipes.ParseToken(words[2])
			if err != nil {
				return fault("%v", err)
			}
			if at >= 0 || spared[who] {
				return fault("%s comes twice", who)
			}
			for _, s := range open {
				if mode == exclusive || s.mode == exclusive {
					return fault("%s comes in mode %s while %s is in, in mode %s", who, mode, s.who, s.mode)
				}
			}
			taken := permitsOf(mode)
			for _, s := range open {
				taken += permitsOf(s.mode)
			}
			if permitsOf(mode) > 0 && taken > limit {
				return fault("%s comes while %d are in", who, len(open))
			}
			if mode == exclusive && token.Compare(last) <= 0 {
				return fault("token %v after %v", token, last)
			}
			if mode == shared && token.Compare(lastExclusive) <= 0 {
				return fault("token %v after the exclusive %v", token, lastExclusive)
			}
			if mode == exclusive {
				lastExclusive = token
			}
			if token.Compare(last) > 0 {
				last = token
			}
			open = append(open, section{mode, who})
			grants++
		case words[0] == "down" && len(words) == 3:
			if at < 0 || open[at].mode != exclusive {
				return fault("%s downgrades what it does not hold", who)
			}
			open[at].mode = shared
		case words[0] == "quiet" && len(words) == 2 && len(open) > 0:
			return fault("it is not quiet: %v are in", open)
		case wordsOf[words[0]] == len(words):
		default:
			return fault("not understood: %s", line)
		}
	}
	if len(open) > 0 {
		return fault("%v are in still", open)
	}
	return grants, nil
}

// acceptable fails the test unless the ledger is in order and has so many
// grants.
func (l ledger) acceptable(t *testing.T, limit, least int) {
	t.Helper()
	text, err := l.read()
	if err != nil {
		t.Fatal(err)
	}
	grants, err := judge(string(text), limit)
	if err != nil {
		t.Errorf("%s: %v", filepath.Base(string(l)), err)
	}
	if grants < least {
		t.Errorf("%s: %d grants, want %d", filepath.Base(string(l)), grants, least)
	}
	t.Logf("%s: %d grants", filepath.Base(string(l)), grants)
}

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
		if _, err := judge(text, 2); (err == nil) != test.fine {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	if _, err := judge(in("X", 1, "1.1")+"\nout 1", 2); err == nil {
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
