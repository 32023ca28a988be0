package framework

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// stuck is a logger whose level cannot be asked.
type stuck struct {
	zapcore.Core
	until chan struct{}
}

func (s stuck) Enabled(zapcore.Level) bool {
	<-s.until
	return true
}

// New asks the user's logger whether it writes debug lines, but does not wait
// for it for longer than a tenth of a second.
func TestALoggerWhoseLevelIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		began := time.Now()
		log, lines := queuedLogger(zap.New(stuck{zapcore.NewNopCore(), until}))
		if took := time.Since(began); took != 100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		if log.Core().Enabled(zap.DebugLevel) {
			t.Error("debug lines are written before the logger has said so")
		}
		close(until)
		lines.flush(nil)
		if !log.Core().Enabled(zap.DebugLevel) {
			t.Error("no debug lines")
		}
		lines.flush(nil)
	})
}
