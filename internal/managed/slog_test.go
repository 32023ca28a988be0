package managed_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/slogtest"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// slogJSON returns an option for a slog handler that writes lines of JSON, and
// where it writes them.
func slogJSON(level slog.Leveler) (framework.Option, *bytes.Buffer) {
	var out bytes.Buffer
	return framework.WithSlog(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: level, AddSource: true}))), &out
}

// zapJSON is the same for a zap logger, with the same keys.
func zapJSON(level zapcore.LevelEnabler) (framework.Option, *bytes.Buffer) {
	var out bytes.Buffer
	keys := zapcore.EncoderConfig{
		MessageKey: slog.MessageKey, LevelKey: slog.LevelKey, TimeKey: slog.TimeKey, NameKey: "logger", StacktraceKey: "stacktrace",
		EncodeLevel: zapcore.CapitalLevelEncoder, EncodeTime: zapcore.RFC3339NanoTimeEncoder, EncodeDuration: zapcore.NanosDurationEncoder,
	}
	return framework.WithLogger(zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(keys), zapcore.AddSync(&out), level))), &out
}

// lineWith returns the line with this message, as an object.
func lineWith(t *testing.T, out *bytes.Buffer, message string) map[string]any {
	t.Helper()
	var found map[string]any
	for _, text := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if line[slog.MessageKey] == message {
			found = line
		}
	}
	return found
}

type point struct{ x, y int }

func (p point) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	enc.AddInt("x", p.x)
	return enc.AddObject("inner", zapcore.ObjectMarshalerFunc(func(enc zapcore.ObjectEncoder) error {
		enc.AddInt("y", p.y)
		return nil
	}))
}

func (p *point) String() string { return fmt.Sprint(p.x, p.y) }

// Each kind of field of zap reaches a slog handler as it reaches zap's own
// JSON.
func TestSlogHasTheFieldsOfZap(t *testing.T) {
	joined := errors.Join(errors.New("one"), errors.New("two"))
	for _, tt := range []struct {
		name   string
		fields []zap.Field
	}{
		{"none", nil},
		{"text", []zap.Field{zap.String("path", "/a\n\"b\"")}},
		{"numbers", []zap.Field{zap.Int("a", -1), zap.Uint64("b", 1<<40), zap.Float64("c", 0.5), zap.Bool("d", true)}},
		{"durations and times", []zap.Field{zap.Duration("by", 1500*time.Millisecond), zap.Time("at", time.Unix(1, 5).UTC())}},
		{"an error", []zap.Field{zap.Error(joined), zap.NamedError("why", errors.New("x"))}},
		{"no error", []zap.Field{zap.Error(nil), zap.Int("a", 1)}},
		{"texts of values", []zap.Field{zap.Stringer("p", &point{1, 2}), zap.Stringer("state", framework.Lost)}},
		{"a nil Stringer", []zap.Field{zap.Stringer("p", (*point)(nil))}},
		{"bytes", []zap.Field{zap.Binary("a", []byte{0, 1}), zap.ByteString("b", []byte("text"))}},
		{"any value", []zap.Field{zap.Any("panic", "text"), zap.Any("m", map[string]int{"k": 1}), zap.Any("s", []int{1, 2})}},
		{"lists", []zap.Field{zap.Strings("a", []string{"x", "y"}), zap.Ints("b", nil)}},
		{"objects", []zap.Field{zap.Object("p", point{1, 2}), zap.Inline(point{3, 4})}},
		{"a group", []zap.Field{zap.Int("a", 1), zap.Namespace("g"), zap.Int("b", 2), zap.Namespace("h"), zap.Int("c", 3)}},
		{"a stack", []zap.Field{zap.Stack("stack")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logInBoth(t, func(log *zap.Logger) { log.Warn("line", tt.fields...) })
				logInBoth(t, func(log *zap.Logger) { log.With(tt.fields...).Warn("line", zap.Int("last", 1)) })
				logInBoth(t, func(log *zap.Logger) { log.Named("sub").With(zap.Namespace("n")).Error("line", tt.fields...) })
			})
		})
	}
}

// logInBoth compares what a line becomes with WithLogger and with WithSlog.
func logInBoth(t *testing.T, write func(log *zap.Logger)) {
	t.Helper()
	slogOption, fromSlog := slogJSON(slog.LevelInfo)
	zapOption, fromZap := zapJSON(zap.InfoLevel)
	overSlog, overZap := offline(t, slogOption), offline(t, zapOption)
	write(overSlog.Logger()) // both at the same time, which is virtual
	write(overZap.Logger())
	_, _ = overSlog.Close(), overZap.Close()
	got, want := lineWith(t, fromSlog, "line"), lineWith(t, fromZap, "line")
	maps.DeleteFunc(want, func(_ string, v any) bool { // slog has no empty groups
		group, ok := v.(map[string]any)
		return ok && len(group) == 0
	})
	if want == nil || !reflect.DeepEqual(got, want) {
		t.Errorf("slog has %v\nzap has  %v", got, want)
	}
}

