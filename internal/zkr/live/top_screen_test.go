package live

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/look"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// topTest is zkr top on a simulated terminal.
type topTest struct {
	t      *testing.T
	screen *copied
	ended  chan error
	cancel context.CancelCauseFunc
}

// copied is a simulated terminal that copies what it shows.
type copied struct {
	tcell.SimulationScreen

	mu   sync.Mutex // guards rows
	rows []string
}

func (c *copied) Show() {
	c.SimulationScreen.Show()
	cells, width, height := c.GetContents()
	var rows []string
	for y := range height {
		var row strings.Builder
		for _, cell := range cells[y*width : (y+1)*width] {
			row.WriteString(string(cell.Runes))
		}
		rows = append(rows, strings.TrimRight(row.String(), " \x00"))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rows = rows
}

// collectorOf returns a collector with a client of its own.
func collectorOf(t *testing.T, e *testutil.Embedded, perSecond int) *look.Collector {
	t.Helper()
	return collectorAt(t, e, "/locks", perSecond)
}

func collectorAt(t *testing.T, e *testutil.Embedded, path string, perSecond int) *look.Collector {
	t.Helper()
	client := zkrtest.Dial(t, e)
	if err := client.WaitConnected(t.Context()); err != nil {
		t.Fatal(err)
	}
	return look.NewCollector(client, path, perSecond)
}

// startTop starts zkr top. It must be ended by the test.
func startTop(t *testing.T, from *look.Collector, width, height int) *topTest {
	t.Helper()
	return startTopAt(t, "/locks", from, width, height)
}

func startTopAt(t *testing.T, path string, from *look.Collector, width, height int) *topTest {
	t.Helper()
	screen := &copied{SimulationScreen: tcell.NewSimulationScreen("UTF-8")}
	if err := screen.Init(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(screen.Fini)
	screen.SetSize(width, height)
	ctx, cancel := context.WithCancelCause(t.Context())
	shown := &top{path: path, interval: time.Second, rate: requestRate(500)}
	s := newTopScreen(shown, screen, from)
	tt := &topTest{t: t, screen: screen, ended: make(chan error, 1), cancel: cancel}
	go func() { tt.ended <- s.run(ctx) }() // ends with ctx
	return tt
}

// text returns what the terminal shows, a line for each row.
func (tt *topTest) text() []string {
	synctest.Wait()
	tt.screen.mu.Lock()
	defer tt.screen.mu.Unlock()
	return tt.screen.rows
}

// see waits until a row of the terminal has all of some texts in it.
func (tt *topTest) see(row int, texts ...string) {
	tt.t.Helper()
	for range 100 {
		rows := tt.text()
		found := row < len(rows)
		for _, text := range texts {
			found = found && strings.Contains(rows[row], text)
		}
		if found {
			return
		}
		time.Sleep(500 * time.Millisecond)
	}
	tt.t.Fatalf("row %d has no %q:\n%s", row, texts, strings.Join(tt.text(), "\n"))
}

func (tt *topTest) press(keys ...any) {
	for _, key := range keys {
		switch key := key.(type) {
		case tcell.Key:
			tt.screen.InjectKey(key, 0, tcell.ModNone)
		case string:
			for _, r := range key {
				tt.screen.InjectKey(tcell.KeyRune, r, tcell.ModNone)
			}
		}
		synctest.Wait()
	}
}

// end waits until zkr top has ended.
func (tt *topTest) end() error {
	tt.t.Helper()
	select {
	case err := <-tt.ended:
		return err
	case <-time.After(time.Minute):
		tt.t.Fatal("it does not end")
		return nil
	}
}

// The most contended lock comes first, changes are shown, keys are obeyed, and
// the terminal may change its size.
func TestTopScreen(t *testing.T) {
	zkrtest.WithHeld(t, 30, func(t *testing.T, e *testutil.Embedded, c *framework.Client) {
		zkrtest.Create(t, c, zkrtest.HeldNode(20, 1))
		from := collectorOf(t, e, 500)
		tt := startTop(t, from, 100, 13)
		tt.see(0, "zkr top /locks: 30 lines, 1 waiting; ", "at most 500/s", "by waiting")
		tt.see(1, "LOCK", "WAIT", "HELD", "HOLDER", "OLDEST", "GRANTS/s")
		tt.see(2, "/locks/00020 ", " 1 ", "<", " holder ", "0.0")
		tt.see(3, "/locks/00000 ", " 0 ")
		tt.see(11, "/locks/00008")
		tt.see(12, "q quit")
		for n := range 3 {
			zkrtest.Create(t, c, zkrtest.HeldNode(5, n+1))
		}
		tt.see(2, "/locks/00005 ", " 3 ")
		tt.see(3, "/locks/00020 ")
		if err := c.Delete(t.Context(), zkrtest.HeldNode(5, 0), -1); err != nil {
			t.Fatal(err)
		}
		tt.see(2, "/locks/00005 ", " 2 ", "0.1") // a grant was seen

		tt.press("s") // by grants
		tt.see(0, "by grants")
		tt.press("S") // back
		tt.see(0, "by waiting")
		tt.press("ssss", tcell.KeyPgDn, tcell.KeyPgDn, tcell.KeyPgDn, tcell.KeyPgDn, tcell.KeyUp)
		tt.see(11, "/locks/00029")
		tt.press(tcell.KeyPgUp, tcell.KeyPgUp, tcell.KeyPgUp, tcell.KeyPgUp, "j", "k")
		tt.see(2, "/locks/00000")
		tt.see(12, "row 1 of 30")
		tt.press("G")
		tt.see(12, "row 30 of 30")
		tt.see(11, "/locks/00029")
		tt.press("g ")
		tt.see(12, "row 11 of 30")
		tt.press("b", tcell.KeyEnd, tcell.KeyHome, tcell.KeyDown)
		tt.see(12, "row 2 of 30")
		tt.press("?")
		tt.see(2, "up, k and down, j")
		tt.see(12, "any key goes back")
		tt.press("q")
		tt.see(12, "row 2 of 30", "? keys")
		tt.press(tcell.KeyHome)

		tt.press("/0005x", tcell.KeyBackspace2)
		tt.see(12, "filter: 0005_")
		tt.press(tcell.KeyEnter)
		tt.see(0, "only 0005")
		tt.see(2, "/locks/00005")
		if row := tt.text()[3]; row != "" {
			t.Errorf("below it stands %q", row)
		}
		tt.press(tcell.KeyDown, tcell.KeyEnter)
		tt.see(1, "/locks/00005: mutex or election (selector), held, 2 waiting")
		tt.see(2, "holds", "exclusive", "session 0x", "_c_")
		tt.see(4, "waits, 2.")
		if err := c.Delete(t.Context(), zkrtest.HeldNode(5, 1), -1); err != nil {
			t.Fatal(err)
		}
		tt.see(1, "held, 1 waiting")
		tt.press("q")
		tt.see(2, "/locks/00005")
		tt.press("/", tcell.KeyEscape)

		for _, size := range [][2]int{{30, 6}, {10, 3}, {3, 2}, {1, 1}, {200, 50}} {
			tt.screen.SetSize(size[0], size[1])
			if err := tt.screen.PostEvent(tcell.NewEventResize(size[0], size[1])); err != nil {
				t.Fatal(err)
			}
			tt.text()
		}
		tt.see(2, "/locks/00000")
		tt.see(31, "/locks/00029")
		tt.press("q")
		if err := tt.end(); err != nil {
			t.Error(err)
		}
	})
}

// Without an ensemble it says so and goes on, and it sees the ensemble again.
func TestTopLosesTheEnsemble(t *testing.T) {
	zkrtest.WithHeld(t, 2, func(t *testing.T, e *testutil.Embedded, c *framework.Client) {
		from := collectorOf(t, e, 500)
		tt := startTop(t, from, 120, 10)
		tt.see(0, "2 lines, 0 waiting")
		stopped := time.Now()
		if err := e.Stop(0); err != nil {
			t.Fatal(err)
		}
		tt.see(0, "NOT CONNECTED, 2 lines, 0 waiting")
		tt.see(2, "/locks/00000")
		// It says how old the rows are: since the last answer, which may have been
		// that to a ping, a third of the session timeout before.
		time.Sleep(8*time.Second - time.Since(stopped))
		_, ago, _ := strings.Cut(tt.text()[0], "0 waiting ")
		ago, _, _ = strings.Cut(ago, " ago")
		if age, err := time.ParseDuration(ago); err != nil || age < 7*time.Second || age > 12*time.Second {
			t.Errorf("8s after the stop: %q", tt.text()[0])
		}
		if err := e.Restart(0); err != nil {
			t.Fatal(err)
		}
		tt.see(0, "/locks: 2 lines, 0 waiting")
		why := errors.New("why")
		tt.cancel(why)
		if err := tt.end(); !errors.Is(err, why) {
			t.Errorf("error %v", err)
		}
	})
}

// The screen says that the path does not exist, and that znodes may not be
// read.
func TestTopSaysWhatItCannotSee(t *testing.T) {
	zkrtest.WithHeld(t, 0, func(t *testing.T, e *testutil.Embedded, c *framework.Client) {
		if err := c.Delete(t.Context(), "/locks", -1); err != nil {
			t.Fatal(err)
		}
		from := collectorOf(t, e, 0)
		tt := startTop(t, from, 100, 10)
		tt.see(0, "/locks: does not exist; ")
		for _, at := range []string{"/locks", "/locks/a", "/locks/b"} {
			acl := zk.WorldACL(zk.PermAll)
			if at != "/locks" {
				acl = zk.DigestACL(zk.PermAll, "user", "password")
			}
			if _, err := c.Create(t.Context(), at, nil, 0, acl...); err != nil {
				t.Fatal(err)
			}
		}
		tt.see(0, "/locks: 0 lines, 0 waiting, 2 znodes may not be read; ")
		tt.press("q")
		if err := tt.end(); err != nil {
			t.Error(err)
		}
	})
}

// printed is what one goroutine prints and another one reads meanwhile.
type printed struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *printed) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(text)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// A lost session does not end what prints rows for scripts: it is told once.
func TestTopPrintsAfterALostSession(t *testing.T) {
	zkrtest.WithHeld(t, 1, func(t *testing.T, e *testutil.Embedded, c *framework.Client) {
		from := collectorOf(t, e, 0)
		var out, errs printed
		shown := &top{path: "/locks", asJSON: true, interval: time.Second, rows: 20}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- shown.print(ctx, from, &out, &errs) }() // ends with ctx
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		if n := strings.Count(out.String(), "\n"); n != 3 {
			t.Errorf("%d rows in 2.5s", n)
		}
		if err := e.Pause(0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := e.Resume(0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		zkrtest.Create(t, c, zkrtest.HeldNode(0, 1)) // the first holder's session has ended
		synctest.Wait()
		before := strings.Count(out.String(), "\n")
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := strings.Count(out.String(), "\n") - before; n < 30 {
			t.Errorf("%d rows in the minute after", n)
		}
		if text := errs.String(); !strings.HasPrefix(text, "zkr: not connected: no rows until it is\n") || strings.Count(text, "\n") > 5 {
			t.Errorf("it printed %q", text)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
}

// Ctrl-C ends it from everywhere, also before the first look is done.
func TestTopCtrlC(t *testing.T) {
	zkrtest.WithHeld(t, 600, func(t *testing.T, e *testutil.Embedded, c *framework.Client) {
		for _, keys := range [][]any{{}, {"/a"}, {tcell.KeyEnter}} {
			from := collectorOf(t, e, 100)
			tt := startTop(t, from, 80, 10)
			tt.see(0, "first look; ")
			tt.press(keys...)
			tt.press(tcell.KeyCtrlC)
			if err := tt.end(); err != nil {
				t.Error(err)
			}
		}
	})
}

// Names and data of znodes cannot control the terminal.
func TestTopIsNotFooled(t *testing.T) {
	zkrtest.WithHeld(t, 0, func(t *testing.T, e *testutil.Embedded, c *framework.Client) {
		dir := "/locks/\x1b[2J\u202e日本"
		if _, err := c.Create(t.Context(), dir, nil, 0); err == nil {
			zkrtest.Create(t, c, dir+"/"+zkrtest.SomeID+"lock-0000000001")
		} else {
			dir = "/locks/\u202e日本" // the client or the ensemble refuses it
			if _, err := c.Create(t.Context(), dir, nil, 0); err != nil {
				t.Fatal(err)
			}
			zkrtest.Create(t, c, dir+"/"+zkrtest.SomeID+"lock-0000000001")
		}
		from := collectorOf(t, e, 0)
		tt := startTop(t, from, 100, 10)
		tt.see(2, `\u202e`)
		tt.press(tcell.KeyEnter)
		tt.see(1, `\u202e`)
		tt.press("/\x1b\u202e")
		for _, row := range tt.text() {
			if strings.ContainsAny(row, "\x1b\u202e") {
				t.Errorf("%q", row)
			}
		}
		tt.press(tcell.KeyCtrlC)
		if err := tt.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestTopOnce(t *testing.T) {
	t.Parallel()
	e := testutil.Start(t)
	inTwoOrders(t, e)
	show := func(args ...string) (int, string, string) {
		var out, complaints bytes.Buffer
		code := zkrtest.Run(append([]string{"top", "--servers", e.Servers()}, args...), &out, &complaints)
		return code, out.String(), complaints.String()
	}
	code, text, _ := show("--once", "/app")
	lines := strings.Split(text, "\n")
	if code != 0 || lines[0] != "2 lines below /app, 2 waiting" || !strings.HasPrefix(lines[1], "LOCK ") || !strings.Contains(lines[2], "/app/x ") ||
		!strings.Contains(lines[2], " web-1 ") || !strings.Contains(lines[3], `"web\x1b[2J-\"2\""`) || len(lines) != 5 {
		t.Errorf("exit code %d; it printed\n%s", code, text)
	}
	code, raw, _ := show("--once", "--json", "--sort", "path", "--rows", "1", "--filter", "/y", "/")
	var row look.Row
	if err := json.Unmarshal([]byte(raw), &row); err != nil || code != 0 || row.Path != "/app/y" || row.Waiting != 1 || row.Sessions != 2 || row.HeldExact {
		t.Errorf("exit code %d, error %v; it printed %q", code, err, raw)
	}
	if code, _, complaint := show("/app"); code != cli.ExitUsage || !strings.Contains(complaint, "--once") {
		t.Errorf("without a terminal: exit code %d, %q", code, complaint)
	}
	for _, args := range [][]string{{"--interval", "0s"}, {"--rows", "0"}, {"--sort", "luck"}, {"--rate", "many"}, {"relative"}} {
		if code, _, _ := show(args...); code != cli.ExitUsage {
			t.Errorf("%q: exit code %d", args, code)
		}
	}
}

// Each look prints something, also if there is no line.
func TestTopPrintsNothingToShow(t *testing.T) {
	zkrtest.WithHeld(t, 1, func(t *testing.T, e *testutil.Embedded, c *framework.Client) {
		print := func(shown top) string {
			t.Helper()
			shown.interval, shown.rows = time.Second, 20
			var out, errs bytes.Buffer
			ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
			defer cancel()
			_ = shown.print(ctx, collectorAt(t, e, shown.path, 0), &out, &errs) // the time is up, or znodes may not be read
			return out.String()
		}
		if _, err := c.Create(t.Context(), "/none", nil, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Create(t.Context(), "/secret", nil, 0, zk.DigestACL(zk.PermAll, "user", "password")...); err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			shown top
			want  string
			times int
		}{
			{top{path: "/none", asJSON: true}, `{"path":"/none","exists":true,"lines":0}` + "\n", 3},
			{top{path: "/nope", asJSON: true}, `{"path":"/nope","exists":false,"lines":0}` + "\n", 3},
			{top{path: "/secret", asJSON: true, once: true}, `{"path":"/secret","exists":true,"lines":0,"unreadable":1}` + "\n", 1},
			{top{path: "/locks", asJSON: true, filter: "x"}, `{"path":"/locks","exists":true,"lines":1}` + "\n", 3},
			{top{path: "/secret", once: true}, "0 lines below /secret, 0 waiting, 1 znode may not be read\nLOCK", 1},
			{top{path: "/locks", once: true, filter: "x"}, "1 line below /locks, 0 waiting, none of them contains x\nLOCK", 1},
		} {
			if text := print(test.shown); strings.Count(text, test.want) != test.times {
				t.Errorf("%+v: it printed %q, want %d of %q", test.shown, text, test.times, test.want)
			}
		}
	})
}

// Sorted by an age, all lines are read as far as that needs it. The ages are
// the znodes' own, so they are right from the first look on.
func TestTopSortsByAge(t *testing.T) {
	zkrtest.WithHeld(t, 40, func(t *testing.T, e *testutil.Embedded, c *framework.Client) {
		time.Sleep(time.Minute)
		zkrtest.Away(t, c, zkrtest.HeldNode(0, 0))
		zkrtest.Create(t, c, zkrtest.HeldNode(0, 1)) // the youngest, and the first by its path
		zkrtest.Create(t, c, zkrtest.HeldNode(30, 1))
		time.Sleep(time.Second)
		zkrtest.Create(t, c, zkrtest.HeldNode(20, 1))
		from := collectorOf(t, e, 0)
		tt := startTop(t, from, 100, 13)
		tt.see(2, "/locks/00020")
		before := from.Sent()
		tt.press("ss", "g")
		tt.see(0, "by held")
		tt.see(2, "/locks/00001")
		if n := from.Sent() - before; n > 40 {
			t.Errorf("%d requests", n)
		}
		tt.press("G")
		tt.see(11, "/locks/00000")
		tt.press("sg")
		tt.see(0, "by oldest")
		tt.see(2, "/locks/00030")
		tt.see(3, "/locks/00020")
		tt.press(tcell.KeyCtrlC)
		if err := tt.end(); err != nil {
			t.Error(err)
		}
	})
}

// The contenders of a long line are scrolled.
func TestTopScrollsContenders(t *testing.T) {
	zkrtest.WithHeld(t, 1, func(t *testing.T, e *testutil.Embedded, c *framework.Client) {
		for n := range 30 {
			zkrtest.Create(t, c, zkrtest.HeldNode(0, n+1))
		}
		tt := startTop(t, collectorOf(t, e, 0), 100, 13)
		tt.see(2, "/locks/00000", " 30 ")
		tt.press(tcell.KeyEnter)
		tt.see(12, "1 to 10 of 31")
		tt.see(2, "holds ")
		tt.press(tcell.KeyPgDn)
		tt.see(2, "waits, 10.")
		tt.press("G")
		tt.see(12, "22 to 31 of 31")
		tt.see(11, "waits, 30.", "session 0x")
		tt.press("k")
		tt.see(12, "21 to 30 of 31")
		tt.press("g", "q")
		tt.see(12, "row 1 of 1")
		tt.press("q")
		if err := tt.end(); err != nil {
			t.Error(err)
		}
	})
}
