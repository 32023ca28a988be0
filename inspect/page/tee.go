package page

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/zkrecipes/zkrecipes/internal/escape"
)

// Tee returns a logger that writes to log, which may be nil, and lets the watch
// remember the last 100 lines from level info on.
func (w *Watch) Tee(log *zap.Logger) *zap.Logger {
	if log == nil {
		log = zap.NewNop()
	}
	return log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewTee(core, &memory{LevelEnabler: zapcore.InfoLevel, watch: w})
	}))
}

// memory is a zapcore.Core that keeps what is written.
type memory struct {
	zapcore.LevelEnabler
	watch  *Watch
	fields []zapcore.Field
}

// With returns a memory whose lines have more fields.
func (m *memory) With(fields []zapcore.Field) zapcore.Core {
	return &memory{m.LevelEnabler, m.watch, slices.Concat(m.fields, fields)}
}

// Check adds the memory to those who get a line.
func (m *memory) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if m.Enabled(e.Level) {
		return to.AddCore(e, m)
	}
	return to
}

// Write keeps a line.
func (m *memory) Write(e zapcore.Entry, fields []zapcore.Field) error {
	const most = 1000
	all := zapcore.NewMapObjectEncoder()
	for _, f := range slices.Concat(m.fields, fields) {
		f.AddTo(all)
	}
	var text strings.Builder
	text.WriteString(e.Message)
	for _, name := range slices.Sorted(maps.Keys(all.Fields)) {
		fmt.Fprintf(&text, "  %s=%v", name, all.Fields[name])
	}
	m.watch.mu.Lock()
	defer m.watch.mu.Unlock()
	m.watch.log = append(m.watch.log, entry{e.Time, e.Level.String(), short(escape.Text(text.String()), most)})
	m.watch.log = m.watch.log[max(0, len(m.watch.log)-mostLog):]
	return nil
}

// Sync has nothing to do.
func (m *memory) Sync() error { return nil }
