package page_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect/page"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// slow is a viewer that does not read its answer.
type slow struct {
	*httptest.ResponseRecorder
	read     chan struct{} // closed when it does
	deadline atomic.Pointer[time.Time]
}

func (s *slow) Write(text []byte) (int, error) {
	<-s.read
	return len(text), nil
}

func (s *slow) SetWriteDeadline(at time.Time) error {
	s.deadline.Store(&at)
	return nil
}

// TestASlowReaderIsNoViewer: nothing is looked at for somebody who does not
// read the answer to a request, and the server gives that answer up.
func TestASlowReaderIsNoViewer(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		p := of(t, w)
		sessions := len(w.Sessions())
		reader := &slow{ResponseRecorder: httptest.NewRecorder(), read: make(chan struct{})}
		began, ended := time.Now(), make(chan struct{})
		go func() {
			defer close(ended)
			p.ServeHTTP(reader, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(w.Sessions()); n != sessions {
			t.Errorf("%d sessions a minute later", n-sessions)
		}
		close(reader.read)
		<-ended
		if end := reader.deadline.Load(); end == nil || end.Sub(began) > 10*time.Second {
			t.Errorf("the answer may be written until %v", end)
		}
	})
}

// TestMostViewers: streams and requests for pages have one limit together.
func TestMostViewers(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		p := of(t, w)
		var all []*following
		for range 100 {
			all = append(all, follow(t, p, "topic=ensemble"))
		}
		time.Sleep(aLook)
		for _, address := range []string{"/", lineAt("/app/x"), "/events?topic="} {
			if answer := get(t, p, address); answer.Code != http.StatusServiceUnavailable || answer.Header().Get("Retry-After") == "" {
				t.Errorf("%s: status %d behind 100 viewers", address, answer.Code)
			}
		}
		all[0].leave()
		<-all[0].ended
		sees(t, p, "/")
	})
}

// TestReloadsDoNotHurry: who loads the page again and again makes it look no
// more often than its looks allow.
func TestReloadsDoNotHurry(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		held := bubble.Acquire(t, t.Context(), mutex(t, c, "/app/x", ""))
		network := w.Embedded.ClientNet("page")
		p := page.New(w.Servers(), page.WithClient(framework.WithDialer(network.Dial)), page.WithRoots("/app/x"))
		defer p.Close()
		follow(t, p, "topic=")
		time.Sleep(5 * aLook)
		network.Latency(250*time.Millisecond, 250*time.Millisecond)
		looks := 0
		network.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpGetChildren2 {
				looks++
			}
			return testutil.Pass()
		})
		for i := range 200 { // the line changes all the time
			bubble.Release(t, held)
			held = bubble.Acquire(t, t.Context(), mutex(t, c, "/app/x", ""))
			if i%2 == 0 {
				follow(t, p, "topic=").leave()
			}
			time.Sleep(100 * time.Millisecond)
		}
		if looks == 0 || looks > 10 { // in 20s, of half a second and more each
			t.Errorf("%d looks", looks)
		}
		bubble.Release(t, held)
	})
}

// TestCloseDoesNotWaitForASlowReader: a stream that nobody reads ends soon
// after the page was closed.
func TestCloseDoesNotWaitForASlowReader(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		p := of(t, w)
		reader := &slow{ResponseRecorder: httptest.NewRecorder(), read: make(chan struct{})}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			p.ServeHTTP(reader, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events?topic=", nil))
		}()
		time.Sleep(time.Second)
		p.Close()
		synctest.Wait()
		if left := time.Until(*reader.deadline.Load()); left > time.Second/2 {
			t.Errorf("it may be written for %v more", left)
		}
		close(reader.read)
		<-ended
	})
}
