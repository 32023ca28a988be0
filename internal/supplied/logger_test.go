package supplied_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	zapobserver "go.uber.org/zap/zaptest/observer"

	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// stuck is a logger whose level cannot be asked.
type stuck struct {
	zapcore.Core
	until chan struct{}
	asked *atomic.Int32
}

func (s stuck) Enabled(zapcore.Level) bool {
	s.asked.Add(1)
	<-s.until
	return true
}

// Logger asks the user's logger whether it writes debug lines, and waits for a
// tenth of a second at most. Until it has answered it is not asked again.
func TestALoggerWhoseLevelIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		var asked atomic.Int32
		began := time.Now()
		log, lines := supplied.Logger(zap.New(stuck{zapcore.NewNopCore(), until, &asked}))
		if took := time.Since(began); took != 100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		if log.Core().Enabled(zap.DebugLevel) {
			t.Error("debug lines are written before the logger has said so")
		}
		close(until)
		lines.Flush(nil)
		if n := asked.Load(); n != 1 {
			t.Errorf("it was asked %d times", n)
		}
		if !log.Core().Enabled(zap.DebugLevel) {
			t.Error("no debug lines")
		}
		lines.Flush(nil)
		if n := asked.Load(); n != 2 {
			t.Errorf("it was asked %d times, want once more", n)
		}
	})
}

// A line behind which zap panics or exits is written before that.
func TestALineThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, written := zapobserver.New(zap.DebugLevel)
		log, lines := supplied.Logger(zap.New(core))
		lines.Offer(func() { time.Sleep(time.Hour) }) // what is behind it would be written too late
		func() {
			defer func() { _ = recover() }()
			log.Panic("the user's", zap.Int("n", 1))
			t.Error("it does not panic")
		}()
		if all := written.All(); len(all) != 1 || all[0].Message != "the user's" || all[0].Level != zap.PanicLevel {
			t.Errorf("%v", all)
		}
		lines.Flush(nil)
	})
}
