package page_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect/page"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/untrusted"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestNow: the page shows who holds, who waits, and the token as far as the
// ensemble knows it, without scripts and in one request.
func TestNow(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		held := bubble.Acquire(t, t.Context(), mutex(t, w.ConnectNext(), "/app/x", "web-1 pid 4711: sh"))
		wait(t, w, mutex(t, w.ConnectNext(), "/app/x", "web-2 pid 1"), "/app/x", 2)
		election, err := leader.New(w.ConnectNext(), "/app/leader", leader.WithID("one"))
		if err != nil {
			t.Fatal(err)
		}
		leads := bubble.Acquire(t, t.Context(), election)
		s, err := semaphore.New(w.ConnectNext(), "/app/pool", 3)
		if err != nil {
			t.Fatal(err)
		}
		permit := bubble.Acquire(t, t.Context(), s)
		p := of(t, w, page.WithRoots("/app"))
		token := tokenText(t, held.Token().String())
		body := sees(t, p, "/", "3 lines, 1 waiting", `<span role="status"></span>`, `<a href="line?path=%2fapp%2fx">/app/x</a>`, "web-1 pid 4711: sh", "web-2 pid 1", "mutex or election (selector)",
			"election (latch)", "leads", `aria-label="1 of 3 permits held"`)
		if n := strings.Count(body, `<i class="full">`); n != 1 {
			t.Errorf("%d filled permits", n)
		}
		sees(t, p, lineAt("/app/x"), "web-1 pid 4711: sh", "web-2 pid 1", "token "+token, "holds", "<svg", "waits, place 1, exclusive", "The last ten minutes")
		if body := sees(t, p, "/?filter=lead", "/app/leader", `value="lead"`); strings.Contains(body, "/app/x") {
			t.Error("the filter leaves /app/x")
		}
		sees(t, p, "/?sort=age", "/app/x", "/app/leader")
		sees(t, p, "/?filter=none", "No line whose path contains")
		sees(t, p, lineAt("/app/none"), "Nobody holds it or waits")
		bubble.Release(t, held, leads, permit)
	})
}

// tokenText is how the page shows a token.
func tokenText(t *testing.T, token string) string {
	t.Helper()
	var dir uint64
	var number uint32
	if _, err := fmt.Sscanf(token[:24], "%16x%8x", &dir, &number); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%#x.%d.*", dir, number)
}

// TestNothingWithoutViewers: a page has no session before somebody looks, makes
// no request once nobody does, and closes its client half a minute later.
func TestNothingWithoutViewers(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		held := bubble.Acquire(t, t.Context(), mutex(t, w.ConnectNext(), "/app/x", ""))
		p := of(t, w)
		sessions := len(w.Sessions())
		time.Sleep(time.Minute)
		if n := len(w.Sessions()); n != sessions {
			t.Errorf("%d sessions before anybody looks, %d without the page", n, sessions)
		}
		sees(t, p, "/", "/app/x")
		lists := func() int { return w.Cost()[testutil.OpGetChildren2] + w.Cost()[testutil.OpGetData] }
		w.ResetRequests()
		time.Sleep(20 * time.Second)
		if n, reads := len(w.Sessions()), lists(); n != sessions+1 || reads != 0 {
			t.Errorf("%d sessions, %d reads after somebody has looked", n-sessions, reads)
		}
		time.Sleep(time.Minute)
		if n := len(w.Sessions()); n != sessions {
			t.Errorf("%d sessions a minute later", n-sessions)
		}
		sees(t, p, "/", "/app/x") // it begins again
		bubble.Release(t, held)
	})
}

