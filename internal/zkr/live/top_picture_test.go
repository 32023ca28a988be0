package live

import (
	"fmt"
	"html"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/tables"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// README's picture of zkr top is what it draws for locks of a small estate.
func TestTopPicture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := testutil.Start(t, testutil.InMemory())
		fatal := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		clients := map[string]*framework.Client{}
		in := func(who string) (*framework.Client, recipes.DataOption) {
			host, _, _ := strings.Cut(who, " ")
			if clients[host] == nil {
				clients[host] = zkrtest.Dial(t, e)
			}
			return clients[host], recipes.WithData([]byte(who))
		}
		begin := func(acquire func() error) {
			go func() { _ = acquire() }() // ends with the ensemble
			synctest.Wait()
			time.Sleep(1700 * time.Millisecond)
		}
		lock := func(path, who string) *locks.Mutex {
			client, data := in(who)
			m, err := locks.NewMutex(client, path, data)
			fatal(err)
			begin(func() error { _, err := m.Acquire(t.Context()); return err })
			return m
		}
		client, data := in("web-1 pid 4711: frontend")
		election, err := leader.New(client, "/app/leader", data)
		fatal(err)
		begin(func() error { _, err := election.Acquire(t.Context()); return err })
		for _, who := range []string{"web-1 pid 4711: frontend", "web-2 pid 388: frontend"} {
			client, data := in(who)
			permits, err := semaphore.New(client, "/app/uploads", 3, data)
			fatal(err)
			begin(func() error { _, err := permits.Acquire(t.Context()); return err })
		}
		lock("/app/reports/daily", "batch-1 pid 812: report.sh")
		lock("/app/accounts/17", "web-2 pid 388: frontend")
		lock("/app/orders/4711", "web-3 pid 52: frontend")
		for _, host := range []string{"web-1 pid 4711: frontend", "web-2 pid 388: frontend", "batch-1 pid 812: export.sh"} {
			lock("/app/orders/4711", host)
		}
		lock("/app/reports/daily", "batch-2 pid 97: report.sh")

		from := collectorAt(t, e, "/app", 500)
		tt := startTopAt(t, "/app", from, 112, 9)
		tt.see(0, "zkr top /app: 5 lines, 4 waiting")
		time.Sleep(2 * time.Second)
		fatal(clients["web-3"].Close())
		tt.see(2, "/app/orders/4711", "web-1")
		tt.press(tcell.KeyDown)
		tables.File(t, "../../../docs/pictures/top.svg", tt.svg())
		tt.cancel(nil)
		<-tt.ended
	})
}

// svg draws what the terminal shows: a text for each row, with the styles that
// zkr top uses.
func (tt *topTest) svg() string {
	const cell, row, margin = 8, 18, 12 // pixels
	tt.screen.mu.Lock()
	defer tt.screen.mu.Unlock()
	cells, width, height := tt.screen.GetContents()
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" role="img" aria-label="zkr top">`+"\n",
		width*cell+2*margin, height*row+2*margin)
	out.WriteString("<style>text{font:13.3px monospace;fill:#e6edf3;white-space:pre}.b{font-weight:bold}.u{text-decoration:underline}.r{fill:#0d1117}</style>\n")
	out.WriteString(`<rect width="100%" height="100%" rx="6" fill="#0d1117"/>` + "\n")
	for y := range height {
		for x := 0; x < width; {
			begin, style, text := x, cells[y*width+x].Style, ""
			for ; x < width && cells[y*width+x].Style == style; x++ {
				text += string(cells[y*width+x].Runes)
			}
			_, _, attributes := style.Decompose()
			class := ""
			for _, a := range []struct {
				mask tcell.AttrMask
				name string
			}{{tcell.AttrBold, "b "}, {tcell.AttrUnderline, "u "}, {tcell.AttrReverse, "r "}} {
				if attributes&a.mask != 0 {
					class += a.name
				}
			}
			if attributes&tcell.AttrReverse != 0 {
				fmt.Fprintf(&out, `<rect x="%d" y="%d" width="%d" height="%d" fill="#e6edf3"/>`, margin+begin*cell, margin+y*row, (x-begin)*cell, row)
			}
			if text = strings.TrimRight(text, " \x00"); text != "" {
				fmt.Fprintf(&out, `<text class="%s" x="%d" y="%d" textLength="%d" xml:space="preserve">%s</text>`+"\n",
					strings.TrimSpace(class), margin+begin*cell, margin+y*row+13, len([]rune(text))*cell, html.EscapeString(text))
			}
		}
	}
	out.WriteString("</svg>\n")
	return out.String()
}
