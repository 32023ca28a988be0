//go:build unix

package live

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/inspect/page"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// asked returns the answer of a gate to a request.
func asked(t *testing.T, g *gate, method, address, host string, form url.Values, cookies ...*http.Cookie) *http.Response {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), method, address, strings.NewReader(form.Encode()))
	request.Host = host
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, c := range cookies {
		request.AddCookie(c)
	}
	answer := httptest.NewRecorder()
	g.ServeHTTP(answer, request)
	return answer.Result()
}

// TestWebNeedsItsToken: without the cookie nothing of the ensemble is shown;
// the token is exchanged for it by a POST alone, and is in no later address.
func TestWebNeedsItsToken(t *testing.T) {
	p := page.New("127.0.0.1:1", page.WithRoots("/app"))
	defer p.Close()
	g := newGate(p, hostsOf("127.0.0.1", []string{"ZK.example.com"}))
	const here = "127.0.0.1:8090"
	for address, want := range map[string]int{
		"/": 200, "/deadlocks": 401, "/events?topic=": 401, "/line?path=/app/x": 401, "/ensemble": 401,
		"/?token=" + g.token: 200, "/deadlocks?token=" + g.token: 401, "/login?token=" + g.token: 405, "/login.js": 200, "/style.css": 200,
	} {
		answer := asked(t, g, http.MethodGet, address, here, nil)
		body, _ := io.ReadAll(answer.Body)
		if answer.StatusCode != want || strings.Contains(string(body), `aria-label="Pages"`) || len(answer.Cookies()) > 0 {
			t.Errorf("GET %s: %s, %d cookies", address, answer.Status, len(answer.Cookies()))
		}
		if answer.Header.Get("Content-Security-Policy") == "" || answer.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("GET %s: headers %v", address, answer.Header)
		}
	}
	for _, wrong := range []string{"", "x", g.secret, g.token[1:], g.token + "x"} {
		if answer := asked(t, g, http.MethodPost, "/login", here, url.Values{"token": {wrong}}); answer.StatusCode != http.StatusForbidden || len(answer.Cookies()) > 0 {
			t.Errorf("token %q: %s", wrong, answer.Status)
		}
	}
	answer := asked(t, g, http.MethodPost, "/login", here, url.Values{"token": {g.token}})
	if answer.StatusCode != http.StatusSeeOther || answer.Header.Get("Location") != "/" || len(answer.Cookies()) != 1 {
		t.Fatalf("the right token: %s to %q, %d cookies", answer.Status, answer.Header.Get("Location"), len(answer.Cookies()))
	}
	cookie := answer.Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Value == g.token {
		t.Errorf("the cookie is %v", cookie)
	}
	for value, want := range map[string]int{g.secret: 200, g.token: 401, "": 401} {
		answer := asked(t, g, http.MethodGet, "/style.css", here, nil, &http.Cookie{Name: cookie.Name, Value: value})
		if answer.StatusCode != 200 {
			t.Errorf("the style sheet: %s", answer.Status)
		}
		if answer := asked(t, g, http.MethodGet, "/script.js", here, nil, &http.Cookie{Name: cookie.Name, Value: value}); answer.StatusCode != want {
			t.Errorf("cookie %q: %s", value, answer.Status)
		}
	}
	for host, want := range map[string]int{
		here: 200, "localhost:8090": 200, "[::1]:9": 200, "zk.example.com": 200, "ZK.EXAMPLE.COM:443": 200,
		"evil.example.com": 421, "": 421, "127.0.0.1.evil.com:8090": 421, "10.0.0.1": 421,
	} {
		if answer := asked(t, g, http.MethodGet, "/script.js", host, nil, cookie); answer.StatusCode != want {
			t.Errorf("host %q: %s", host, answer.Status)
		}
		if answer := asked(t, g, http.MethodPost, "/login", host, url.Values{"token": {g.token}}); (answer.StatusCode == 303) != (want == 200) {
			t.Errorf("login at host %q: %s", host, answer.Status)
		}
	}
}