// TestOneLookForAll: ten viewers cost what one costs.
func TestOneLookForAll(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		held := bubble.Acquire(t, t.Context(), mutex(t, w.ConnectNext(), "/app/x", ""))
		network := w.Embedded.ClientNet("page")
		p := page.New(w.Servers(), page.WithClient(framework.WithDialer(network.Dial)))
		defer p.Close()
		var counts tally
		network.Control(counts.see)
		inLine := 1
		cost := func(viewers int) (lists, details int) {
			var all []*following
			for range viewers {
				all = append(all, follow(t, p, "topic="))
			}
			time.Sleep(2 * aLook)
			counts.take()
			for i := range 5 { // each is seen
				inLine++
				wait(t, w, mutex(t, w.ConnectNext(), "/app/x", fmt.Sprint(viewers, i)), "/app/x", inLine)
				time.Sleep(aLook)
			}
			lists, _, details = counts.take()
			for _, f := range all {
				f.leave()
			}
			return lists, details
		}
		lists, details := cost(1)
		more, moreDetails := cost(10)
		if lists < 5 || details < 4 || more*10 > lists*12 || moreDetails*10 > details*12 {
			t.Errorf("%d lists and %d details for one viewer, %d and %d for ten", lists, details, more, moreDetails)
		}
		bubble.Release(t, held)
	})
}

// TestOnlyWhatIsShownIsRead: of 300 lines 200 are shown, and the contenders of
// these are read; with a filter those that it leaves.
func TestOnlyWhatIsShownIsRead(t *testing.T) {
	zkrtest.WithHeld(t, 300, func(t *testing.T, e *testutil.Embedded, _ *framework.Client) {
		p := page.New(e.Servers(), page.WithClient(framework.WithDialer(e.Dial)))
		defer p.Close()
		var counts tally
		defer e.Control(counts.see)()
		sees(t, p, "/", "300 lines, 0 waiting", "100 more lines not shown")
		if _, read, reads := counts.take(); reads != 200 || len(read) != 200 {
			t.Errorf("%d reads of %d znodes", reads, len(read))
		}
		time.Sleep(5 * time.Second) // it rests four times as long as it has looked
		sees(t, p, "/?filter=/0029", zkrtest.HeldDir(290), zkrtest.HeldDir(299))
		if _, read, reads := counts.take(); reads != 10 || len(read) != 10 {
			t.Errorf("%d reads of %d znodes for ten lines", reads, len(read))
		}
	})
}

// TestMostDetails: viewers of different filters and of a line have one limit of
// 200 lines, and the line is read.
func TestMostDetails(t *testing.T) {
	zkrtest.WithHeld(t, 300, func(t *testing.T, e *testutil.Embedded, _ *framework.Client) {
		p := page.New(e.Servers(), page.WithClient(framework.WithDialer(e.Dial)))
		defer p.Close()
		var counts tally
		defer e.Control(counts.see)()
		for _, query := range []string{"&filter=/002", "&filter=/00", "line&path=" + zkrtest.HeldDir(299)} {
			follow(t, p, "topic="+query)
		}
		time.Sleep(5 * time.Second)
		_, read, reads := counts.take()
		if len(read) != 200 || reads != 200 {
			t.Errorf("%d reads of %d znodes, want 200", reads, len(read))
		}
		if read[zkrtest.HeldNode(299, 0)] != 1 {
			t.Error("the holder of the line was not read")
		}
	})
}

// TestStream: a change is sent within two looks, and what has not changed is
// not sent again. A stream ends after 20 seconds, and when the page is closed.
func TestStream(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		p := of(t, w)
		f := follow(t, p, "topic=&filter=x")
		time.Sleep(aLook)
		if got := f.got(); !strings.Contains(got, "Nothing is held") && !strings.Contains(got, "No line whose path") {
			t.Errorf("at first: %s", got)
		}
		held := bubble.Acquire(t, t.Context(), mutex(t, w.ConnectNext(), "/app/x", "web-1 pid 1"))
		time.Sleep(2 * aLook)
		if got := f.got(); !strings.Contains(got, "web-1 pid 1") || !strings.Contains(got, "event: at\ndata: 9") {
			t.Errorf("after a grant: %s", got)
		}
		time.Sleep(4 * time.Second)
		if got := f.got(); strings.Contains(got, "event: content") || !strings.Contains(got, "event: at") {
			t.Errorf("while nothing changes: %s", got)
		}
		time.Sleep(12 * time.Second)
		if !f.hasEnded() {
			t.Error("the stream has not ended after 20s")
		}
		f = follow(t, p, "topic=line&path=/app/x")
		time.Sleep(aLook)
		if got := f.got(); !strings.Contains(got, "web-1 pid 1") {
			t.Errorf("of one line: %s", got)
		}
		began := time.Now()
		p.Close()
		if !f.hasEnded() || time.Since(began) > time.Second {
			t.Errorf("the stream after Close: ended %t, in %v", f.hasEnded(), time.Since(began))
		}
		if answer := get(t, p, "/"); answer.Code != http.StatusServiceUnavailable {
			t.Errorf("after Close: status %d", answer.Code)
		}
		bubble.Release(t, held)
	})
}

