package docs

import (
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/guardian"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/test/tables"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

const errorsPage = "errors.md"

// The page has each error that a public package exports, and no other. The
// packages are found, not listed.
func TestErrorsNamesEachExportedError(t *testing.T) {
	inTable := map[string]bool{}
	for _, row := range rowsAfter(t, errorsPage, "## Errors of the library", 3) {
		inTable[row.name] = true
	}
	exported := exportedErrors(t)
	if len(exported) < 20 {
		t.Fatalf("only %d exported errors were found", len(exported))
	}
	sameNames(t, inTable, exported)
}

// What the page says that an error wraps, it wraps.
func TestErrorsSaysWhatAnErrorWraps(t *testing.T) {
	wraps := map[string]struct{ err, wrapped error }{
		"`framework.ErrUnproven` wraps `framework.ErrSessionLost`":    {framework.ErrUnproven, framework.ErrSessionLost},
		"`framework.ErrSuspended` wraps `framework.ErrSessionLost`":   {framework.ErrSuspended, framework.ErrSessionLost},
		"`framework.ErrAuthFailed` wraps `zk.ErrAuthFailed`":          {framework.ErrAuthFailed, zk.ErrAuthFailed},
		"`framework.ErrAuthRequired` wraps `framework.ErrAuthFailed`": {framework.ErrAuthRequired, framework.ErrAuthFailed},
		"`rwlock.ErrUpgrade` wraps `recipes.ErrDeadlock`":             {rwlock.ErrUpgrade, recipes.ErrDeadlock},
	}
	said := map[string]bool{}
	for _, row := range rowsAfter(t, errorsPage, "## Errors of the library", 3) {
		for _, m := range regexp.MustCompile("It wraps (`[\\w.]+`)").FindAllStringSubmatch(row.rest[0], -1) {
			said[fmt.Sprintf("`%s` wraps %s", row.name, m[1])] = true
		}
	}
	known := map[string]bool{}
	for text, w := range wraps {
		known[text] = true
		if !errors.Is(w.err, w.wrapped) {
			t.Errorf("it does not: %s", text)
		}
	}
	sameNames(t, said, known)
}

// texts are the texts of the errors, by which one finds them in a log.
var texts = map[string]error{
	"framework.ErrClosed": framework.ErrClosed, "framework.ErrSessionLost": framework.ErrSessionLost,
	"framework.ErrUnproven": framework.ErrUnproven, "framework.ErrSuspended": framework.ErrSuspended,
	"framework.ErrNoSession": framework.ErrNoSession, "framework.ErrTooLarge": framework.ErrTooLarge,
	"framework.ErrAuthFailed": framework.ErrAuthFailed, "framework.ErrAuthRequired": zkerr.WithMeaning(zkerr.Of(wire.SessionClosedRequire)), // as a server says it
	"recipes.ErrBusy": recipes.ErrBusy, "recipes.ErrNotHeld": recipes.ErrNotHeld, "recipes.ErrReleased": recipes.ErrReleased,
	"recipes.ErrLayout": recipes.ErrLayout, "recipes.ErrExhausted": recipes.ErrExhausted,
	"recipes.ErrMaxHold": recipes.ErrMaxHold, "recipes.ErrDeadlock": recipes.ErrDeadlock,
	"rwlock.ErrUpgrade": rwlock.ErrUpgrade, "semaphore.ErrLimit": semaphore.ErrLimit, "locks.ErrClosed": locks.ErrClosed,
	"leader.ErrNoLeader": leader.ErrNoLeader, "leader.ErrStop": leader.ErrStop, "leader.ErrResigned": leader.ErrResigned,
	"leader.ErrTermOver": leader.ErrTermOver, "leader.ErrUnhealthy": leader.ErrUnhealthy,
	"presence.ErrClosed": presence.ErrClosed, "presence.ErrNotStarted": presence.ErrNotStarted,
	"presence.ErrRemoved": presence.ErrRemoved, "presence.ErrUnhealthy": presence.ErrUnhealthy,
	"cache.ErrSnapshot": cache.ErrSnapshot, "counter.ErrData": counter.ErrData, "counter.ErrOverflow": counter.ErrOverflow,
	"counter.ErrAmount": counter.ErrAmount, "barrier.ErrGone": barrier.ErrGone,
	"guardian.ErrNotAChild": guardian.ErrNotAChild, "discovery.ErrNoInstance": discovery.ErrNoInstance,

	"zk.ErrNoNode": zk.ErrNoNode, "zk.ErrNodeExists": zk.ErrNodeExists, "zk.ErrBadVersion": zk.ErrBadVersion,
	"zk.ErrNotEmpty": zk.ErrNotEmpty, "zk.ErrConnectionClosed": zk.ErrConnectionClosed, "zk.ErrClosing": zk.ErrClosing,
	"zk.ErrNoServer": zk.ErrNoServer, "zk.ErrSessionExpired": zk.ErrSessionExpired, "zk.ErrSessionMoved": zk.ErrSessionMoved,
	"zk.ErrNoAuth": zk.ErrNoAuth, "zk.ErrInvalidACL": zk.ErrInvalidACL, "zk.ErrBadArguments": zk.ErrBadArguments,
	"zk.ErrNoChildrenForEphemerals": zk.ErrNoChildrenForEphemerals, "zk.ErrAPIError": zk.ErrAPIError,
}

// The page has the text of each exported error, and of the wire client's.
func TestErrorsHasTheTexts(t *testing.T) {
	ours, rows := map[string]bool{}, []string{}
	for name, err := range texts {
		if !strings.HasPrefix(name, "zk.") {
			ours[name] = true
		}
		rows = append(rows, fmt.Sprintf("%s | `%s`", strings.TrimPrefix(err.Error(), "zk: "), name))
	}
	slices.Sort(rows)
	tables.Made(t, errorsPage, "texts", "text | error\n---|---\n"+strings.Join(rows, "\n")+"\n")
	sameNames(t, ours, exportedErrors(t))
}

// The page has each code that framework.ErrorCode can return, and no other,
// with the errors that have it, and says when the client sends a request with
// such an error again.
func TestErrorsNamesEachCode(t *testing.T) {
	codes := errorCodes(t)
	if len(codes) < 30 {
		t.Fatalf("only %d codes were found", len(codes))
	}
	inTable := map[string]bool{}
	for _, row := range rowsAfter(t, errorsPage, "## Codes", 4) {
		inTable[row.name] = true
		code, ok := codes[row.name]
		if !ok {
			continue
		}
		var shown []string
		for _, m := range regexp.MustCompile("`([\\w.]+)`").FindAllStringSubmatch(row.rest[0], -1) {
			shown = append(shown, m[1])
		}
		if slices.Sort(shown); !slices.Equal(shown, code.errors) {
			t.Errorf("the row of %s has the errors %q, want %q", row.name, shown, code.errors)
		}
		if row.rest[1] != code.again {
			t.Errorf("the row of %s says %q about sending again, want %q", row.name, row.rest[1], code.again)
		}
	}
	exists := map[string]bool{}
	for name := range codes {
		exists[name] = true
	}
	sameNames(t, inTable, exists)
}

// code is what the sources say about a code: the exported errors that have it,
// and when the client sends a request again.
type code struct {
	errors []string
	again  string
}

// errorCodes returns the codes in the sources of zkerr.Name, and in the table
// that it reads. What each means for a request is asked of zkerr.Classify.
func errorCodes(t *testing.T) map[string]code {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../internal/managed/zkerr/codes.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]code{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			if len(n.Names) == 1 && n.Names[0].Name == "meanings" {
				for _, row := range n.Values[0].(*ast.CompositeLit).Elts {
					cells := row.(*ast.CompositeLit).Elts
					name := text(t, cells[2])
					if errorOf := exportedName(cells[1]); errorOf != "" {
						c := found[name]
						c.errors = append(c.errors, errorOf)
						slices.Sort(c.errors)
						found[name] = c
					} else if _, ok := found[name]; !ok {
						found[name] = code{}
					}
				}
			}
		case *ast.FuncDecl:
			if n.Name.Name == "Name" {
				ast.Inspect(n, func(n ast.Node) bool {
					if r, ok := n.(*ast.ReturnStmt); ok {
						if lit, ok := r.Results[0].(*ast.BasicLit); ok {
							found[text(t, lit)] = code{}
						}
					}
					return true
				})
			}
		}
		return true
	})
	for name, outcome := range outcomes(t) {
		c, ok := found[name]
		if !ok {
			t.Errorf("no source has the code %s, which an error has", name)
		}
		c.again = outcome
		found[name] = c
	}
	return found
}

