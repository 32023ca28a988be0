package framework

import (
	"slices"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logLines is how many lines wait for the user's logger at most.
const logLines = 1024

// queuedLogger returns a logger that hands each line to log's core from a
// goroutine of its own: a sink that blocks delays nothing but the lines behind
// it. Lines are dropped when too many wait; their number is logged later.
func queuedLogger(log *zap.Logger) (*zap.Logger, *courier) {
	lines := newCourier(logLines, zap.NewNop()) // a logger that panics has nobody to tell
	lines.report = func(n int) { log.Warn("log lines were dropped: the logger was slow", zap.Int("lines", n)) }
	queued := log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core { return queuedCore{core, lines} }))
	return queued, lines
}

// queuedCore is the user's core behind a courier.
type queuedCore struct {
	zapcore.Core
	lines *courier
}

// Enabled asks the user's core only about debug lines, which are not written
// where a deadline or a lock waits. About all others the core is asked when the
// line is written.
func (c queuedCore) Enabled(level zapcore.Level) bool {
	return level > zapcore.DebugLevel || c.Core.Enabled(level)
}

func (c queuedCore) With(fields []zapcore.Field) zapcore.Core {
	return queuedCore{c.Core.With(fields), c.lines}
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
	if entry.Level > zapcore.ErrorLevel {
		return c.Core.Write(entry, fields) // a user's own, who panics or exits behind it
	}
	c.lines.offer(func() {
		if checked := c.Core.Check(entry, nil); checked != nil {
			checked.Write(fields...)
		}
	})
	return nil
}

// Sync waits until the lines that were logged before are written.
func (c queuedCore) Sync() error {
	c.lines.flush(nil)
	return c.Core.Sync()
}

// lineError is an error whose text is one line: joined errors have one each.
type lineError struct{ error }

func (e lineError) Error() string { return strings.ReplaceAll(e.error.Error(), "\n", "; ") }
func (e lineError) Unwrap() error { return e.error }