// TestItsClientIsCutOff: a page without a connection says so, and keeps what it
// has.
func TestItsClientIsCutOff(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		held := bubble.Acquire(t, t.Context(), mutex(t, w.ConnectNext(), "/app/x", "web-1 pid 1"))
		network := w.Embedded.ClientNet("page")
		p := page.New(w.Servers(), page.WithClient(framework.WithDialer(network.Dial)))
		defer p.Close()
		f := follow(t, p, "topic=")
		time.Sleep(aLook)
		network.Cut()
		time.Sleep(15 * time.Second)
		if got := f.got(); !strings.Contains(got, `<span role="status">Not connected`) && !strings.Contains(got, `<span role="status">Not shown`) || !strings.Contains(got, "web-1 pid 1") {
			t.Errorf("cut off: %s", got)
		}
		network.Heal()
		time.Sleep(15 * time.Second)
		sees(t, p, "/", "1 line, 0 waiting", "web-1 pid 1")
		bubble.Release(t, held)
	})
}

// TestWrongHosts: hosts that would let everybody or nobody in are errors.
func TestWrongHosts(t *testing.T) {
	for _, names := range [][]string{{}, {"zk.example.com:8080"}, {""}, {"127.0.0.1:80"}, {"[::1]"}} {
		p := page.New("127.0.0.1:1", page.WithHosts(names...))
		if answer := get(t, p, "/"); answer.Code != http.StatusInternalServerError {
			t.Errorf("%q: status %d", names, answer.Code)
		}
		p.Close()
	}
}

// TestAccess: nothing is written by any request, hosts are checked, and no
// other site may frame or read the page.
func TestAccess(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		p := of(t, w, page.WithHosts("zk.example.com", "127.0.0.1", "::1"))
		for host, want := range map[string]int{
			"zk.example.com": 200, "ZK.example.com:8080": 200, "127.0.0.1:1": 200, "[::1]:8080": 200,
			"evil.example.com": 421, "zk.example.com.evil.com": 421, "": 421, "localhost": 421,
		} {
			answer := httptest.NewRecorder()
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			request.Host = host
			if p.ServeHTTP(answer, request); answer.Code != want {
				t.Errorf("host %q: status %d, want %d", host, answer.Code, want)
			}
		}
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions} {
			answer := httptest.NewRecorder()
			request := httptest.NewRequestWithContext(t.Context(), method, "/", nil)
			request.Host = "127.0.0.1"
			if p.ServeHTTP(answer, request); answer.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s: status %d", method, answer.Code)
			}
		}
		open := of(t, w)
		for _, address := range []string{"/", "/deadlocks", "/ensemble", "/style.css", "/script.js", "/nope"} {
			answer := get(t, open, address)
			for name, want := range map[string]string{
				"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin",
			} {
				if got := answer.Header().Get(name); got != want {
					t.Errorf("%s: %s is %q", address, name, got)
				}
			}
			policy := answer.Header().Get("Content-Security-Policy")
			for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "script-src 'self'"} {
				if !strings.Contains(policy, want) || strings.Contains(policy, "unsafe") {
					t.Errorf("%s: policy %q", address, policy)
				}
			}
			if inline := regexp.MustCompile(`(?i)<style|<script[^>]*>[^<]|\son[a-z]+=|\sstyle=|javascript:`).FindString(answer.Body.String()); inline != "" && strings.HasSuffix(answer.Header().Get("Content-Type"), "html; charset=utf-8") {
				t.Errorf("%s has inline code: %q", address, inline)
			}
		}
		if code := get(t, open, "/process").Code; code != http.StatusNotFound {
			t.Errorf("/process without a watch: status %d", code)
		}
		if answer := get(t, of(t, w, page.WithRoots("app")), "/"); answer.Code != http.StatusInternalServerError || !strings.Contains(answer.Body.String(), "WithRoots") {
			t.Errorf("a bad option: %d, %s", answer.Code, answer.Body)
		}
	})
}

