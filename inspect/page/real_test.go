package page_test

import (
	"context"
	"testing"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/inspect/page"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/test/browser"
	"github.com/zkrecipes/zkrecipes/internal/test/untrusted"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// TestRealMembers: real servers accept hostile names. The page shows each,
// escaped, as inspect finds it, and the command for it names it exactly.
func TestRealMembers(t *testing.T) {
	e := apache.Start(t, 1)
	c, err := framework.New(e.Servers())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	for i, name := range untrusted.Names {
		lease, err := mutex(t, c, "/app/"+name, "web-1 pid 1").Acquire(t.Context())
		if err != nil {
			t.Fatalf("%d, %q: %v", i, name, err)
		}
		t.Cleanup(func() { _ = lease.Release(context.Background()) })
	}
	p := page.New(e.Servers())
	t.Cleanup(p.Close)
	forest, err := inspect.Tree(t.Context(), c, "/")
	if err != nil || len(forest.Lines) != len(untrusted.Names) {
		t.Fatalf("%d lines, %v", len(forest.Lines), err)
	}
	sees(t, p, "/")
	for _, l := range forest.Lines {
		sees(t, p, lineAt(l.Path), htmlOf(escape.Text(l.Path)), "web-1 pid 1", "holds")
		pasted(t, escape.Command("zkr", "revoke", l.Path), l.Path)
	}
}

// TestBrowserOnRealMembers: what the browser shows stays what inspect says.
func TestBrowserOnRealMembers(t *testing.T) {
	e := apache.Start(t, 3)
	newSceneOn(t, e).faults(browser.Open(t, browser.Wide, false))
}
