package docs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/zkrecipes/zkrecipes/framework"
)

// logLine is a call that writes a line to the log.
type logLine struct {
	level, message string
	fields         []logField
	at             token.Position
}

type logField struct{ name, kind string } // kind is zap's function that makes it

// row is the line as the table of errors.md has it.
func (l logLine) row() string {
	names := make([]string, len(l.fields))
	for i, f := range l.fields {
		names[i] = "`" + f.name + "`"
	}
	return fmt.Sprintf("%s | %s | %s", l.level, l.message, strings.Join(names, ", "))
}

// The table of log lines has each line that the library can log, with its level
// and its fields, and no other.
func TestLoggingNamesEachLine(t *testing.T) {
	inSources := map[string]token.Position{}
	for _, line := range logLines(t) {
		inSources[line.row()] = line.at
	}
	inTable := map[string]bool{}
	for _, cells := range tableAfter(t, errorsPage, "## Log lines") {
		if len(cells) != 4 || cells[3] == "" {
			t.Fatalf("a row with %d cells: %q", len(cells), cells)
		}
		inTable[strings.Join(cells[:3], " | ")] = true
	}
	for row, at := range inSources {
		if !inTable[row] {
			t.Errorf("%s: errors.md has no row | %s |", at, row)
		}
	}
	for row := range inTable {
		if _, ok := inSources[row]; !ok {
			t.Errorf("errors.md has a row | %s |, which nothing logs", row)
		}
	}
}

// Each field has one type and one meaning, in whichever line it stands.
func TestLoggingNamesEachField(t *testing.T) {
	kinds := map[string]string{}
	for _, line := range logLines(t) {
		for _, f := range line.fields {
			if kind, ok := kinds[f.name]; ok && kind != f.kind {
				t.Errorf("%s: the field %s is made by zap.%s, and elsewhere by zap.%s", line.at, f.name, f.kind, kind)
			}
			kinds[f.name] = f.kind
		}
	}
	inTable := map[string]bool{}
	for _, cells := range tableAfter(t, "observability.md", "### Fields") {
		name := strings.Trim(cells[0], "`")
		inTable[name] = true
		if kinds[name] == "" || cells[1] != typeOf(kinds[name]) {
			t.Errorf("observability.md says that %s is a %s; made by zap.%s it is a %s", name, cells[1], kinds[name], typeOf(kinds[name]))
		}
	}
	for name := range kinds {
		if !inTable[name] {
			t.Errorf("observability.md does not explain the field %s", name)
		}
	}
}

// typeOf returns what a field that is made by this function of zap is for a
// reader of the log.
func typeOf(kind string) string {
	switch kind {
	case "Int":
		return "number"
	case "Duration":
		return "duration"
	case "Any":
		return "any"
	}
	return "text"
}

// Each line of the table is the same object in zap's JSON and in slog's.
func TestEachLineIsTheSameInZapAndSlog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fromZap, fromSlog bytes.Buffer
		keys := zapcore.EncoderConfig{
			MessageKey: slog.MessageKey, LevelKey: slog.LevelKey, TimeKey: slog.TimeKey,
			EncodeLevel: zapcore.CapitalLevelEncoder, EncodeTime: zapcore.RFC3339NanoTimeEncoder, EncodeDuration: zapcore.NanosDurationEncoder,
		}
		core := zapcore.NewCore(zapcore.NewJSONEncoder(keys), zapcore.AddSync(&fromZap), zap.DebugLevel)
		inZap := offline(t, framework.WithLogger(zap.New(core)))
		inSlog := offline(t, framework.WithSlog(slog.New(slog.NewJSONHandler(&fromSlog, &slog.HandlerOptions{Level: slog.LevelDebug}))))
		synctest.Wait() // the clients have logged that there is no network
		fromZap.Reset()
		fromSlog.Reset()
		lines := logLines(t)
		for _, line := range lines {
			level, err := zapcore.ParseLevel(line.level)
			if err != nil {
				t.Fatal(err)
			}
			var fields []zap.Field
			for _, f := range line.fields {
				fields = append(fields, sample(t, f))
			}
			inZap.Logger().Log(level, line.message, fields...)
			inSlog.Logger().Log(level, line.message, fields...)
		}
		_, _ = inZap.Close(), inSlog.Close()
		want, got := objects(t, &fromZap), objects(t, &fromSlog)
		for _, line := range lines {
			if !reflect.DeepEqual(got[line.message], want[line.message]) || want[line.message] == nil {
				t.Errorf("slog has %v\nzap has  %v", got[line.message], want[line.message])
			}
			for _, f := range line.fields {
				if got[line.message][f.name] == nil {
					t.Errorf("%s: no %s", line.message, f.name)
				}
			}
		}
	})
}