// reading are the operations of a client that writes nothing.
var reading = map[testutil.Op]bool{
	testutil.OpGetData: true, testutil.OpGetChildren: true, testutil.OpGetChildren2: true, testutil.OpExists: true, testutil.OpMultiRead: true,
	testutil.OpSync: true, testutil.OpPing: true, testutil.OpCreateSession: true, testutil.OpCloseSession: true,
}

// TestRoots: whatever a request asks for, nothing is written, and nothing
// outside of the roots is read, not even a directory above them.
func TestRoots(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		inside := bubble.Acquire(t, t.Context(), mutex(t, w.ConnectNext(), "/a/app/x", "web-1 pid 1"))
		other := bubble.Acquire(t, t.Context(), mutex(t, w.ConnectNext(), "/b/y", "web-2 pid 2"))
		outside := bubble.Acquire(t, t.Context(), mutex(t, w.ConnectNext(), "/a/application", "secret pid 3"))
		p := of(t, w, page.WithRoots("/a/app", "/b", "/b/y", "/missing"), page.WithWatch(page.NewWatch()), page.WithData(), page.WithHistory(),
			page.WithGroup("/a/app/group", presence.LayoutMember), page.WithServices("/a/app/services"), page.WithCounter("/missing/counter"), page.WithBarrier("/b/barrier"))
		others := map[int64]bool{}
		for _, s := range w.Sessions() {
			others[s.ID] = true
		}
		var mu sync.Mutex
		var wrong []string
		seen := map[testutil.Op]bool{}
		stop := w.Control(func(r testutil.Request) testutil.Action {
			if others[r.Session] {
				return testutil.Pass()
			}
			ops, paths := []testutil.Op{r.Op}, []string{r.Path}
			for _, op := range r.Operations {
				ops, paths = append(ops, op.Op), append(paths, op.Path)
			}
			mu.Lock()
			defer mu.Unlock()
			seen[r.Op] = true
			for _, op := range ops {
				if !reading[op] {
					wrong = append(wrong, fmt.Sprint(op, " ", r.Path))
				}
			}
			for _, path := range paths {
				if r.Op != testutil.OpSync && path != "" && path != "/a/app" && path != "/b" && path != "/missing" && path != "/missing/counter" && !strings.HasPrefix(path, "/a/app/") && !strings.HasPrefix(path, "/b/") {
					wrong = append(wrong, fmt.Sprint(r.Op, " ", path))
				}
			}
			return testutil.Pass()
		})
		body := sees(t, p, "/", "/a/app/x", "/b/y", "2 lines")
		f := follow(t, p, "topic=deadlocks")
		for _, topic := range []string{"", "line&path=/a/app/x", "ensemble", "process"} {
			follow(t, p, "topic="+topic)
		}
		time.Sleep(12 * time.Second)
		sees(t, p, "/deadlocks", "No deadlock in 2 lines")
		for _, path := range []string{"/a/application", "/", "/a", "/b/../a/application", "/zookeeper/config", "", "x", "/a/app/../../zookeeper"} {
			answer := get(t, p, lineAt(path))
			if answer.Code != http.StatusNotFound {
				t.Errorf("%q: status %d", path, answer.Code)
			}
			body += answer.Body.String()
		}
		if strings.Contains(body+f.got(), "secret pid 3") {
			t.Error("it shows what is outside")
		}
		stop()
		bubble.Release(t, inside, other, outside)
		mu.Lock()
		defer mu.Unlock()
		if len(wrong) > 0 {
			t.Errorf("it has made the requests %q", wrong)
		}
		for _, op := range []testutil.Op{testutil.OpGetData, testutil.OpGetChildren2, testutil.OpMultiRead} {
			if !seen[op] {
				t.Errorf("no %v was seen", op)
			}
		}
	})
}

