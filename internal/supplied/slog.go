package supplied

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Slog returns a logger that writes to the handler of log, as it must be used.
// Lines have no source file and line. Without log it returns nil.
func Slog(log *slog.Logger) *zap.Logger {
	if log == nil {
		return nil
	}
	return zap.New(slogCore{log.Handler()})
}

// slogCore writes to a handler of log/slog.
type slogCore struct{ handler slog.Handler }

func (c slogCore) Enabled(level zapcore.Level) bool {
	return c.handler.Enabled(context.Background(), slogLevel(level))
}

// With is not called: queuedCore keeps the fields, and adds them to each line.
func (c slogCore) With([]zapcore.Field) zapcore.Core { return c }

func (c slogCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(entry.Level) {
		return checked
	}
	return checked.AddCore(entry, c)
}

func (c slogCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	var source uintptr
	if entry.Caller.Defined {
		source = entry.Caller.PC
	}
	record := slog.NewRecord(entry.Time, slogLevel(entry.Level), entry.Message, source)
	if entry.LoggerName != "" {
		record.AddAttrs(slog.String("logger", entry.LoggerName))
	}
	record.AddAttrs(slogAttrs(fields)...)
	if entry.Stack != "" {
		record.AddAttrs(slog.String("stacktrace", entry.Stack))
	}
	return c.handler.Handle(context.Background(), record)
}

func (c slogCore) Sync() error { return nil }

// slogLevel returns the level of the same name. Above error they are those that
// zap panics or exits after.
func slogLevel(level zapcore.Level) slog.Level { return slog.Level(4 * int(level)) }

// slogAttrs returns fields as attributes. A namespace is a group of all that
// follow it.
func slogAttrs(fields []zapcore.Field) []slog.Attr {
	end := namespaceIn(fields)
	attrs := make([]slog.Attr, 0, end+1)
	for _, field := range fields[:end] {
		attrs = appendAttr(attrs, field)
	}
	if end < len(fields) {
		inner := slogAttrs(fields[end+1:])
		attrs = append(attrs, slog.Attr{Key: fields[end].Key, Value: slog.GroupValue(inner...)})
	}
	return attrs
}

// namespaceIn returns the index of the first namespace, or how many fields
// there are.
func namespaceIn(fields []zapcore.Field) int {
	i := slices.IndexFunc(fields, func(f zapcore.Field) bool { return f.Type == zapcore.NamespaceType })
	if i < 0 {
		return len(fields)
	}
	return i
}

// appendAttr appends field. An error stays an error, for handlers that know
// more than its text.
func appendAttr(attrs []slog.Attr, field zapcore.Field) []slog.Attr {
	if field.Type == zapcore.ErrorType || field.Type == zapcore.ReflectType {
		return append(attrs, slog.Any(field.Key, field.Interface))
	}
	values := zapcore.NewMapObjectEncoder()
	field.AddTo(values)
	return appendValues(attrs, values.Fields)
}

// appendValues appends values in the order of their keys. The values of an
// object become a group.
func appendValues(attrs []slog.Attr, values map[string]any) []slog.Attr {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if inner, ok := values[key].(map[string]any); ok {
			group := appendValues(nil, inner)
			attrs = append(attrs, slog.Attr{Key: key, Value: slog.GroupValue(group...)})
			continue
		}
		attrs = append(attrs, slog.Any(key, values[key]))
	}
	return attrs
}
