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
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/inspect/page"
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

// TestWeb: zkr web prints one link, serves what inspect says to whoever has it,
// and ends within a second while somebody follows a stream.
func TestWeb(t *testing.T) {
	zkrtest.Parallel(t)
	e := testutil.Start(t)
	held := zkrtest.Dial(t, e)
	if err := held.MakePersistentPath(t.Context(), "/app/x"); err != nil {
		t.Fatal(err)
	}
	zkrtest.Create(t, held, "/app/x/"+zkrtest.SomeID+"lock-0000000000")
	process := zkrtest.Start(t, "web", "--listen", "127.0.0.1:0", "--servers", e.Servers(), "/app")
	process.Prints(t, "/#")
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
	get := func(at string) *http.Response {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, link.JoinPath(at).String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		request.AddCookie(answer.Cookies()[0])
		got, err := browser.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	stream := get("events")
	defer stream.Body.Close()
	var body string
	for end := time.Now().Add(30 * time.Second); !strings.Contains(body, "/app/x</a>") && time.Now().Before(end); {
		now := get("/")
		text, err := io.ReadAll(now.Body)
		now.Body.Close()
		if body = string(text); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(body, "/app/x</a>") || strings.Contains(body, token) {
		t.Errorf("it shows %s", body)
	}
	process.Signal(t, os.Interrupt)
	if code := process.Wait(t); code != 0 {
		t.Errorf("exit code %d: %s", code, process.Text())
	}
}