// TestHostileNamesAndData: whatever names and data znodes have, none of it is
// code, none changes the order of the text, and each shown command runs in a
// shell with exactly the path and nothing else.
func TestHostileNamesAndData(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, d := w.ConnectNext(), w.ConnectNext()
		for i, name := range untrusted.Names { // two locks each, in two orders
			first, second := "/app/"+name, "/app/2"+name
			one := bubble.Acquire(t, t.Context(), mutex(t, c, first, name+"\x1b[2J"))
			two := bubble.Acquire(t, t.Context(), mutex(t, d, second, fmt.Sprintf("web pid %d: %s", i+1, name)))
			if i == 0 { // one deadlock is enough of each session
				wait(t, w, mutex(t, d, first, "x"+name), first, 2)
				wait(t, w, mutex(t, c, second, "y"+name), second, 2)
			}
			t.Cleanup(func() { _ = one.Release(context.Background()); _ = two.Release(context.Background()) })
		}
		p := of(t, w, page.WithData())
		f := follow(t, p, "topic=deadlocks")
		time.Sleep(19 * time.Second)
		pages := map[string]string{"stream": f.got(), "/": sees(t, p, "/"), "/deadlocks": sees(t, p, "/deadlocks")}
		for _, name := range untrusted.Names {
			pages[name] = sees(t, p, lineAt("/app/"+name))
			pages["filter "+name] = sees(t, p, "/?filter="+strings.TrimPrefix(lineAt(name), "/line?path="))
			pages["none "+name] = get(t, p, lineAt(name)).Body.String()
		}
		bad := regexp.MustCompile(`(?i)<script[^>]*>[^<]|<img|<[a-z][^>]*\son[a-z]+\s*=`)
		values := regexp.MustCompile(`"[^"]*"`) // of attributes: a quote in them is escaped
		for at, body := range pages {
			if found := bad.FindString(values.ReplaceAllString(body, `""`)); found != "" {
				t.Errorf("%q has %q", at, found)
			}
			if i := strings.IndexFunc(body, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
				t.Errorf("%q has %q", at, body[max(0, i-20):min(len(body), i+20)])
			}
		}
		commands := commandsOf(pages["/deadlocks"])
		if len(commands) < 2 {
			t.Fatalf("%d commands in %s", len(commands), pages["/deadlocks"])
		}
		for _, command := range commands {
			pasted(t, command, "/app/"+untrusted.Names[0], "/app/2"+untrusted.Names[0])
		}
	})
}

// TestShownCommands: each hostile name in a deadlock of its own.
func TestShownCommands(t *testing.T) {
	for _, name := range untrusted.Names {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			c, d := w.ConnectNext(), w.ConnectNext()
			one := bubble.Acquire(t, t.Context(), mutex(t, c, "/"+name, ""))
			two := bubble.Acquire(t, t.Context(), mutex(t, d, "/b"+name, ""))
			t.Cleanup(func() { _ = one.Release(context.Background()); _ = two.Release(context.Background()) })
			wait(t, w, mutex(t, d, "/"+name, "d"), "/"+name, 2)
			wait(t, w, mutex(t, c, "/b"+name, "c"), "/b"+name, 2)
			p := of(t, w)
			follow(t, p, "topic=deadlocks")
			time.Sleep(19 * time.Second)
			commands := commandsOf(sees(t, p, "/deadlocks", `class="circle"`, "waits for", "session 0x"))
			if len(commands) != 2 {
				t.Errorf("%q: %q", name, commands)
			}
			for _, command := range commands {
				pasted(t, command, "/"+name, "/b"+name)
			}
		})
	}
}

// commandsOf returns the commands that a page shows, as a browser shows them.
func commandsOf(body string) (commands []string) {
	for _, found := range regexp.MustCompile(`(?s)<pre[^>]*><code>(.*?)</code>`).FindAllStringSubmatch(body, -1) {
		commands = append(commands, unescape.Replace(found[1]))
	}
	return commands
}

// htmlOf is how a template writes a text.
func htmlOf(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;", "+", "&#43;").Replace(text)
}

var unescape = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&#34;", `"`, "&#39;", "'", "&#43;", "+", "&amp;", "&")

// pasted pastes a command into a shell in which zkr prints its last argument:
// that must be one of the texts, and nothing else may happen.
func pasted(t *testing.T, command string, texts ...string) {
	t.Helper()
	cmd := exec.Command("sh")
	cmd.Dir, cmd.Stdin = t.TempDir(), strings.NewReader("zkr() { shift $(($# - 1)); printf %s \"$1\"; }\n"+command+"\n")
	out, err := cmd.CombinedOutput()
	if err != nil || !slices.Contains(texts, string(out)) {
		t.Errorf("%s\nhas the last word %q, %v; want one of %q", command, out, err, texts)
	}
	if made, err := os.ReadDir(cmd.Dir); err != nil || len(made) > 0 {
		t.Errorf("%s has created %v, %v", command, made, err)
	}
}