// offline returns a client that reaches no server.
func offline(t *testing.T, opts ...framework.Option) *framework.Client {
	t.Helper()
	c, err := framework.New("a", append(opts, framework.WithDialer(refuse))...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A slog handler gets what a slog handler must get, when its records come from
// the client's logger.
func TestSlogHandlerIsUsedAsItMustBe(t *testing.T) {
	var out *bytes.Buffer
	slogtest.Run(t, func(t *testing.T) slog.Handler {
		var opt framework.Option
		opt, out = slogJSON(slog.LevelInfo)
		c := offline(t, opt)
		t.Cleanup(func() { _ = c.Close() })
		return overZap{c.Logger()}
	}, func(t *testing.T) map[string]any {
		for _, text := range strings.Split(strings.TrimSpace(out.String()), "\n") {
			var line map[string]any
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				t.Fatal(err)
			}
			if line[slog.MessageKey] == "msg" || line[slog.MessageKey] == "message" {
				return line
			}
		}
		t.Fatalf("no line: %s", out)
		return nil
	})
}

// overZap is a slog handler that writes to a zap logger.
type overZap struct{ log *zap.Logger }

func (h overZap) Enabled(_ context.Context, level slog.Level) bool {
	return h.log.Core().Enabled(zapcore.Level(level / 4))
}

func (h overZap) WithAttrs(attrs []slog.Attr) slog.Handler {
	return overZap{h.log.With(fieldsOf(attrs)...)}
}

func (h overZap) WithGroup(name string) slog.Handler {
	return overZap{h.log.With(zap.Namespace(name))}
}

func (h overZap) Handle(_ context.Context, r slog.Record) error {
	var attrs []slog.Attr
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, a)
		return true
	})
	if checked := h.log.Check(zapcore.Level(r.Level/4), r.Message); checked != nil {
		checked.Time = r.Time
		checked.Write(fieldsOf(attrs)...)
	}
	return h.log.Sync()
}

// fieldsOf returns attributes as the fields that say the same.
func fieldsOf(attrs []slog.Attr) (fields []zap.Field) {
	for _, a := range attrs {
		switch v := a.Value.Resolve(); {
		case a.Equal(slog.Attr{}):
		case v.Kind() == slog.KindGroup && a.Key == "":
			fields = append(fields, fieldsOf(v.Group())...)
		case v.Kind() == slog.KindGroup:
			fields = append(fields, zap.Dict(a.Key, fieldsOf(v.Group())...))
		default:
			fields = append(fields, zap.Any(a.Key, v.Any()))
		}
	}
	return fields
}

// Levels have the same names, and a line below the handler's level is not
// written. A source is only given where somebody asks for it.
func TestSlogLevels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		level := new(slog.LevelVar)
		level.Set(slog.LevelWarn)
		opt, out := slogJSON(level)
		c := offline(t, opt)
		log := c.Logger()
		for _, name := range []zapcore.Level{zap.DebugLevel, zap.InfoLevel, zap.WarnLevel, zap.ErrorLevel} {
			log.Log(name, name.CapitalString())
		}
		_ = log.Sync()
		for _, name := range []string{"DEBUG", "INFO"} {
			if line := lineWith(t, out, name); line != nil {
				t.Errorf("%v was written", line)
			}
		}
		for _, name := range []string{"WARN", "ERROR"} {
			if line := lineWith(t, out, name); line[slog.LevelKey] != name || line[slog.SourceKey] != nil {
				t.Errorf("%s: %v", name, line)
			}
		}
		level.Set(slog.LevelDebug)
		log.Debug("the first one asks the handler")
		_ = log.Sync()
		log.Debug("debug")
		log.WithOptions(zap.AddCaller()).Info("with a source")
		_ = c.Close()
		if line := lineWith(t, out, "debug"); line[slog.LevelKey] != "DEBUG" {
			t.Errorf("debug: %v", line)
		}
		source, _ := lineWith(t, out, "with a source")[slog.SourceKey].(map[string]any)
		if file, _ := source["file"].(string); !strings.HasSuffix(file, "slog_test.go") {
			t.Errorf("source %v", source)
		}
	})
}

