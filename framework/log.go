package framework

import (
	"slices"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logLines is how many lines wait for the user's logger at most.
const logLines = 1024

// queuedLogger returns a logger that hands each line to log from a goroutine of its
// own: a sink, a clock or a hook of log that blocks delays nothing but the lines
// behind it. Lines are dropped when too many wait; their number is logged later.
func queuedLogger(log *zap.Logger) (*zap.Logger, *courier) {
	log = log.WithOptions(zap.WithCaller(false)) // it would name the goroutine that hands over
	lines := newCourier(logLines, zap.NewNop())  // a logger that panics has nobody to tell
	lines.report = func(n int) { log.Warn("log lines were dropped: the logger was slow", zap.Int("lines", n)) }
	return zap.New(queuedCore{log, lines}), lines
}

// queuedCore is the user's logger behind a courier.
type queuedCore struct {
	log   *zap.Logger
	lines *courier
}

// Enabled asks the user's logger only about debug lines, which are not written
// where a deadline or a lock waits. About all others it is asked when the line is
// written.
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
		write() // a user's own, who panics or exits behind it
	} else {
		c.lines.offer(write)
	}
	return nil
}

// Sync waits until the lines that were logged before are written.
func (c queuedCore) Sync() error {
	c.lines.flush(nil)
	return c.log.Sync()
}

// lineError is an error whose text is one line: joined errors have one each.
type lineError struct{ error }

func (e lineError) Error() string { return strings.ReplaceAll(e.error.Error(), "\n", "; ") }
func (e lineError) Unwrap() error { return e.error }
