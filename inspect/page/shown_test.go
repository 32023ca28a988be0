package page_test

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/inspect/page"
	"github.com/zkrecipes/zkrecipes/internal/identity"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/untrusted"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestWaitersInOrder: Now shows the token of a line and who waits for it in
// order, ten contenders in all, the later ones folded; and who was asked to
// release.
func TestWaitersInOrder(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		watch := page.NewWatch()
		held := bubble.Acquire(t, t.Context(), mutex(t, w.Connect("holder", watch.Option()), "/app/x", "web-0 pid 1"))
		revoked := held.Revoked()
		for i := range 11 {
			wait(t, w, mutex(t, w.ConnectNext(), "/app/x", fmt.Sprintf("web-%d pid 1", i+1)), "/app/x", i+2)
		}
		p := of(t, w, page.WithWatch(watch))
		body := sees(t, p, "/", "token "+tokenText(t, held.Token().String()), "6 more waiters, and 2 that were not read")
		if strings.Contains(body, "asked to release") {
			t.Error("somebody was asked to release")
		}
		before, later, _ := strings.Cut(body, "<details")
		for i, part := range []string{before, later} {
			var got []string
			for _, found := range regexp.MustCompile(`>(\d+\. web-\d+ pid 1)<`).FindAllStringSubmatch(part, -1) {
				got = append(got, found[1])
			}
			var want []string
			for place := []int{1, 4}[i]; place < []int{4, 10}[i]; place++ {
				want = append(want, fmt.Sprintf("%d. web-%d pid 1", place, place))
			}
			if !slices.Equal(got, want) {
				t.Errorf("it shows %q, want %q", got, want)
			}
		}
		c := w.ConnectNext()
		asked := func(path string) {
			t.Helper()
			data, _, err := c.Get(t.Context(), path)
			must(t, err)
			_, err = c.Set(t.Context(), path, identity.Request(data), -1)
			must(t, err)
		}
		children := w.Children("/app/x")
		slices.SortFunc(children, func(a, b string) int { return strings.Compare(a[len(a)-10:], b[len(b)-10:]) })
		asked(held.Path())
		asked("/app/x/" + children[5])
		<-revoked
		for _, address := range []string{"/", lineAt("/app/x")} {
			body := sees(t, p, address)
			for _, who := range []string{"web-0 pid 1", "web-5 pid 1"} {
				if !regexp.MustCompile(who + `</span> <span class="tag">asked to release`).MatchString(body) {
					t.Errorf("%s: %s was not asked to release:\n%s", address, who, body)
				}
			}
			if n := strings.Count(body, "asked to release</span>"); n != 2 {
				t.Errorf("%s: %d were asked", address, n)
			}
		}
		sees(t, p, lineAt("/app/x"), `data-label="What">asked to release`)
		bubble.Release(t, held)
	})
}

// TestWaitersBehindManyHolders: where the holders are all that is read, Now
// folds no waiter, and says how many more there are.
func TestWaitersBehindManyHolders(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		lock := func(i int) *rwlock.RWLock {
			l, err := rwlock.New(w.ConnectNext(), "/app/x", recipes.WithData([]byte(fmt.Sprint("web-", i, " pid 1"))))
			must(t, err)
			return l
		}
		for i := range 10 {
			bubble.Acquire(t, t.Context(), lock(i).Reader())
		}
		for i := range 3 {
			wait(t, w, lock(10+i).Writer(), "/app/x", 11+i)
		}
		p := of(t, w)
		if body := sees(t, p, "/", `<span class="quiet">and 2 that were not read</span></td>`); strings.Contains(body, "<details") {
			t.Errorf("it folds something:\n%s", body)
		}
	})
}

