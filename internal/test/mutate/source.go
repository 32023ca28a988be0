package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A module is where faults are drawn, and whose tests must find them.
type module struct {
	root, path string // directory and import path
	packages   []*pkg // that get faults
	listed     map[string]*listed
	fset       *token.FileSet
	imports    types.Importer
}

// A pkg is one package that gets faults.
type pkg struct {
	name   string // import path below the module
	path   string
	files  []string // below the module
	src    map[string][]byte
	trees  map[string]*ast.File
	info   *types.Info
	faults []*fault
}

// listed is one package in go list's output.
type listed struct {
	ImportPath, Dir, Export            string
	GoFiles, TestGoFiles, XTestGoFiles []string
	TestImports, XTestImports, Deps    []string
	Module                             *struct{ Path string }
	DepOnly                            bool
}

// list runs go list, which must print JSON.
func (m *module) list(args ...string) (all []*listed, err error) {
	out, err := m.run("go", append([]string{"list"}, args...)...)
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		l := new(listed)
		if err := d.Decode(l); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
}

// load reads and type-checks the packages that match patterns, and finds every
// fault in them.
func load(root string, patterns []string) (*module, error) {
	m := &module{root: root, listed: map[string]*listed{}, fset: token.NewFileSet()}
	all, err := m.list(append([]string{"-export", "-deps", "-json", "errors", "os", "strconv"}, patterns...)...)
	if err != nil {
		return nil, err
	}
	for _, l := range all {
		m.listed[l.ImportPath] = l
		if !l.DepOnly && l.Module != nil { // the others are what chooserSource needs
			m.path = l.Module.Path
			m.packages = append(m.packages, &pkg{path: l.ImportPath, name: strings.TrimPrefix(l.ImportPath, l.Module.Path+"/")})
		}
	}
	m.imports = importer.ForCompiler(m.fset, "gc", func(path string) (io.ReadCloser, error) {
		if l := m.listed[path]; l != nil && l.Export != "" {
			return os.Open(l.Export)
		}
		return nil, fmt.Errorf("%s: not a dependency", path)
	})
	for _, p := range m.packages {
		if err := m.parse(p); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *module) parse(p *pkg) error {
	p.src, p.trees = map[string][]byte{}, map[string]*ast.File{}
	p.info = &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	for _, file := range m.listed[p.path].GoFiles {
		full := filepath.Join(m.listed[p.path].Dir, file)
		name, err := filepath.Rel(m.root, full)
		if err != nil {
			return err
		}
		if p.src[name], err = os.ReadFile(full); err != nil {
			return err
		}
		if p.trees[name], err = parser.ParseFile(m.fset, name, p.src[name], parser.SkipObjectResolution); err != nil {
			return err
		}
		p.files = append(p.files, name)
	}
	if err := m.check(p, p.trees, p.info); err != nil {
		return err
	}
	for _, file := range p.files {
		p.faults = append(p.faults, faultsIn(p.name, file, m.fset, p.src[file], p.trees[file], p.info)...)
	}
	return nil
}

func (m *module) check(p *pkg, trees map[string]*ast.File, info *types.Info) error {
	conf := types.Config{Importer: m.imports, GoVersion: "go1.25"}
	_, err := conf.Check(p.path, m.fset, slices.Collect(maps.Values(trees)), info)
	return err
}

// compiles reports whether the package compiles with the fault.
func (m *module) compiles(p *pkg, f *fault) bool {
	fset := m.fset
	tree, err := parser.ParseFile(fset, f.File, f.apply(p.src[f.File]), parser.SkipObjectResolution)
	if err != nil {
		return false
	}
	chooser, err := parser.ParseFile(fset, chooserFile, chooserSource(tree.Name.Name), parser.SkipObjectResolution)
	if err != nil {
		return false
	}
	trees := maps.Clone(p.trees)
	trees[f.File], trees[chooserFile] = tree, chooser
	return m.check(p, trees, nil) == nil
}

// draw chooses n faults that compile and whose keys match. The same seed always
// gives the same choice, and a larger choice begins with the smaller one.
func (m *module) draw(n int, seed uint64, match *regexp.Regexp) []*fault {
	type candidate struct {
		p *pkg
		f *fault
	}
	var all []candidate
	for _, p := range m.packages {
		for _, f := range p.faults {
			all = append(all, candidate{p, f})
		}
	}
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Compare(a.f.rank(seed), b.f.rank(seed)) })
	var drawn []*fault
	for _, c := range all {
		if len(drawn) == n {
			break
		}
		if match.MatchString(c.f.key()) && m.compiles(c.p, c.f) {
			drawn = append(drawn, c.f)
		}
	}
	return drawn
}

func (m *module) pkg(name string) *pkg {
	i := slices.IndexFunc(m.packages, func(p *pkg) bool { return p.name == name })
	return m.packages[i]
}

// run runs a command in the module, and returns its output.
func (m *module) run(name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = m.root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, stderr.Bytes(), out)
	}
	return out, nil
}