// TestWebServesItsLink: the link that is printed leads to the page, whatever
// the name of the address is, and an address for everybody needs a name.
func TestWebServesItsLink(t *testing.T) {
	for listen, hosts := range map[string][]string{"LocalHost:0": nil, ":0": {"zk.example.com"}, "0.0.0.0:0": nil} {
		w := web{listen: listen, hosts: hosts}
		g, err := w.handler(&cli.Ensemble{Servers: "127.0.0.1:1"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		read, write := io.Pipe()
		served := make(chan error, 1)
		go func() { served <- w.serve(ctx, g, write, io.Discard, func() {}) }()
		link, err := bufio.NewReader(read).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.Get(strings.TrimSpace(link))
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("--listen %s: %s leads to %s", listen, link, answer.Status)
		}
		cancel()
		<-served
	}
	if !hostsOf("ZK.example.com", nil)["zk.example.com"] {
		t.Error("the name of the address counts in one case alone")
	}
	if _, err := (&web{listen: ":8090"}).handler(&cli.Ensemble{Servers: "127.0.0.1:1"}, nil); err == nil {
		t.Error("--listen :8090 without --host is no error")
	}
}

// served is a zkr web, seen by somebody who has its link.
type served struct {
	*zkrtest.Process
	token string
	get   func(at string) *http.Response
}

// serve starts one with flags and roots, and exchanges its token for a cookie.
func serve(t *testing.T, e *testutil.Embedded, args ...string) served {
	t.Helper()
	process := zkrtest.Start(t, append([]string{"web", "--listen", "127.0.0.1:0", "--servers", e.Servers()}, args...)...)
	process.Prints(t, "/#")
	process.Prints(t, "\n")
	link, err := url.Parse(strings.TrimSpace(process.Text()))
	if err != nil || link.Fragment == "" {
		t.Fatalf("it has printed %v, %v", link, err)
	}
	token := link.Fragment
	link.Fragment = ""
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := browser.PostForm(link.JoinPath("login").String(), url.Values{"token": {token}})
	if err != nil || len(answer.Cookies()) != 1 {
		t.Fatalf("login: %v, %v", answer, err)
	}
	answer.Body.Close()
	return served{process, token, func(at string) *http.Response {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, link.String()+at, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.AddCookie(answer.Cookies()[0])
		got, err := browser.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}}
}

// shows loads a page until it has a text, and returns it.
func (s served) shows(t *testing.T, at, text string) string {
	t.Helper()
	var body string
	for end := time.Now().Add(zkrtest.Patience); !strings.Contains(body, text); {
		if time.Now().After(end) {
			t.Fatalf("%s has no %q:\n%s", at, text, body)
		}
		now := s.get(at)
		all, err := io.ReadAll(now.Body)
		now.Body.Close()
		if body = string(all); err != nil {
			t.Fatal(err)
		}
	}
	return body
}

// ends ends it by a signal.
func (s served) ends(t *testing.T) {
	t.Helper()
	s.Signal(t, os.Interrupt)
	if code := s.Wait(t); code != 0 {
		t.Errorf("exit code %d: %s", code, s.Text())
	}
}

// holds lets a client hold /app/x, with data that no recipe writes.
func holds(t *testing.T, e *testutil.Embedded) {
	t.Helper()
	c := zkrtest.Dial(t, e)
	if err := c.MakePersistentPath(t.Context(), "/app/x"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(t.Context(), "/app/x/"+zkrtest.SomeID+"lock-0000000000", []byte("my secret"), zk.FlagEphemeral); err != nil {
		t.Fatal(err)
	}
}

// TestWeb: zkr web prints one link, serves what inspect says to whoever has it,
// and ends within a second while somebody follows a stream.
func TestWeb(t *testing.T) {
	zkrtest.Parallel(t)
	e := testutil.Start(t)
	holds(t, e)
	web := serve(t, e, "/app")
	stream := web.get("events")
	defer stream.Body.Close()
	if body := web.shows(t, "", "/app/x</a>"); strings.Contains(body, web.token) {
		t.Errorf("it shows its token: %s", body)
	}
	web.ends(t)
}

// TestWebShowsData: data are shown with --data alone.
func TestWebShowsData(t *testing.T) {
	zkrtest.Parallel(t)
	e := testutil.Start(t)
	holds(t, e)
	for _, flags := range [][]string{nil, {"--data"}} {
		web := serve(t, e, append(flags, "/app")...)
		body := web.shows(t, "line?path=/app/x", "session 0x")
		if shown := strings.Contains(body, "my secret"); shown != (len(flags) > 0) {
			t.Errorf("%q: data are shown: %t", flags, shown)
		}
		web.ends(t)
	}
}

// TestWebKeepsAHistory: with --history zkr web looks before anybody else does,
// and only then.
func TestWebKeepsAHistory(t *testing.T) {
	zkrtest.Parallel(t)
	e := testutil.Start(t)
	holds(t, e)
	own := e.Sessions()[0].ID
	looked := make(chan struct{})
	var once sync.Once
	defer e.Control(func(r testutil.Request) testutil.Action {
		if r.Session != own && r.Does(testutil.OpGetChildren2, "/app/x") {
			once.Do(func() { close(looked) })
		}
		return testutil.Pass()
	})()
	without := serve(t, e, "/app")
	time.Sleep(time.Second) // it would have looked by now, if the machine is quick enough to show the fault
	if n := len(e.Sessions()); n != 1 {
		t.Errorf("%d sessions before anybody looks", n-1)
	}
	without.ends(t)
	with := serve(t, e, "--history", "/app")
	bubble.Await(t, "a look", looked)
	with.ends(t)
}
