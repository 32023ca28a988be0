package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"strconv"
	"strings"
)

// A finder collects the faults of one file.
type finder struct {
	pkg, file string
	fset      *token.FileSet
	src       []byte
	info      *types.Info

	decl  *ast.FuncDecl
	stack []ast.Node // of the current node, outermost first
	found []*fault
}

// faultsIn returns the faults of a file with their descriptions, in the order
// of the source.
func faultsIn(pkg, file string, fset *token.FileSet, src []byte, tree *ast.File, info *types.Info) []*fault {
	f := &finder{pkg: pkg, file: file, fset: fset, src: src, info: info}
	for _, d := range tree.Decls {
		f.decl, _ = d.(*ast.FuncDecl)
		if f.decl != nil && !worthwhile(f.decl) {
			continue
		}
		ast.PreorderStack(d, nil, func(n ast.Node, stack []ast.Node) bool {
			f.stack = stack
			return f.visit(n)
		})
	}
	describe(src, f.found)
	return f.found
}

// worthwhile reports whether a fault in d can change more than a text.
func worthwhile(d *ast.FuncDecl) bool {
	switch d.Name.Name {
	case "String", "Error", "GoString", "MarshalLogObject", "init", "main", "_":
		return false
	}
	return d.Body != nil && !strings.HasSuffix(receiver(d), "Log")
}

// visit adds the faults of n, and reports whether to visit its children.
func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ImportSpec, *ast.Field, *ast.ArrayType:
		return false // types and names
	case *ast.CallExpr:
		if f.isLog(n) || f.isText(n) {
			return false
		}
		f.call(n)
	case *ast.FuncDecl:
		f.early(n.Body, n.Type)
	case *ast.FuncLit:
		f.early(n.Body, n.Type)
	case ast.Stmt:
		f.statement(n)
	}
	if s, ok := f.parent().(*ast.IfStmt); ok && n == s.Cond && f.decidesLog(s) {
		return false
	}
	if e, ok := n.(ast.Expr); ok {
		f.expression(e)
	}
	return true
}

// decidesLog reports whether s only decides whether something is logged.
func (f *finder) decidesLog(s *ast.IfStmt) bool { return s.Else == nil && f.onlyLogs(s.Body.List) }

func (f *finder) statement(s ast.Stmt) {
	switch s := s.(type) {
	case *ast.IfStmt:
		if !f.decidesLog(s) {
			f.negate(s.Cond, s)
		}
	case *ast.ForStmt:
		if s.Cond != nil {
			f.negate(s.Cond, s)
		}
	case *ast.CaseClause:
		f.caseClause(s)
	case *ast.CommClause:
		f.drop("drop a case", s, f.enclosing(s))
	case *ast.ExprStmt:
		if c, ok := s.X.(*ast.CallExpr); ok && !f.isLog(c) && !isLock(c) && !f.inComm(s) {
			f.drop("drop a statement", s, s)
		}
	case *ast.AssignStmt:
		if s.Tok != token.DEFINE && !f.inComm(s) && !blank(s) {
			f.drop("drop a statement", s, s)
		}
	case *ast.IncDecStmt:
		f.drop("drop a statement", s, s)
	case *ast.SendStmt:
		if !f.inComm(s) {
			f.drop("drop a statement", s, s)
		}
	case *ast.DeferStmt:
		f.deferred("defer", s, s.Call)
	case *ast.GoStmt:
		f.deferred("go", s, s.Call)
	case *ast.ReturnStmt:
		f.returned(s)
	case *ast.BranchStmt:
		f.branch(s)
	}
}

// caseClause drops a case, and negates the conditions of a switch without a
// tag.
func (f *finder) caseClause(c *ast.CaseClause) {
	if !f.onlyLogs(c.Body) || len(c.Body) == 0 {
		f.drop("drop a case", c, f.enclosing(c))
	}
	if s, ok := f.enclosing(c).(*ast.SwitchStmt); ok && s.Tag == nil {
		for _, e := range c.List {
			f.negate(e, c)
		}
	}
}

// deferred drops the statement, or runs its call at once.
func (f *finder) deferred(keyword string, s ast.Stmt, c *ast.CallExpr) {
	if isLock(c) || f.isLog(c) {
		return
	}
	f.drop("drop a statement", s, s)
	f.replace("remove a "+keyword, s, f.text(c), s)
}

// returned swaps an error and nil, and negates a bool.
func (f *finder) returned(s *ast.ReturnStmt) {
	if len(s.Results) == 0 {
		return
	}
	last := s.Results[len(s.Results)-1]
	t := f.resultType(len(s.Results))
	switch {
	case t == nil:
	case types.Identical(t, types.Universe.Lookup("error").Type()):
		if f.isNil(last) {
			f.replace("return an error", last, faultError, s)
		} else {
			f.replace("return no error", last, "nil", s)
		}
	case isBool(t) && f.constant(last) == nil:
		f.replace("negate", last, "!("+f.text(last)+")", s)
	}
}

func (f *finder) branch(s *ast.BranchStmt) {
	if s.Label != nil {
		return
	}
	for i := len(f.stack) - 1; i >= 0; i-- {
		switch f.stack[i].(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			if s.Tok == token.CONTINUE {
				f.replace("swap break and continue", s, "break", s)
			}
			if s.Tok == token.BREAK {
				f.replace("swap break and continue", s, "continue", s)
			}
			return
		case *ast.FuncLit, *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt:
			return
		}
	}
}

