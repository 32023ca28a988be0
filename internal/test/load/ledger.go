package load

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Ledger is a file that every holder appends to while it holds, in any process:
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
// who is a process and one of its goroutines, as in 4711.2. A line is one write
// at the end of the file, so the lines are in the order in which things
// happened.
type Ledger string

// The modes of a section.
const (
	Exclusive = "X"
	Shared    = "S"
	Permit    = "P"
	Permits2  = "P2" // two permits at once
)

// permitsOf returns how many permits a mode takes.
func permitsOf(mode string) int {
	switch mode {
	case Permit:
		return 1
	case Permits2:
		return 2
	}
	return 0
}

// wordsOf is how many words a line has that is only for histories.
var wordsOf = map[string]int{"ask": 3, "none": 2, "at": 3, "writing": 3, "wrote": 3, "gave": 3, "left": 3, "quiet": 2}

func (l Ledger) Append(format string, args ...any) error {
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

func (l Ledger) Read() ([]byte, error) {
	text, err := os.ReadFile(string(l))
	if os.IsNotExist(err) {
		return nil, nil
	}
	return text, err
}

// Grants counts the sections that began.
func (l Ledger) Grants(t *testing.T) int {
	t.Helper()
	text, err := l.Read()
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

// Judge returns what is wrong with a ledger, and how many sections it has.
// Wrong are sections that overlap and must not, more permits than the limit, a
// token not greater than that of an earlier exclusive section (for an exclusive
// section: of any earlier section), and a malformed line.
func Judge(text string, limit int) (grants int, err error) {
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
				if mode == Exclusive || s.mode == Exclusive {
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
			if mode == Exclusive && token.Compare(last) <= 0 {
				return fault("token %v after %v", token, last)
			}
			if mode == Shared && token.Compare(lastExclusive) <= 0 {
				return fault("token %v after the exclusive %v", token, lastExclusive)
			}
			if mode == Exclusive {
				lastExclusive = token
			}
			if token.Compare(last) > 0 {
				last = token
			}
			open = append(open, section{mode, who})
			grants++
		case words[0] == "down" && len(words) == 3:
			if at < 0 || open[at].mode != Exclusive {
				return fault("%s downgrades what it does not hold", who)
			}
			open[at].mode = Shared
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

// Acceptable fails the test unless the ledger is in order and has so many
// grants.
func (l Ledger) Acceptable(t *testing.T, limit, least int) {
	t.Helper()
	text, err := l.Read()
	if err != nil {
		t.Fatal(err)
	}
	grants, err := Judge(string(text), limit)
	if err != nil {
		judge.Errorf(t, "%s: %v", filepath.Base(string(l)), err)
	}
	if grants < least {
		t.Errorf("%s: %d grants, want %d", filepath.Base(string(l)), grants, least)
	}
	t.Logf("%s: %d grants", filepath.Base(string(l)), grants)
}

func SectionBegins(text, who string) bool {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "in ") && strings.HasSuffix(line, " "+who+"\n") {
			return true
		}
	}
	return false
}