// TestMostLines: of more than 200 lines those with the most waiters are shown,
// and then those that are held for the longest time, whatever was read; and the
// page says that it leaves some out.
func TestMostLines(t *testing.T) {
	zkrtest.WithHeld(t, 250, func(t *testing.T, e *testutil.Embedded, c *framework.Client) {
		p := page.New(e.Servers(), page.WithClient(framework.WithDialer(e.Dial)))
		defer p.Close()
		follow(t, p, "topic=")
		sees(t, p, "/", "250 lines, 0 waiting")
		time.Sleep(aLook)
		again := func(i int) { // it is granted to the next one, which the page sees
			t.Helper()
			must(t, c.Delete(t.Context(), zkrtest.HeldNode(i, 0), -1))
			zkrtest.Create(t, c, zkrtest.HeldNode(i, 1))
		}
		for i := range 40 {
			again(i)
		}
		time.Sleep(aLook)
		for i := range 5 { // they are contended, too
			zkrtest.Create(t, c, zkrtest.HeldNode(i, 2))
		}
		time.Sleep(aLook)
		shown := func(address string, texts ...string) (lines []string) {
			for _, found := range regexp.MustCompile(`<a href="line[^>]*>(/locks/\d+)<`).FindAllStringSubmatch(sees(t, p, address, texts...), -1) {
				lines = append(lines, found[1])
			}
			if len(lines) != 200 {
				t.Errorf("%s: %d lines", address, len(lines))
			}
			return lines
		}
		const some = "50 more lines not shown, and not read: some may be held for longer. Use the filter."
		byAge, byWaiting := shown("/?sort=age", some), shown("/", some)
		for i := range 40 {
			if at := slices.Index(byAge, zkrtest.HeldDir(i)); at >= 0 {
				t.Errorf("%s is new, and shown as the %d. by age", zkrtest.HeldDir(i), at+1)
			}
			if at := slices.Index(byWaiting, zkrtest.HeldDir(i)); at >= 0 != (i < 5) || at >= 5 {
				t.Errorf("%s is shown as the %d. by waiters", zkrtest.HeldDir(i), at+1)
			}
		}
		for i := range 60 {
			again(60 + i)
		}
		time.Sleep(aLook)
		shown("/?sort=age", "50 more lines not shown. Use the filter.") // all that are held for longer are among them
	})
}

// TestShownDoctor: the command for the doctor names exactly the servers and the
// chroot of the page, whatever these are.
func TestShownDoctor(t *testing.T) {
	for _, name := range untrusted.Names {
		servers := "127.0.0.1:1,127.0.0.1:2/app/" + strings.ReplaceAll(name, "/", "|")
		p := page.New(servers)
		commands := commandsOf(sees(t, p, "/ensemble", "zkr doctor --servers"))
		if len(commands) != 1 {
			t.Errorf("%q: commands %q", name, commands)
		}
		for _, command := range commands {
			pasted(t, command, servers)
		}
		p.Close()
	}
}

// TestServersThatTellNothing: a server that refuses the word has told nothing,
// neither has one that closes the connection without a word or tells something
// else, and what one tells is not obeyed.
func TestServersThatTellNothing(t *testing.T) {
	var servers []string
	for _, answer := range []string{
		"srvr is not executed because it is not in the whitelist.\n", "", "Mode\nLatency\n\x00\xff" + strings.Repeat("x", 100_000),
		"Zookeeper version: <script>window.ran=true</script>\u202e-x\nMode: \x1b[2J\nConnections: 7\n",
	} {
		servers = append(servers, tells(t, answer).address)
	}
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, gone.Close())
	servers = append(servers, gone.Addr().String())
	p := page.New(strings.Join(servers, ","))
	defer p.Close()
	body := sees(t, p, "/ensemble")
	got := toldRows(body)
	const none = " not told not told not told not told"
	want := []string{
		servers[0] + none, servers[1] + none, servers[2] + none,
		servers[3] + ` &#34;\x1b[2J&#34; &#34;&lt;script&gt;window.ran=true&lt;/script&gt;\u202e&#34; not told 7`, servers[4] + " not reached not told not told not told",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// TestTheStreamBeginsAsThePage: what a stream sends first has the same nodes as
// the page that was loaded, so that the script replaces none of them and the
// focus stays.
func TestTheStreamBeginsAsThePage(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		p := of(t, w, page.WithRoots("/app"), page.WithWatch(page.NewWatch()))
		for topic, address := range map[string]string{"": "/", "process": "/process", "line&path=/app/x": lineAt("/app/x")} {
			sees(t, p, address)
			_, loaded, _ := strings.Cut(sees(t, p, address), `<main id="content" tabindex="-1">`)
			loaded, _, _ = strings.Cut(loaded, "</main>")
			f := follow(t, p, "topic="+topic)
			synctest.Wait()
			_, sent, _ := strings.Cut(f.got(), "event: content\ndata: ")
			sent, _, _ = strings.Cut(sent, "\n\n")
			if sent = strings.ReplaceAll(sent, "\ndata: ", "\n"); sent != loaded || loaded == "" {
				t.Errorf("%s: loaded %q, and then got %q", address, loaded, sent)
			}
		}
	})
}