func (f *finder) expression(e ast.Expr) {
	f.duration(e)
	switch e := e.(type) {
	case *ast.BinaryExpr:
		f.binary(e)
	case *ast.BasicLit:
		if e.Kind == token.INT {
			f.integer(e)
		}
	case *ast.Ident:
		if o := f.info.Uses[e]; o != nil && o.Parent() == types.Universe && (e.Name == "true" || e.Name == "false") {
			f.replace("flip a bool", e, strconv.FormatBool(e.Name == "false"), e)
		}
	}
}

var swaps = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS,
	token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.ADD: token.SUB, token.SUB: token.ADD,
	token.LAND: token.LOR, token.LOR: token.LAND,
}

func (f *finder) binary(e *ast.BinaryExpr) {
	to, ok := swaps[e.Op]
	if !ok || f.constant(e) != nil || e.Op == token.ADD && !f.isNumber(e) {
		return
	}
	op := "swap + and -"
	switch e.Op {
	case token.LAND, token.LOR:
		op = "swap && and ||"
		for _, x := range []ast.Expr{e.X, e.Y} {
			if b, ok := x.(*ast.BinaryExpr); !ok || b.Op != token.LAND && b.Op != token.LOR {
				f.negate(x, e)
			}
		}
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		op = "move a bound"
	}
	f.replace(op, e, "("+f.text(e.X)+" "+to.String()+" "+f.text(e.Y)+")", e)
}

// integer changes numbers that count something. It leaves alone Durations,
// which duration changes (a nanosecond more has no visible effect), capacities,
// which have none either, and what is returned beside an error, which nobody
// uses.
func (f *finder) integer(e *ast.BasicLit) {
	v, err := strconv.ParseInt(e.Value, 0, 64)
	if err != nil || f.inDuration() || f.isDuration(e) || f.isBesideError() {
		return
	}
	if c, ok := f.parent().(*ast.CallExpr); ok && f.isBuiltin(c.Fun, "make") {
		if _, isChan := f.info.TypeOf(c.Args[0]).Underlying().(*types.Chan); !isChan && e != c.Args[1] {
			return
		}
		if _, isMap := f.info.TypeOf(c.Args[0]).Underlying().(*types.Map); isMap {
			return
		}
	}
	f.replace("change a constant", e, fmt.Sprint(v+1), e)
	switch {
	case v == 1:
		f.replace("change a constant", e, "0", e)
	case v > 1:
		f.replace("change a constant", e, fmt.Sprint(v-1), e)
	}
}

// duration halves and doubles a value that is computed or passed as a Duration.
func (f *finder) duration(e ast.Expr) {
	if !f.isDuration(e) || f.inDuration() {
		return
	}
	if v := f.constant(e); v != nil && constant.Sign(v) == 0 {
		return
	}
	call, ok := f.parent().(*ast.CallExpr)
	_, computed := e.(*ast.BinaryExpr)
	if argument := ok && call.Fun != e && !f.info.Types[call.Fun].IsType(); !argument && !computed && f.constant(e) == nil {
		return
	}
	if id, ok := e.(*ast.Ident); ok && f.info.Defs[id] != nil {
		return
	}
	f.replace("double a duration", e, "("+f.text(e)+")*2", e)
	f.replace("halve a duration", e, "("+f.text(e)+")/2", e)
}

// call swaps min and max.
func (f *finder) call(c *ast.CallExpr) {
	for from, to := range map[string]string{"min": "max", "max": "min"} {
		if f.isBuiltin(c.Fun, from) {
			f.replace("swap min and max", c.Fun, to, c)
		}
	}
}

// early returns before the statements of a function that decide something. The
// others are dropped one by one.
func (f *finder) early(body *ast.BlockStmt, t *ast.FuncType) {
	locked := 0
	for i, s := range body.List {
		if x, ok := s.(*ast.ExprStmt); ok {
			if c, ok := x.X.(*ast.CallExpr); ok && isLock(c) {
				locked++
				if strings.HasSuffix(f.text(c.Fun), "nlock") {
					locked -= 2
				}
			}
		}
		switch s.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt, *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt:
			if i > 0 && locked <= 0 {
				f.insert("return early", s, "return "+f.zeros(t)+"; ")
			}
		}
	}
}

// zeros returns the zero values of all results.
func (f *finder) zeros(t *ast.FuncType) string {
	var zeros []string
	if t.Results != nil {
		for _, r := range t.Results.List {
			for range max(1, len(r.Names)) {
				zeros = append(zeros, "*new("+f.text(r.Type)+")")
			}
		}
	}
	return strings.Join(zeros, ", ")
}

func (f *finder) negate(e ast.Expr, probe ast.Node) {
	f.replace("negate", e, "!("+f.text(e)+")", probe)
}

func (f *finder) drop(op string, n, probe ast.Node) { f.replace(op, n, "", probe) }

func (f *finder) insert(op string, before ast.Node, text string) {
	at := f.offset(before.Pos())
	f.add(op, at, at, text, before)
}

func (f *finder) replace(op string, n ast.Node, text string, probe ast.Node) {
	f.add(op, f.offset(n.Pos()), f.offset(n.End()), text, probe)
}

func (f *finder) add(op string, start, end int, text string, probe ast.Node) {
	f.found = append(f.found, &fault{
		Package: f.pkg, File: f.file, Func: funcName(f.decl), Operator: op,
		decl: f.decl, start: start, end: end, text: text, probe: f.offset(f.statementOf(probe)),
	})
}