// outcomes returns when the client sends a request again, by the code of its
// error. Those that the wire client makes are tried, and each number that a
// server can answer with.
func outcomes(t *testing.T) map[string]string {
	t.Helper()
	// What framework/retry.go does after each outcome.
	again := map[zkerr.Outcome]string{zkerr.Final: "no", zkerr.Unsent: "yes", zkerr.Expired: "yes", zkerr.Ambiguous: "if harmless"}
	tried := []error{zk.ErrConnectionClosed, zk.ErrClosing, zk.ErrNoServer}
	for n := 1; n < 200; n++ {
		tried = append(tried, zkerr.WithMeaning(zkerr.Of(wire.Code(-n))))
	}
	found := map[string]string{"OK": "no", "CLOSED": "no", "UNPROVEN": "no", "TIMEOUT": "no", "CANCELED": "no"} // they end the call
	for _, err := range tried {
		name, outcome := framework.ErrorCode(err), again[zkerr.Classify(err)]
		if before, ok := found[name]; ok && before != outcome {
			t.Errorf("%s: %q, and for another error %q", name, before, outcome)
		}
		found[name] = outcome
	}
	return found
}

// exportedName returns how users of the library call an error of the sources of
// zkerr: "" if it is nil.
func exportedName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		return e.X.(*ast.Ident).Name + "." + e.Sel.Name
	case *ast.Ident:
		if e.Name != "nil" {
			return "framework.Err" + e.Name
		}
	}
	return ""
}

