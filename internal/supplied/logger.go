package supplied

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	// logLines is how many lines may wait for the user's logger.
	logLines = 1024
	// levelTimeout is how long Logger waits for the user's logger to say whether
	// debug lines are written.
	levelTimeout = 100 * time.Millisecond
)

// Logger returns a logger that passes each line to log on the goroutine of a
// queue, and calls nothing of log on the caller's. If a sink, a clock, a level
// or a hook of log blocks, that delays only the lines behind it. Lines are
// dropped when too many wait, and their number is logged later. Logger itself
// takes a tenth of a second at most.
func Logger(log *zap.Logger) (*zap.Logger, *Queue) {
	log = log.WithOptions(zap.WithCaller(false), zap.AddStacktrace(noLevel{})) // they would always be the queue's
	lines := NewQueue(logLines, logLines, zap.NewNop(), func(n int) {          // a panic of the logger cannot be logged
		log.Warn("log lines were dropped: the logger was slow", zap.Int("lines", n))
	})
	debug := &debugLevel{log: log, lines: lines}
	debug.ask()
	lines.Flush(time.After(levelTimeout))
	return zap.New(queuedCore{log: log, lines: lines, debug: debug}), lines
}

// noLevel enables no level.
type noLevel struct{}

func (noLevel) Enabled(zapcore.Level) bool { return false }

// debugLevel remembers whether the user's logger writes debug lines, since
// asking it may block.
type debugLevel struct {
	log     *zap.Logger
	lines   *Queue
	enabled atomic.Bool
	asking  atomic.Bool
}

// ask asks the user's logger, unless it is being asked. It does not wait for
// the answer.
func (d *debugLevel) ask() {
	if d.asking.Swap(true) {
		return
	}
	d.lines.Keep(func() {
		defer d.asking.Store(false)
		d.enabled.Store(d.log.Core().Enabled(zapcore.DebugLevel))
	})
}

// queuedCore is the user's logger behind a Queue.
type queuedCore struct {
	log    *zap.Logger
	lines  *Queue
	debug  *debugLevel
	fields []zapcore.Field // of With
}

// Enabled reports for debug lines what the user's logger has answered last, and
// asks it again. For all other lines the logger is asked when the line is
// written.
func (c queuedCore) Enabled(level zapcore.Level) bool {
	if level > zapcore.DebugLevel {
		return true
	}
	c.debug.ask()
	return c.debug.enabled.Load()
}

func (c queuedCore) With(fields []zapcore.Field) zapcore.Core {
	c.fields = slices.Concat(c.fields, fields)
	return c
}

func (c queuedCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(entry.Level) {
		return checked
	}
	return checked.AddCore(entry, c)
}

func (c queuedCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	fields = slices.Concat(c.fields, fields)
	for i, field := range fields {
		if err, ok := field.Interface.(error); ok && field.Type == zapcore.ErrorType {
			fields[i].Interface = lineError{err}
		}
	}
	write := func() {
		log := c.log.Named(entry.LoggerName)
		if checked := log.Check(entry.Level, entry.Message); checked != nil {
			checked.Time = entry.Time // when it happened
			checked.Caller, checked.Stack = entry.Caller, entry.Stack
			checked.Write(fields...)
		}
	}
	if entry.Level > zapcore.ErrorLevel {
		write() // not ours: zap panics or exits after it
	} else {
		c.lines.Offer(write)
	}
	return nil
}

// Sync waits until all lines that were logged before are written.
func (c queuedCore) Sync() error {
	c.lines.Flush(nil)
	return c.log.Sync()
}

// lineError is an error whose text is one line. The text of joined errors has
// several.
type lineError struct{ error }

func (e lineError) Error() string { return strings.ReplaceAll(e.error.Error(), "\n", "; ") }
func (e lineError) Unwrap() error { return e.error }
