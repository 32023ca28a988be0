package framework_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/zkrecipes/zkrecipes/framework"
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
