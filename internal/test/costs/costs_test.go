package costs_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/tables"
	"github.com/zkrecipes/zkrecipes/recipes"
)

const root = "../../.."

// TestCosts plays each scene. It makes the table of docs/performance.md, and
// the comment of the recipe quotes its figures, and no others.
func TestCosts(t *testing.T) {
	var table strings.Builder
	played, scenes := 0, 0
	table.WriteString("recipe | what | cost\n---|---|---\n")
	for _, r := range all {
		quotes := rows(comments(read(t, r.file)), `(?m)- ([^:\n]+): (nothing|(?:\d+ [rtw]|wakes)[^:\n]+)$`)
		for _, s := range r.scenes {
			scenes++
			t.Run(r.name+"/"+s.what, func(t *testing.T) {
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					is := s.play(&world{t: t, World: w}).String()
					played++
					fmt.Fprintf(&table, "%s | %s | %s\n", r.name, options.ReplaceAllString(s.what, "`$0`"), is)
					if says := take(quotes, s.what); says != is {
						t.Errorf("%s: %s: the comment of %s has %q", s.what, is, r.file, says)
					}
				})
			})
		}
		for what, figures := range quotes {
			t.Errorf("%s: no scene: %s: %s", r.file, what, figures)
		}
	}
	if played < scenes {
		return // -run has left some out
	}
	tables.Made(t, filepath.Join(root, "docs/performance.md"), "costs", table.String())
}

// options are written as code.
var options = regexp.MustCompile(`With[A-Z]\w+`)

// rows finds pairs in a text, without the marks of code.
func rows(text, form string) map[string]string {
	found := map[string]string{}
	for _, m := range regexp.MustCompile(form).FindAllStringSubmatch(strings.ReplaceAll(text, "`", ""), -1) {
		found[m[1]] = m[2]
	}
	return found
}

func take(rows map[string]string, what string) string {
	defer delete(rows, what)
	return rows[what]
}

// comments returns a Go file with each item of a list in a comment on one line.
func comments(source string) string {
	return regexp.MustCompile(`\n//     (\S)`).ReplaceAllString(source, " $1")
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// cost is what clients send, and what that does to others.
type cost struct {
	requests     int64 // without pings
	transactions int64
	watches      int // more of them
	woken        int // other clients that get events
}

func (c cost) String() string {
	var parts []string
	for _, p := range []struct {
		n         int
		one, many string
	}{
		{int(c.requests), "1 request", "%d requests"},
		{int(c.transactions), "1 transaction", "%d transactions"},
		{c.watches, "1 watch", "%d watches"},
		{c.woken, "wakes 1", "wakes %d"},
	} {
		switch p.n {
		case 0:
		case 1:
			parts = append(parts, p.one)
		default:
			parts = append(parts, fmt.Sprintf(p.many, p.n))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// world is the stage of a scene.
type world struct {
	t *testing.T
	*bubble.World
	clients []*traffic
}

func (w *world) client() (*framework.Client, *traffic) {
	name, of := fmt.Sprint("client ", len(w.clients)), &traffic{}
	w.clients = append(w.clients, of)
	return w.Connect(name, framework.WithDialer(of.dial(w.ClientNet(name).Dial))), of
}

func settle() {
	synctest.Wait()
	time.Sleep(time.Millisecond)
	synctest.Wait()
}

// cost has a client do something, and says what that costs all clients, until
// all of their requests are answered.
func (w *world) cost(by *traffic, do func()) cost {
	settle()
	watches := w.WatchCount()
	before := make([][3]int64, len(w.clients))
	for i, c := range w.clients {
		before[i] = [3]int64{c.requests.Load(), c.transactions.Load(), c.events.Load()}
	}
	do()
	settle()
	sum := cost{watches: max(0, w.WatchCount()-watches)}
	for i, c := range w.clients[:len(before)] {
		sum.requests += c.requests.Load() - before[i][0]
		sum.transactions += c.transactions.Load() - before[i][1]
		if c != by && c.events.Load() > before[i][2] {
			sum.woken++
		}
	}
	return sum
}

func (w *world) acquire(a recipes.Acquirer) *recipes.Lease {
	return bubble.Acquire(w.t, context.Background(), a)
}

// join begins an Acquire.
func (w *world) join(a recipes.Acquirer) <-chan bubble.Grant {
	g := bubble.Acquiring(context.Background(), a)
	settle()
	return g
}

func (w *world) granted(g <-chan bubble.Grant) *recipes.Lease {
	is := bubble.Granted(w.t, g)
	if is.Err != nil {
		w.t.Fatal(is.Err)
	}
	return is.Lease
}

func (w *world) release(l *recipes.Lease) { bubble.Release(w.t, l) }
