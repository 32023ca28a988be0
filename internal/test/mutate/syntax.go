package main

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

func (f *finder) offset(p token.Pos) int { return f.fset.Position(p).Offset }

func (f *finder) text(n ast.Node) string {
	return string(f.src[f.offset(n.Pos()):f.offset(n.End())])
}

func (f *finder) parent() ast.Node {
	if len(f.stack) == 0 {
		return nil
	}
	return f.stack[len(f.stack)-1]
}

// isBesideError reports whether the current node is returned together with an
// error.
func (f *finder) isBesideError() bool {
	s, ok := f.parent().(*ast.ReturnStmt)
	if !ok || len(s.Results) < 2 {
		return false
	}
	t := f.resultType(len(s.Results))
	return t != nil && !f.isNil(s.Results[len(s.Results)-1]) && types.Identical(t, types.Universe.Lookup("error").Type())
}

// enclosing returns the switch or select of a clause on the stack.
func (f *finder) enclosing(clause ast.Node) ast.Node {
	i := slices.Index(f.stack, clause)
	if i < 0 {
		i = len(f.stack)
	}
	return f.stack[i-2] // its body is between them
}

// statementOf returns the start of the statement of n, as the cover tool counts
// statements: the part before the colon of a case belongs to the switch.
func (f *finder) statementOf(n ast.Node) token.Pos {
	for i := len(f.stack); i >= 0; i-- {
		if i < len(f.stack) {
			n = f.stack[i]
		}
		switch s := n.(type) {
		case *ast.BlockStmt:
		case *ast.CaseClause, *ast.CommClause:
			return f.enclosing(s).Pos()
		case ast.Stmt:
			if i > 0 {
				if c, ok := f.stack[i-1].(*ast.CommClause); ok && c.Comm == s {
					continue
				}
			}
			return s.Pos()
		}
	}
	return n.Pos()
}

// inComm reports whether s is the send or receive of a case of a select.
func (f *finder) inComm(s ast.Stmt) bool {
	c, ok := f.parent().(*ast.CommClause)
	return ok && c.Comm == s
}

func (f *finder) isNil(e ast.Expr) bool { return f.info.Types[e].IsNil() }

func (f *finder) constant(e ast.Expr) constant.Value { return f.info.Types[e].Value }

func (f *finder) isBuiltin(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name && f.info.Types[e].IsBuiltin()
}

func isBool(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsBoolean != 0
}

func (f *finder) isNumber(e ast.Expr) bool {
	b, ok := f.info.TypeOf(e).Underlying().(*types.Basic)
	return ok && b.Info()&types.IsNumeric != 0
}

func (f *finder) isDuration(n ast.Node) bool {
	e, ok := n.(ast.Expr)
	if !ok || f.info.Types[e].IsType() {
		return false
	}
	t := f.info.TypeOf(e)
	return t != nil && types.TypeString(t, nil) == "time.Duration"
}

// inDuration reports whether the current node is part of a larger Duration.
func (f *finder) inDuration() bool {
	switch p := f.parent().(type) {
	case *ast.BinaryExpr, *ast.ParenExpr:
		return f.isDuration(p)
	case *ast.SelectorExpr:
		return true // its name
	}
	return false
}

// resultType returns the type of the last of n results.
func (f *finder) resultType(n int) types.Type {
	for i := len(f.stack) - 1; i >= 0; i-- {
		var signature types.Type
		switch fn := f.stack[i].(type) {
		case *ast.FuncLit:
			signature = f.info.TypeOf(fn)
		case *ast.FuncDecl:
			signature = f.info.Defs[fn.Name].Type()
		default:
			continue
		}
		results := signature.(*types.Signature).Results()
		if results.Len() != n {
			return nil
		}
		return results.At(n - 1).Type()
	}
	return nil
}

// isLog reports whether a call only writes to a log.
func (f *finder) isLog(c *ast.CallExpr) bool {
	s, ok := c.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	if o := f.info.Uses[s.Sel]; o != nil && o.Pkg() != nil && o.Pkg().Path() == "go.uber.org/zap" {
		return true
	}
	t := f.info.TypeOf(s.X)
	return t != nil && strings.Contains(types.TypeString(t, nil), "go.uber.org/zap.")
}

// isText reports whether a call formats a text, such as an error's: it is one
// of package fmt, or has the parameters of fmt.Sprintf.
func (f *finder) isText(c *ast.CallExpr) bool {
	if s, ok := c.Fun.(*ast.SelectorExpr); ok {
		if o := f.info.Uses[s.Sel]; o != nil && o.Pkg() != nil && o.Pkg().Path() == "fmt" {
			return true
		}
	}
	t := f.info.TypeOf(c.Fun)
	return t != nil && strings.HasPrefix(types.TypeString(t, nil), "func(format string, args ...any)")
}

func (f *finder) onlyLogs(list []ast.Stmt) bool {
	return !slices.ContainsFunc(list, func(s ast.Stmt) bool {
		x, ok := s.(*ast.ExprStmt)
		if !ok {
			return true
		}
		c, ok := x.X.(*ast.CallExpr)
		return !ok || !f.isLog(c)
	})
}

// isLock reports whether a call locks or unlocks. Without one of the two a
// program deadlocks at once, and without both only the race detector notices:
// neither says anything about the tests.
func isLock(c *ast.CallExpr) bool {
	s, ok := c.Fun.(*ast.SelectorExpr)
	return ok && slices.Contains([]string{"Lock", "Unlock", "RLock", "RUnlock"}, s.Sel.Name) && len(c.Args) == 0
}

// blank reports whether an assignment only satisfies the compiler.
func blank(s *ast.AssignStmt) bool {
	for i, l := range s.Lhs {
		if id, ok := l.(*ast.Ident); !ok || id.Name != "_" {
			return false
		}
		if i < len(s.Rhs) {
			if _, ok := s.Rhs[i].(*ast.CallExpr); ok {
				return false
			}
		}
	}
	return true
}

// funcName returns a function's name with its receiver.
func funcName(d *ast.FuncDecl) string {
	switch {
	case d == nil:
		return ""
	case d.Recv == nil:
		return d.Name.Name
	}
	star := ""
	if _, ok := d.Recv.List[0].Type.(*ast.StarExpr); ok {
		star = "*"
	}
	return "(" + star + receiver(d) + ")." + d.Name.Name
}

// receiver returns the name of the receiver's type.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}
