package live

import (
	"crypto/rand"
	"crypto/subtle"
	_ "embed"
	"net/http"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/inspect/page"
	"github.com/zkrecipes/zkrecipes/internal/headers"
)

// gate lets only those see the page who have its token. The link has it behind
// a #, which no browser sends: a script posts it, or its user, and gets a
// cookie that is another secret. So the token is in no later address, log or
// Referer.
type gate struct {
	page   *page.Page
	hosts  headers.Hosts
	token  string
	cookie string // its name: browsers do not tell the ports of a host apart
	secret string // its value
}

func newGate(p *page.Page, hosts headers.Hosts) *gate {
	return &gate{page: p, hosts: hosts, token: rand.Text(), cookie: "zkr_web", secret: rand.Text()}
}

//go:embed login.html
var loginPage []byte

//go:embed login.js
var loginScript []byte

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	headers.Set(w.Header())
	if !g.hosts.Has(r.Host) {
		http.Error(w, "this name of the host is not allowed here: see --host", http.StatusMisdirectedRequest)
		return
	}
	switch r.URL.Path {
	case "/login":
		g.login(w, r)
		return
	case "/login.js":
		w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
		_, _ = w.Write(loginScript) // an error is the viewer's
		return
	case "/style.css", "/icon.svg": // the login page uses them, too
		g.page.ServeHTTP(w, r)
		return
	}
	cookie, err := r.Cookie(g.cookie)
	switch {
	case err == nil && same(cookie.Value, g.secret):
		g.page.ServeHTTP(w, r)
	case r.URL.Path == "/":
		g.ask(w, http.StatusOK)
	default:
		g.ask(w, http.StatusUnauthorized)
	}
}

// ask serves the form for the token.
func (g *gate) ask(w http.ResponseWriter, code int) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(loginPage) // an error is the viewer's
}

// login exchanges the token for the cookie. No other site can do that in a
// browser: it does not know the token, and the cookie goes to no other site.
func (g *gate) login(w http.ResponseWriter, r *http.Request) {
	const enough = 1 << 10
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "want a POST", http.StatusMethodNotAllowed)
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(10 * time.Second)) // where the server can do that
	r.Body = http.MaxBytesReader(w, r.Body, enough)
	if !same(strings.TrimSpace(r.PostFormValue("token")), g.token) {
		g.ask(w, http.StatusForbidden)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: g.cookie, Value: g.secret, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
