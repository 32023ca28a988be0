package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/retry"
)

// fieldsOf returns the fields of the only line with this message.
func fieldsOf(t *testing.T, logged *observer.ObservedLogs, message string) map[string]any {
	t.Helper()
	synctest.Wait()
	lines := logged.FilterMessage(message).All()
	if len(lines) != 1 {
		t.Fatalf("%d lines %q", len(lines), message)
	}
	return lines[0].ContextMap()
}

// Log lines name paths as they are at the ensemble, a session as the servers
// do, and why a lease was lost.
func TestLogLinesNameWhatIsAtTheEnsemble(t *testing.T) {
	bubble.EachView(t, func(t *testing.T, v bubble.View) {
		bubble.RunBelow(t, v, func(t *testing.T, w *bubble.World) {
			core, logged := observer.New(zap.DebugLevel)
			c := w.Connect("a", framework.WithLogger(zap.New(core)))
			m, err := locks.NewMutex(c, "/lock", recipes.WithAsyncRelease())
			if err != nil {
				t.Fatal(err)
			}

			l := bubble.Acquire(t, t.Context(), m)
			want := map[string]any{
				"path": v.Full("/lock"), "znode": v.Full(l.Path()),
				"session": fmt.Sprintf("0x%x", uint64(w.SessionID(c))), "reason": "session",
			}
			w.Expire(c)
			w.ClientNet("a").Drop()
			bubble.Lost(t, l)
			got := fieldsOf(t, logged, "lease lost")
			for name, value := range want {
				if got[name] != value {
					t.Errorf("lease lost: %s %v, want %v", name, got[name], value)
				}
			}

			l = bubble.Acquire(t, t.Context(), m)
			other := w.Connect("b")
			if err := other.Delete(t.Context(), l.Path(), -1); err != nil {
				t.Fatal(err)
			}
			_ = l.Release(t.Context())
			time.Sleep(time.Second)
			got = fieldsOf(t, logged, "the znode of a lease was deleted before its release")
			if got["path"] != v.Full("/lock") || got["znode"] != v.Full(l.Path()) {
				t.Errorf("deleted: %v", got)
			}

			e, err := leader.New(c, "/lead", leader.WithBackoff(retry.Forever(time.Minute)))
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				ended <- e.Run(ctx, func(context.Context, *recipes.Lease) error { return errors.New("no") })
			}()
			time.Sleep(time.Second)
			stop()
			<-ended
			if got := fieldsOf(t, logged, "campaigning again"); got["path"] != v.Full("/lead") {
				t.Errorf("campaigning again: %v", got)
			}
		})
	})
}

// Of several locks taken together each that is lost has a line, and work that
// goes on too long has one line that names them all.
func TestLogLinesOfSeveralLocks(t *testing.T) {
	bubble.RunBelow(t, bubble.View{Namespace: "team"}, func(t *testing.T, w *bubble.World) {
		core, logged := observer.New(zap.DebugLevel)
		c := w.Connect("a", framework.WithLogger(zap.New(core)))
		err := recipes.Do(t.Context(), allOf(t, c), func(ctx context.Context, _ *recipes.Lease) error {
			w.ClientNet("a").Cut()
			<-ctx.Done()
			time.Sleep(3 * bubble.Timeout)
			w.ClientNet("a").Heal()
			return nil
		})
		bubble.WantErr(t, err, recipes.ErrNotHeld)
		synctest.Wait()
		var lost []string
		for _, line := range logged.FilterMessage("lease lost").All() {
			fields := line.ContextMap()
			lost = append(lost, fields["path"].(string))
			if fields["reason"] != "unproven" {
				t.Errorf("reason %v", fields["reason"])
			}
		}
		if len(lost) != 3 {
			t.Errorf("lost: %q", lost)
		}
		all := strings.Join([]string{"/team/lock/1", "/team/lock/2", "/team/lock/3"}, ", ")
		for _, message := range []string{"work goes on past its lease's deadline", "work has ended past its lease's deadline"} {
			if got := fieldsOf(t, logged, message); got["path"] != all {
				t.Errorf("%s: %v", message, got)
			}
		}
	})
}