// TestNamed: groups, services, counters and barriers are shown by their names,
// and what is missing is empty.
func TestNamed(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		group, err := presence.NewGroup(c, "/app/web")
		if err != nil {
			t.Fatal(err)
		}
		node, err := group.Join(t.Context(), "web-1\u202e", nil)
		if err != nil {
			t.Fatal(err)
		}
		n, err := counter.New(c, "/app/orders")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.Add(t.Context(), 42); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/app/start/member-1", "/app/start/ready", "/app/services/billing/a", "/app/services/billing/b"} {
			if err := c.MakePersistentPath(t.Context(), path); err != nil {
				t.Fatal(err)
			}
		}
		p := of(t, w, page.WithRoots("/app"), page.WithGroup("/app/web", presence.LayoutMember), page.WithCounter("/app/orders"),
			page.WithBarrier("/app/start"), page.WithServices("/app/services"), page.WithGroup("/app/none", presence.LayoutMember))
		sees(t, p, "/", "1 member", `web-1\u202e`, ">42<", "1 there, ready: the round is open", "member-1", "1 service", "billing: 2 instances", "0 members")
		if _, err := c.Create(t.Context(), "/app/hidden", nil, 0, zk.DigestACL(zk.PermAll, "other", "x")...); err != nil {
			t.Fatal(err)
		}
		sees(t, of(t, w, page.WithServices("/app/hidden")), "/", zk.ErrNoAuth.Error())
		if answer := get(t, of(t, w, page.WithRoots("/app"), page.WithCounter("/other")), "/"); answer.Code != http.StatusInternalServerError {
			t.Errorf("outside of the roots: %d", answer.Code)
		}
		if err := node.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestData: the data of contenders are shown with WithData alone, and a
// kilobyte at most.
func TestData(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		held := bubble.Acquire(t, t.Context(), mutex(t, w.ConnectNext(), "/app/x", "my secret "+strings.Repeat("x", 2000)))
		if body := sees(t, of(t, w), lineAt("/app/x"), "session 0x"); strings.Contains(body, "my secret") {
			t.Error("the data are shown")
		}
		if body := sees(t, of(t, w, page.WithData()), lineAt("/app/x"), "my secret"); strings.Count(body, "x") > 1024+300 {
			t.Errorf("%d bytes are shown", len(body))
		}
		bubble.Release(t, held)
	})
}

