package framework

import (
	"slices"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logLines is how many lines may wait for the user's logger.
const logLines = 1024

// queuedLogger returns a logger that passes each line to log on another
// goroutine. If a sink, a clock or a hook of log blocks, that delays only the
// lines behind it. Lines are dropped when too many wait, and their number is
// logged later.
func queuedLogger(log *zap.Logger) (*zap.Logger, *callQueue) {
	log = log.WithOptions(zap.WithCaller(false))  // the caller would always be the call queue
	lines := newCallQueue(logLines, zap.NewNop()) // a panic of the logger cannot be logged
	lines.report = func(n int) { log.Warn("log lines were dropped: the logger was slow", zap.Int("lines", n)) }
	return zap.New(queuedCore{log, lines}), lines
}

// queuedCore is the user's logger behind a callQueue.
type queuedCore struct {
	log   *zap.Logger
	lines *callQueue
}

// Enabled asks the user's logger about debug lines only, which are not written
// where a deadline or a lock waits. For all other lines the logger is asked
// when the line is written.
func (c queuedCore) Enabled(level zapcore.Level) bool {
	return level > zapcore.DebugLevel || c.log.Core().Enabled(level)
}

func (c queuedCore) With(fields []zapcore.Field) zapcore.Core {
	return queuedCore{c.log.With(fields...), c.lines}
}

func (c queuedCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(entry.Level) {
		return checked
	}
	return checked.AddCore(entry, c)
}

func (c queuedCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	fields = slices.Clone(fields)
	for i, field := range fields {
		if err, ok := field.Interface.(error); ok && field.Type == zapcore.ErrorType {
			fields[i].Interface = lineError{err}
		}
	}
	write := func() {
		if checked := c.log.Check(entry.Level, entry.Message); checked != nil {
			checked.Time = entry.Time // when it happened
			checked.Write(fields...)
		}
	}
	if entry.Level > zapcore.ErrorLevel {
		write() // not ours: zap panics or exits after it
	} else {
		c.lines.offer(write)
	}
	return nil
}

// Sync waits until all lines that were logged before are written.
func (c queuedCore) Sync() error {
	c.lines.flush(nil)
	return c.log.Sync()
}

// lineError is an error whose text is one line. The text of joined errors has
// several.
type lineError struct{ error }

func (e lineError) Error() string { return strings.ReplaceAll(e.error.Error(), "\n", "; ") }
func (e lineError) Unwrap() error { return e.error }
