package managed_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The text of joined errors has several lines, which broke the log lines.
func TestJoinedErrorsAreLoggedInOneLine(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		core, logged := observer.New(zap.DebugLevel)
		c, _ := connect(t, ens, framework.WithLogger(zap.New(core)))
		why := errors.New("the second")
		c.Logger().Warn("both", zap.Error(errors.Join(errors.New("the first"), why)))
		synctest.Wait()
		lines := logged.FilterMessage("both").All()
		if len(lines) != 1 {
			t.Fatalf("%d lines", len(lines))
		}
		err, ok := lines[0].Context[0].Interface.(error)
		if !ok || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "the first; the second") || !errors.Is(err, why) {
			t.Errorf("logged %q", err)
		}
	})
}

// A session timeout that the servers do not allow is shortened or extended.
// That was said nowhere.
func TestTheLogNamesAChangedSessionTimeout(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		for asked, want := range map[time.Duration]string{
			time.Second:           "4s (1s requested)",
			timeout:               "6s",
			timeout + time.Second: "6s (7s requested)",
			timeout - 1:           "5.999s", // in whole milliseconds, as it is sent
		} {
			core, logged := observer.New(zap.InfoLevel)
			c, _ := connect(t, w.Embedded, framework.WithLogger(zap.New(core)), framework.WithSessionTimeout(asked))
			must(t, c.Close())
			lines := logged.FilterMessage("state changed").All()
			if len(lines) != 2 {
				t.Fatalf("%v: %d lines", asked, len(lines))
			}
			for _, line := range lines {
				if got := line.ContextMap()["timeout"]; got != want {
					t.Errorf("%v requested: logged %q, want %q", asked, got, want)
				}
			}
		}
	}, testutil.WithSessionTimeouts(4*time.Second, timeout))
}