// TestTimeline: holders are bars, as looked at: to the second while somebody
// looks. A time in which nobody looked is a gap, unless the page keeps a
// history: then it looks every five seconds.
func TestTimeline(t *testing.T) {
	bar := regexp.MustCompile(`<g class="tone\d"><title>(web-\d) pid 1, [^<]*</title><rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"`)
	for name, want := range map[string]struct {
		gaps int
		late time.Duration // how late a look may be
		held time.Duration // for how long a holder may have been seen
	}{
		"nobody":    {4, 0, 0}, // before the page began, and behind each look
		"a viewer":  {1, time.Second, 20 * time.Second},
		"a history": {1, 5 * time.Second, 20 * time.Second},
	} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			network := w.Embedded.ClientNet("page")
			var lists []time.Time
			network.Control(func(r testutil.Request) testutil.Action {
				if r.Op == testutil.OpGetChildren2 && r.Path == "/app/x" {
					lists = append(lists, time.Now())
				}
				return testutil.Pass()
			})
			opts := []page.Option{page.WithClient(framework.WithDialer(network.Dial)), page.WithRoots("/app/x")}
			if name == "a history" {
				opts = append(opts, page.WithHistory())
			}
			c := w.ConnectNext()
			must(t, c.MakePersistentPath(t.Context(), "/app/x/note"))
			p := page.New(w.Servers(), opts...)
			defer p.Close()
			pass := func(seconds int) {
				t.Helper()
				for i := range seconds {
					if name == "a viewer" && i%10 == 0 {
						follow(t, p, "topic=line&path=/app/x")
					}
					time.Sleep(time.Second)
					must(t, c.Delete(t.Context(), "/app/x/note", -1)) // the list changes
					must(t, c.MakePersistentPath(t.Context(), "/app/x/note"))
				}
			}
			pass(3)
			var grants []time.Time
			for i := range 3 {
				held := bubble.Acquire(t, t.Context(), mutex(t, c, "/app/x", fmt.Sprintf("web-%d pid 1", i)))
				grants = append(grants, time.Now())
				if name == "nobody" {
					sees(t, p, lineAt("/app/x"))
				}
				pass(20)
				bubble.Release(t, held)
				pass(5)
			}
			listed := slices.Clone(lists)
			body := sees(t, p, lineAt("/app/x"), "web-0 pid 1", "web-1 pid 1", "web-2 pid 1")
			if gaps := strings.Count(body, `class="gap"`); gaps != want.gaps {
				t.Errorf("%s: %d gaps, want %d", name, gaps, want.gaps)
			}
			_, mark, _ := strings.Cut(body, `<p class="marks" aria-hidden="true"><span>`)
			from, err := time.ParseInLocation(time.TimeOnly, mark[:len(time.TimeOnly)], time.Local)
			must(t, err)
			bars := bar.FindAllStringSubmatch(body, -1)
			if len(bars) != len(grants) {
				t.Fatalf("%s: bars %q", name, bars)
			}
			const pixel, drawn = 10 * time.Minute / 720, 10 * time.Minute / 7200 // a drawing has tenths of a pixel
			for i, b := range bars {
				x, errX := strconv.ParseFloat(b[2], 64)
				width, errWidth := strconv.ParseFloat(b[3], 64)
				must(t, errors.Join(errX, errWidth))
				// The drawing begins on some day, at a time that is shown.
				began := time.Date(grants[i].Year(), grants[i].Month(), grants[i].Day(), from.Hour(), from.Minute(), from.Second(), 0, time.Local)
				if began.After(grants[i]) {
					began = began.AddDate(0, 0, -1)
				}
				began = began.Add(time.Duration(x * float64(pixel)))
				lasted := time.Duration(width * float64(pixel))
				if late := began.Sub(grants[i]); b[1] != fmt.Sprint("web-", i) || late < -drawn || late > want.late+drawn {
					t.Errorf("%s: the bar %d, of %s, begins %v after the grant", name, i, b[1], late)
				}
				if early := want.held - began.Sub(grants[i]) - lasted; want.held > 0 && (early < -2*drawn || early > want.late+2*drawn) {
					t.Errorf("%s: the bar %d ends %v before the release", name, i, early)
				}
				if want.held == 0 && lasted > 2*time.Second {
					t.Errorf("%s: the bar %d lasts %v, and nobody looked", name, i, lasted)
				}
			}
			for i := 1; name == "a history" && i < len(listed); i++ {
				if gap := listed[i].Sub(listed[i-1]); gap < 5*time.Second || gap > 5100*time.Millisecond {
					t.Errorf("a list %v after another one", gap)
				}
			}
			if name == "a history" && len(listed) < 14 {
				t.Errorf("%d lists in 78s", len(listed))
			}
		})
	}
}

// TestEnsemble: each server says what it is, and which one the page is on.
func TestEnsemble(t *testing.T) {
	e := testutil.Start(t, testutil.WithMembers(3))
	p := page.New(e.Servers())
	defer p.Close()
	server := httptest.NewServer(p)
	defer server.Close()
	var body string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline) && !strings.Contains(body, "this page"); time.Sleep(50 * time.Millisecond) {
		body = sees(t, p, "/ensemble")
	}
	for text, want := range map[string]int{">leader<": 1, ">follower<": 2, "this page": 1, "zkr doctor --servers " + e.Servers(): 1} {
		if n := strings.Count(body, text); n != want {
			t.Errorf("%d times %q, want %d:\n%s", n, text, want, body)
		}
	}
}

