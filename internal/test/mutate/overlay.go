package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/format"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/test/overlay"
)

// All faults within functions are compiled into one program, because compiling
// and linking take the time. The environment chooses one of them. Each fault is
// a copy of its function, and the function first checks whether its copy is
// chosen:
//
//	func (s *session) keep() (release func()) {
//		switch fault__ {
//		case 7:
//			return s.keep__7()
//		}
//		...
//	}
//
// A fault outside of functions gets its own program.

const (
	chooserFile = "fault__.go"
	variable    = "ZKR_FAULT"
	faultError  = "errFault__" // an error that no caller knows
)

// chooserSource declares which fault is chosen, in each package.
func chooserSource(pkg string) []byte {
	return fmt.Appendf(nil, `package %s

import (
	errors__ "errors"
	os__ "os"
	strconv__ "strconv"
)

var fault__, _ = strconv__.Atoi(os__.Getenv(%q))

var %s = errors__.New("a fault")

var _ = %s
`, pkg, variable, faultError, faultError)
}

// overlay writes the sources with faults in them, and what go test -overlay
// needs to find them, into dir. The fault numbers[i] is chosen by that number;
// one outside of functions is simply there.
func (m *module) overlay(dir string, faults map[int]*fault) (file string, err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	sources := map[string][]byte{}
	byFile := map[string]map[int]*fault{}
	for i, f := range faults {
		if byFile[f.File] == nil {
			byFile[f.File] = map[int]*fault{}
		}
		byFile[f.File][i] = f
	}
	for path, faults := range byFile {
		p := m.pkg(anyOf(faults).Package)
		source, err := choosable(p.src[path], m.offsets(p, path), faults)
		if err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		sources[path] = source
		sources[filepath.Join(filepath.Dir(path), chooserFile)] = chooserSource(p.trees[path].Name.Name)
	}
	return overlay.Write(dir, m.root, sources)
}

func anyOf(faults map[int]*fault) *fault {
	for _, f := range faults {
		return f
	}
	return nil
}

func (m *module) offsets(p *pkg, path string) *finder {
	return &finder{fset: m.fset, src: p.src[path], info: p.info}
}

// choosable returns a source in which each fault can be chosen by its number.
func choosable(src []byte, at *finder, faults map[int]*fault) ([]byte, error) {
	var edits []*fault
	var copies bytes.Buffer
	byDecl := map[*ast.FuncDecl][]int{}
	for i, f := range faults {
		if f.decl == nil {
			return format.Source(f.apply(src))
		}
		byDecl[f.decl] = append(byDecl[f.decl], i)
	}
	for d, numbers := range byDecl {
		slices.Sort(numbers)
		signature, call := at.callable(d)
		dispatch := "\nswitch fault__ {\n"
		for _, i := range numbers {
			name := fmt.Sprint(d.Name.Name, "__", i)
			result := "return " + call(name)
			if d.Type.Results == nil {
				result = call(name) + "; return"
			}
			dispatch += fmt.Sprintf("case %d: %s\n", i, result)
			copies.WriteString("\n" + at.copyOf(d, name, faults[i]) + "\n")
		}
		body := at.offset(d.Body.Lbrace) + 1
		edits = append(edits, signature...)
		edits = append(edits, &fault{start: body, end: body, text: dispatch + "}\n"})
	}
	slices.SortFunc(edits, func(a, b *fault) int { return cmp.Compare(b.start, a.start) })
	for _, e := range edits {
		src = e.apply(src)
	}
	return format.Source(append(src, copies.Bytes()...))
}

// copyOf returns d under another name, with the fault in it.
func (f *finder) copyOf(d *ast.FuncDecl, name string, fault *fault) string {
	start, end := f.offset(d.Pos()), f.offset(d.End())
	from, to := f.offset(d.Name.Pos()), f.offset(d.Name.End())
	return string(f.src[start:from]) + name + string(f.src[to:fault.start]) + fault.text + string(f.src[fault.end:end])
}

// callable edits d so that every parameter has a name, and returns the call of
// a function with the same parameters.
func (f *finder) callable(d *ast.FuncDecl) (edits []*fault, call func(name string) string) {
	var args []string
	count := 0
	named := func(field *ast.Field) {
		_, variadic := field.Type.(*ast.Ellipsis)
		names := field.Names
		if len(names) == 0 {
			names = []*ast.Ident{nil}
		}
		for _, n := range names {
			arg := fmt.Sprint("arg__", count)
			count++
			switch {
			case n == nil:
				at := f.offset(field.Type.Pos())
				edits = append(edits, &fault{start: at, end: at, text: arg + " "})
			case n.Name == "_":
				edits = append(edits, &fault{start: f.offset(n.Pos()), end: f.offset(n.End()), text: arg})
			default:
				arg = n.Name
			}
			if variadic {
				arg += "..."
			}
			args = append(args, arg)
		}
	}
	prefix, types := "", ""
	if d.Recv != nil {
		named(d.Recv.List[0])
		prefix, args = args[0]+".", nil
	}
	for _, p := range d.Type.Params.List {
		named(p)
	}
	if d.Type.TypeParams != nil {
		var names []string
		for _, t := range d.Type.TypeParams.List {
			for _, n := range t.Names {
				names = append(names, n.Name)
			}
		}
		types = "[" + strings.Join(names, ", ") + "]"
	}
	return edits, func(name string) string {
		return prefix + name + types + "(" + strings.Join(args, ", ") + ")"
	}
}
