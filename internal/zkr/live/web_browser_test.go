//go:build unix

package live

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/browser"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestWebInABrowser: a browser that opens the link comes to the page, and no
// address that it keeps has the token. Without it, or with a wrong one, it sees
// the form, which takes the token by keyboard.
func TestWebInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	t.Parallel()
	e := testutil.Start(t)
	w := web{listen: "127.0.0.1:0"}
	g, err := w.handler(&cli.Ensemble{Servers: e.Servers()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	read, write := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- w.serve(ctx, g, write, io.Discard, func() {}) }()
	t.Cleanup(func() { cancel(); <-served })
	link, err := bufio.NewReader(read).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	home, token, _ := strings.Cut(strings.TrimSpace(link), "#")

	const loaded = `return document.readyState === "complete" && ` // or the next address takes this one's place
	const isForm, isPage = loaded + `document.querySelector("form input#token") !== null`, loaded + `document.querySelector("nav[aria-label=Pages]") !== null`
	b := browser.Open(t, browser.Wide, false)
	secret := func(when string) {
		t.Helper()
		var known []string
		b.Run(&known, `return [location.href, document.cookie, document.referrer, document.documentElement.outerHTML, ...performance.getEntries().map(e => e.name)]`)
		known = append(known, b.History()...)
		if all := strings.Join(known, " "); strings.Contains(all, token) || strings.Contains(all, g.secret) {
			t.Errorf("%s, the browser has the token or the cookie in %q", when, known)
		}
	}
	b.Go(home)
	b.Await("the form", isForm)
	enter := func(text string) {
		t.Helper()
		b.Press(browser.Tab) // the first place to go to is the input
		for _, key := range text {
			b.Press(string(key))
		}
		b.Press(browser.Enter)
	}
	enter("wrong")
	b.Await("the form again", isForm+` && location.pathname === "/login"`)
	enter(token)
	b.Await("the page", isPage)
	secret("by the form")

	b = browser.Open(t, browser.Phone, true)
	b.Go(home + "#wrong")
	b.Await("the form", isForm+` && location.pathname === "/login"`)
	b.Complaints() // of the status
	b.Go(home + "#" + token)
	b.Await("the page", isPage)
	secret("by the link")
	b.Go(home + "deadlocks")
	b.Await("another page", isPage+` && document.querySelector("h1").textContent === "Deadlocks"`)
	b.Run(nil, `history.back()`)
	b.Await("the first page", isPage+` && location.pathname === "/"`)
	secret("by the way back")
	if all := b.Complaints(); len(all) > 0 {
		t.Errorf("the browser complains: %q", all)
	}
}