// TestShutdown: a server with ten viewers shuts down in under a second.
func TestShutdown(t *testing.T) {
	e := testutil.Start(t)
	p := page.New(e.Servers())
	server := httptest.NewServer(p)
	server.Config.RegisterOnShutdown(p.Close)
	var viewers sync.WaitGroup
	for range 10 {
		answer, err := http.Get(server.URL + "/events?topic=")
		if err != nil {
			t.Fatal(err)
		}
		first := make([]byte, 1)
		if _, err := answer.Body.Read(first); err != nil {
			t.Fatal(err)
		}
		viewers.Go(func() {
			defer answer.Body.Close()
			for {
				if _, err := answer.Body.Read(make([]byte, 4096)); err != nil {
					return
				}
			}
		})
	}
	began := time.Now()
	if err := server.Config.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("Shutdown took %v", took)
	}
	viewers.Wait()
	server.Close()
}

// TestProcess: a watch shows the clients, leases, waits and log of its process.
func TestProcess(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		watch := page.NewWatch()
		log := watch.Tee(nil)
		c := w.Connect("watched", page.NewWatch().Option(), watch.Option(), page.NewWatch().Option(), framework.WithLogger(log))
		held := bubble.Acquire(t, t.Context(), mutex(t, c, "/app/x", ""))
		other := bubble.Acquire(t, t.Context(), mutex(t, w.ConnectNext(), "/app/y", ""))
		wait(t, w, mutex(t, c, "/app/y", "waits"), "/app/y", 2)
		log.Warn("something\u202e happened")
		p := of(t, w, page.WithWatch(watch))
		sees(t, p, "/process", "/app/x", "token "+held.Token().String(), "/app/y", "CONNECTED", `something\u202e happened`, "<dt>granted</dt><dd>1</dd>")
		sees(t, p, lineAt("/app/x"), "In this process", "granted (")
		body := sees(t, p, "/process", "last answer ")
		shown := regexp.MustCompile(`deadline in (\S+), token ` + held.Token().String()).FindStringSubmatch(body)
		if shown == nil {
			t.Fatalf("no deadline:\n%s", body)
		}
		if ahead, err := time.ParseDuration(shown[1]); err != nil || (ahead-time.Until(held.Deadline())).Abs() > 100*time.Millisecond {
			t.Errorf("a deadline in %s, want %v", shown[1], time.Until(held.Deadline()))
		}
		w.Expire(c)
		bubble.Lost(t, held)
		synctest.Wait()
		body = sees(t, p, "/process", "It holds nothing", "<dt>lost</dt><dd>1</dd>")
		if strings.Contains(body, held.Token().String()) {
			t.Error("a lost lease is shown")
		}
		sees(t, p, lineAt("/app/x"), "lost (")
		bubble.Release(t, other)
	})
}

// TestProcessCounts: this process's counters and double barriers are shown with
// what has happened last, and only those that were used last.
func TestProcessCounts(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		watch := page.NewWatch()
		c := w.Connect("watched", watch.Option())
		p := of(t, w, page.WithWatch(watch))
		sees(t, p, "/process", "Nothing was counted.", "No double barrier was entered.")

		n, err := counter.New(c, "/app/orders")
		must(t, err)
		for range 2 {
			_, err = n.AddOnce(t.Context(), "order-1", 3)
			must(t, err)
		}
		round, err := barrier.NewDouble(c, "/app/round", 1)
		must(t, err)
		inside, err := round.Enter(t.Context())
		must(t, err)
		synctest.Wait()
		sees(t, p, "/process", "/app/orders", "was counted before", "/app/round", "<td data-label=\"State\">entered</td>")

		must(t, inside.Leave(t.Context()))
		_, err = c.Create(t.Context(), "/app/words", []byte("no number"), 0)
		must(t, err)
		words, err := counter.New(c, "/app/words")
		must(t, err)
		if _, err := words.Add(t.Context(), 1); err == nil {
			t.Fatal("words were counted")
		}
		synctest.Wait()
		sees(t, p, "/process", "<td data-label=\"State\">left</td>", "/app/words", "1 of 1 calls failed")

		for i := range 99 {
			more, err := counter.New(c, fmt.Sprint("/app/more-", i))
			must(t, err)
			_, err = more.Add(t.Context(), 1)
			must(t, err)
		}
		synctest.Wait()
		body := sees(t, p, "/process", "/app/words", "/app/more-98")
		if strings.Contains(body, "/app/orders") {
			t.Error("the counter that was used longest ago is still shown")
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