func text(t *testing.T, e ast.Expr) string {
	t.Helper()
	s, err := strconv.Unquote(e.(*ast.BasicLit).Value)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// exportedErrors returns the exported variables and types of all public
// packages of this module that are errors.
func exportedErrors(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	isError := types.Universe.Lookup("error").Type().Underlying().(*types.Interface)
	paths := publicPackages(t)
	sources := importer.ForCompiler(token.NewFileSet(), "gc", exports(t, paths...))
	for _, p := range paths {
		pkg, err := sources.Import(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range pkg.Scope().Names() {
			object := pkg.Scope().Lookup(name)
			is := false
			switch object.(type) {
			case *types.Var:
				is = types.Implements(object.Type(), isError)
			case *types.TypeName:
				is = !types.IsInterface(object.Type()) && types.Implements(types.NewPointer(object.Type()), isError)
			}
			if is && object.Exported() {
				found[path.Base(p)+"."+name] = true
			}
		}
	}
	return found
}

// publicPackages are the packages of this module that users import.
func publicPackages(t *testing.T) (paths []string) {
	t.Helper()
	out, err := exec.Command("go", "list", "-f", "{{.Name}} {{.ImportPath}}", "../...").Output()
	if err != nil {
		t.Fatal(err)
	}
	hidden := regexp.MustCompile(`/(internal|docs|examples|models)(/|$)`)
	for line := range strings.Lines(string(out)) {
		if name, p, _ := strings.Cut(strings.TrimSpace(line), " "); name != "main" && !hidden.MatchString(p) {
			paths = append(paths, p)
		}
	}
	if len(paths) < 15 {
		t.Fatalf("only the packages %q", paths)
	}
	return paths
}

// row is a row of a table of the page: the name in its first cell, and the
// other cells.
type row struct {
	name string
	rest []string
}

// rowsAfter returns the rows of the first table after a heading. Each has so
// many cells, says what to do or what it means, and has another name.
func rowsAfter(t *testing.T, page, heading string, cells int) (rows []row) {
	t.Helper()
	seen := map[string]bool{}
	for _, c := range tableAfter(t, page, heading) {
		if len(c) != cells || c[0] == "" || c[cells-1] == "" {
			t.Fatalf("%s: a row with %d cells: %q", page, len(c), c)
		}
		name := strings.Trim(c[0], "`")
		if seen[name] {
			t.Errorf("%s has two rows for %s", page, name)
		}
		seen[name] = true
		rows = append(rows, row{name, c[1:]})
	}
	return rows
}

// sameNames reports what the page has and the sources do not, and the other way
// round.
func sameNames(t *testing.T, page, sources map[string]bool) {
	t.Helper()
	for name := range sources {
		if !page[name] {
			t.Errorf("%s does not have %s", errorsPage, name)
		}
	}
	for name := range page {
		if !sources[name] {
			t.Errorf("%s has %s, which the sources do not have", errorsPage, name)
		}
	}
}
