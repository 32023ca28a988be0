package transcripts_test

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"
)

// kind says what a line is about.
type kind int

// The lines of a client in one instant have this order. It is that of causes,
// since a message takes time: what is heard in an instant answers nothing that
// is sent in it.
const (
	done  kind = iota // what the program does
	heard             // from a server
	told              // to the program
	sent              // to a server
)

var arrows = map[kind]string{done: "   ", heard: "◀──", told: "  =", sent: "──▶"}

// line is a line of a transcript. Each operation of a request has a row.
type line struct {
	at      time.Time
	client  string
	kind    kind
	by      int         // the goroutine of the program that does it or is told it
	on      *connection // where it is heard or sent
	rows    []row
	pending bool // it is a request that was not answered yet
	plain   bool // it is a read without a watch
}

type row struct{ what, answer string }

func (l *line) compare(o *line) int {
	return cmp.Or(l.at.Compare(o.at), cmp.Compare(l.client, o.client), cmp.Compare(l.kind, o.kind),
		cmp.Compare(l.by, o.by), l.on.compare(o.on))
}

// sorted sorts lines. Reads that travel together, which a semaphore sends from
// two goroutines, are sorted by what they say.
func sorted(lines []*line) []*line {
	slices.SortStableFunc(lines, (*line).compare)
	for i := 0; i < len(lines); {
		end := i + 1
		for end < len(lines) && lines[i].plain && lines[end].plain && lines[i].compare(lines[end]) == 0 {
			end++
		}
		slices.SortFunc(lines[i:end], func(a, b *line) int { return cmp.Compare(a.rows[0].what, b.rows[0].what) })
		i = end
	}
	return lines
}

// tape records the lines of a scene.
type tape struct {
	mu    sync.Mutex // guards what follows, and all connections
	began time.Time
	lines []*line
}

// begin begins the scene: what was before is not part of it.
func (t *tape) begin() {
	synctest.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.began, t.lines = time.Now(), nil
}

func (t *tape) add(l *line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.addLocked(l)
}

func (t *tape) addLocked(l *line) {
	l.at = time.Now()
	t.lines = append(t.lines, l)
}

// end returns the transcript.
func (t *tape) end() string {
	synctest.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	var text strings.Builder
	n, last := namer{map[string]int{}, map[string]int{}}, time.Time{}
	for _, l := range sorted(t.lines) {
		at, who, arrow := "", l.client, arrows[l.kind]
		if l.at != last {
			at, last = fmt.Sprintf("%.3f", l.at.Sub(t.began).Seconds()), l.at
		}
		for _, r := range l.rows {
			if l.pending {
				r.answer = "no answer"
			}
			what := fmt.Sprintf("%8s  %s %s  %-36s  ", at, who, arrow, n.short(r.what))
			fmt.Fprintln(&text, strings.TrimRight(what+n.short(r.answer), " "))
			at, who, arrow = "", " ", "   "
		}
	}
	return text.String()
}

// namer shortens names: it numbers ids and sessions as they appear.
type namer struct{ ids, sessions map[string]int }

var (
	protection = regexp.MustCompile(`_c_[0-9a-f-]{36}-`)
	sessionID  = regexp.MustCompile(`session \d+`)
	zeros      = regexp.MustCompile(`-0+(\d)`)
)

func (n namer) short(text string) string {
	text = protection.ReplaceAllStringFunc(text, func(id string) string { return fmt.Sprintf("#%d-", number(n.ids, id)) })
	text = sessionID.ReplaceAllStringFunc(text, func(id string) string { return fmt.Sprint("session ", number(n.sessions, id)) })
	return zeros.ReplaceAllString(text, "-$1")
}

func number(of map[string]int, what string) int {
	if of[what] == 0 {
		of[what] = len(of) + 1
	}
	return of[what]
}