// sample returns a field of this kind.
func sample(t *testing.T, f logField) zap.Field {
	t.Helper()
	switch f.kind {
	case "String":
		return zap.String(f.name, "a \"text\"\nof two lines")
	case "Stringer":
		return zap.Stringer(f.name, framework.Suspended)
	case "Error":
		return zap.Error(errors.Join(errors.New("one"), errors.New("two")))
	case "Duration":
		return zap.Duration(f.name, 1500*time.Millisecond)
	case "Int":
		return zap.Int(f.name, 7)
	case "Any":
		return zap.Any(f.name, struct{ Code int }{7})
	case "Stack":
		return zap.Stack(f.name)
	}
	t.Fatalf("no sample of zap.%s", f.kind)
	return zap.Skip()
}

// objects returns lines of JSON by their message.
func objects(t *testing.T, text *bytes.Buffer) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for in := json.NewDecoder(text); in.More(); {
		var line map[string]any
		if err := in.Decode(&line); err != nil {
			t.Fatal(err)
		}
		message, _ := line[slog.MessageKey].(string)
		if _, ok := all[message]; !ok { // the client may log some itself
			all[message] = line
		}
	}
	return all
}

// offline returns a client that reaches no server.
func offline(t *testing.T, opt framework.Option) *framework.Client {
	t.Helper()
	c, err := framework.New("a", opt, framework.WithDialer(func(string, string, time.Duration) (net.Conn, error) {
		return nil, errors.New("no network")
	}))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// tableAfter returns the cells of the first table after a heading of a page,
// without the table's head.
func tableAfter(t *testing.T, page, heading string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, below, _ := strings.Cut(string(text), "\n"+heading+"\n")
	for line := range strings.Lines(below) {
		line = strings.TrimSpace(line)
		switch {
		case strings.Contains(line, "|"):
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, cells)
		case len(rows) > 0:
			return rows[2:]
		}
	}
	if len(rows) < 3 {
		t.Fatalf("%s has no table below %q", page, heading)
	}
	return rows[2:]
}

// logLines returns the calls in the library's sources that write to a log.
func logLines(t *testing.T) (lines []logLine) {
	t.Helper()
	files := token.NewFileSet()
	for _, root := range []string{"framework", "internal/managed", "recipes", "retry", "internal/supplied"} {
		err := filepath.WalkDir(filepath.Join("..", root), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			lines = append(lines, linesOf(t, files, file)...)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(lines) < 15 {
		t.Fatalf("%d lines found", len(lines))
	}
	return lines
}

// logLevels are the functions of a logger that write a line.
var logLevels = map[string]string{
	"Debug": "debug", "Info": "info", "Warn": "warn", "Error": "error", "DPanic": "dpanic", "Panic": "panic", "Fatal": "fatal",
}

// linesOf returns the lines that a file logs. A field that stands outside of
// such a call is an error: the table could not name it.
func linesOf(t *testing.T, files *token.FileSet, file *ast.File) (lines []logLine) {
	t.Helper()
	inLine := map[ast.Node]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		called, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		at := files.Position(call.Pos())
		if level := logLevels[called.Sel.Name]; level != "" && len(call.Args) > 0 && !isZap(called) {
			line := logLine{level: level, message: literal(t, at, call.Args[0]), at: at}
			for _, arg := range call.Args[1:] {
				inLine[arg] = true
				line.fields = append(line.fields, fieldOf(t, at, arg))
			}
			lines = append(lines, line)
		}
		if makesField(called) && !inLine[call] {
			t.Errorf("%s: zap.%s outside of a call that logs", at, called.Sel.Name)
		}
		return true
	})
	return lines
}

// isZap reports whether f is a function of the package zap.
func isZap(f *ast.SelectorExpr) bool {
	pkg, ok := f.X.(*ast.Ident)
	return ok && pkg.Name == "zap"
}

// makesField reports whether f is a function of the package zap whose result is
// a field.
func makesField(f *ast.SelectorExpr) bool {
	return isZap(f) && slices.Contains([]string{"String", "Stringer", "Error", "NamedError", "Duration", "Int", "Int64", "Bool", "Any", "Stack", "Time", "Reflect"}, f.Sel.Name)
}

// fieldOf returns the field that an argument makes.
func fieldOf(t *testing.T, at token.Position, arg ast.Expr) logField {
	t.Helper()
	call, ok := arg.(*ast.CallExpr)
	if ok {
		if made, ok := call.Fun.(*ast.SelectorExpr); ok && makesField(made) {
			if made.Sel.Name == "Error" {
				return logField{"error", "Error"}
			}
			return logField{literal(t, at, call.Args[0]), made.Sel.Name}
		}
	}
	t.Fatalf("%s: a field must be written as zap.X(\"name\", ...) in the call that logs", at)
	return logField{}
}

// literal returns the text of a string literal.
func literal(t *testing.T, at token.Position, e ast.Expr) string {
	t.Helper()
	if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
		if text, err := strconv.Unquote(lit.Value); err == nil {
			return text
		}
	}
	t.Fatalf("%s: what is logged must be a string literal, with fields for what varies", at)
	return ""
}