// Of WithLogger and WithSlog the last one counts. New refuses a logger that is
// nil.
func TestTheLastLoggerCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, last := range []string{"slog", "zap"} {
			slogOption, fromSlog := slogJSON(slog.LevelInfo)
			zapOption, fromZap := zapJSON(zap.InfoLevel)
			opts, used, unused := []framework.Option{zapOption, slogOption}, fromSlog, fromZap
			if last == "zap" {
				opts, used, unused = []framework.Option{framework.WithSlog(nil), slogOption, zapOption}, fromZap, fromSlog
			}
			c := offline(t, opts...)
			c.Logger().Info("line")
			_ = c.Close()
			if used.Len() == 0 || unused.Len() > 0 {
				t.Errorf("%s is last: slog has %q, zap has %q", last, fromSlog, fromZap)
			}
		}
		_, err := framework.New("a", framework.WithLogger(zap.NewNop()), framework.WithSlog(nil))
		if err == nil || !strings.Contains(err.Error(), "logger: nil") {
			t.Errorf("no slog logger: %v", err)
		}
	})
}

// oddHandler is a slog handler that does something else in each function.
type oddHandler struct {
	odd   func()
	calls *atomic.Int32
}

func (h oddHandler) do()                                       { h.calls.Add(1); h.odd() }
func (h oddHandler) Enabled(context.Context, slog.Level) bool  { h.do(); return true }
func (h oddHandler) Handle(context.Context, slog.Record) error { h.do(); return nil }
func (h oddHandler) WithAttrs([]slog.Attr) slog.Handler        { h.do(); return h }
func (h oddHandler) WithGroup(string) slog.Handler             { h.do(); return h }

// oddCore is the same as a zap core.
type oddCore struct{ oddHandler }

func (c oddCore) With([]zapcore.Field) zapcore.Core          { c.do(); return c }
func (c oddCore) Write(zapcore.Entry, []zapcore.Field) error { c.do(); return nil }
func (c oddCore) Sync() error                                { c.do(); return nil }
func (c oddCore) Enabled(zapcore.Level) bool                 { c.do(); return true }
func (c oddCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	c.do()
	return checked.AddCore(e, c)
}

// A logger that blocks, panics or ends its goroutine delays nothing, not even
// by the question whether debug lines are written. Dialing and the wire client
// used to ask that themselves: so one that blocked kept the client from
// connecting, and one that panicked ended the program.
func TestALoggerThatMisbehaves(t *testing.T) {
	for name, odd := range map[string]func(free chan struct{}){
		"blocks":             func(free chan struct{}) { <-free },
		"panics":             func(chan struct{}) { panic("the logger") },
		"ends its goroutine": func(chan struct{}) { runtime.Goexit() },
	} {
		for _, kind := range []string{"slog", "zap"} {
			t.Run(kind+" "+name, func(t *testing.T) {
				inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
					free := make(chan struct{})
					defer close(free)
					handler := oddHandler{func() { odd(free) }, new(atomic.Int32)}
					opt := framework.WithLogger(zap.New(oddCore{handler}))
					if kind == "slog" {
						opt = framework.WithSlog(slog.New(handler))
					}
					began := time.Now()
					c, network := connect(t, ens, opt)
					for range 3 {
						network.Drop()
						if _, _, err := c.Exists(t.Context(), "/"); err != nil {
							t.Error(err)
						}
					}
					c.Logger().With(zap.Int("a", 1), zap.Namespace("b")).Debug("line")
					if took := time.Since(began); took > 2*time.Second {
						t.Errorf("it took %v", took)
					}
					if handler.calls.Load() == 0 {
						t.Error("the logger was not asked")
					}
				})
			})
		}
	}
}

// A logger whose lines carry stacks at some level used to get the stack of the
// client's own queue. Names that are given to Client.Logger were dropped.
func TestLinesHaveNoForeignStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		keys := zapcore.EncoderConfig{MessageKey: "msg", NameKey: "logger", StacktraceKey: "stacktrace"}
		core := zapcore.NewCore(zapcore.NewJSONEncoder(keys), zapcore.AddSync(&out), zap.DebugLevel)
		c := offline(t, framework.WithLogger(zap.New(core, zap.AddCaller(), zap.AddStacktrace(zap.DebugLevel)).Named("app")))
		c.Logger().Named("sub").Error("line")
		c.Logger().WithOptions(zap.AddStacktrace(zap.ErrorLevel)).Error("with its stack")
		_ = c.Close()
		if line := lineWith(t, &out, "line"); line["logger"] != "app.sub" || line["stacktrace"] != nil {
			t.Errorf("line: %v", line)
		}
		if stack, _ := lineWith(t, &out, "with its stack")["stacktrace"].(string); !strings.Contains(stack, "TestLinesHaveNoForeignStack") {
			t.Errorf("stack: %s", stack)
		}
	})
}
