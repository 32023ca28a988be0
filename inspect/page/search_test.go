package page_test

import (
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect/page"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestASearchThatFails: a page does not say that there is no deadlock where it
// does not know, and says what it may not read.
func TestASearchThatFails(t *testing.T) {
	for code, want := range map[testutil.Code]string{testutil.CodeNoAuth: "1 znode may not be read", testutil.CodeSystemError: `class="warn"`} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			held := bubble.Acquire(t, t.Context(), mutex(t, w.ConnectNext(), "/app/x", ""))
			network := w.Embedded.ClientNet("page")
			network.Control(func(r testutil.Request) testutil.Action {
				for i, op := range r.Operations {
					if op.Path == "/app" {
						return testutil.FailOperation(i, code)
					}
				}
				if r.Path == "/app" {
					return testutil.Fail(code)
				}
				return testutil.Pass()
			})
			p := page.New(w.Servers(), page.WithRoots("/app"), page.WithClient(framework.WithDialer(network.Dial)))
			defer p.Close()
			follow(t, p, "topic=deadlocks")
			time.Sleep(5 * time.Second)
			body := sees(t, p, "/deadlocks", want)
			if strings.Contains(body, `class="empty good"`) {
				t.Errorf("%v: it says that there is none:\n%s", code, body)
			}
			bubble.Release(t, held)
		})
	}
}