// TestAges: since when a line is held and since when others wait are the times
// that the ensemble has, or of the grant that the page has seen, and each age
// counts from there.
func TestAges(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		cells := regexp.MustCompile(`data-label="For" class="age"><time datetime="([^"]*)"( data-most)?[^>]*>([^<]*)</time>|">(\d+)\. [^<]*</span> <span class="quiet">for <time datetime="([^"]*)">([^<]*)<`)
		shows := func(p *page.Page, want func() []string) {
			t.Helper()
			var got []string
			for _, found := range cells.FindAllStringSubmatch(sees(t, p, "/"), -1) {
				got = append(got, strings.Join(strings.Fields(strings.Join(found[1:], " ")), " "))
			}
			if want := want(); !slices.Equal(got, want) { // no time has passed since
				t.Errorf("it shows %q, want %q", got, want)
			}
		}
		stamp := func(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }
		joined := func() time.Time { // by the ensemble's clock
			t.Helper()
			l, err := inspect.Read(t.Context(), w.ConnectNext(), "/app/x")
			must(t, err)
			return append(l.Holders, l.Waiting...)[len(l.Holders)+len(l.Waiting)-1].Since
		}
		held := bubble.Acquire(t, t.Context(), mutex(t, w.ConnectNext(), "/app/x", "web-1 pid 1"))
		first := joined()
		time.Sleep(90 * time.Second)
		next := bubble.Acquiring(t.Context(), mutex(t, w.ConnectNext(), "/app/x", "web-2 pid 2"))
		w.InLine("/app/x", 2)
		second := joined()
		time.Sleep(12 * time.Second)
		p := of(t, w)
		shows(p, func() []string {
			return []string{stamp(first) + " data-most ≤" + ageText(first), "1 " + stamp(second) + " " + ageText(second)}
		})

		f := follow(t, p, "topic=")
		time.Sleep(aLook)
		bubble.Release(t, held)
		held = bubble.Granted(t, next).Lease
		granted := time.Now()
		time.Sleep(3 * time.Second)
		_, shown, _ := strings.Cut(sees(t, p, "/"), `data-label="For" class="age"><time datetime="`)
		shown, _, _ = strings.Cut(shown, `"`)
		since, err := time.Parse(time.RFC3339Nano, shown)
		must(t, err)
		if since.Before(granted.Add(-time.Millisecond)) || since.After(granted.Add(aLook)) {
			t.Errorf("the grant at %v is shown as of %v", granted, since)
		}
		f.leave()
		shows(p, func() []string { return []string{stamp(since) + " " + ageText(since)} })
		bubble.Release(t, held)
	})
}

// TestLastLogLines: a watch remembers the last 100 lines of a log from level
// info on, the latest first, with the fields of their logger.
func TestLastLogLines(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		watch := page.NewWatch()
		log := watch.Tee(nil).With(zap.String("who", "x"))
		for i := range 150 {
			log.Debug("no")
			log.Info(fmt.Sprint("line ", i), zap.Int("n", i))
		}
		var got, want []string
		for _, found := range regexp.MustCompile(`</b> (.*)</li>`).FindAllStringSubmatch(sees(t, of(t, w, page.WithWatch(watch)), "/process"), -1) {
			got = append(got, found[1])
		}
		for i := 149; i >= 50; i-- {
			want = append(want, fmt.Sprintf("line %d  n=%[1]d  who=x", i))
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q\nwant %q", got, want)
		}
	})
}
