package main

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
)

// mapPage has a line for each file of the managed client. It is generated.
const mapPage = "internal/managed/MAP.md"

// drawMap returns the page, and the files that do not say what they are for.
func drawMap(root string) (page string, silent []string, err error) {
	var text strings.Builder
	text.WriteString("# The files of the client\n\n" +
		"Each with the first sentence of its comments. `make map` writes this page, and a test compares it.\n")
	folders := []string{"framework", "internal/managed"}
	below, err := filepath.Glob(filepath.Join(root, "internal/managed/*/"))
	if err != nil {
		return "", nil, err
	}
	for _, folder := range below {
		folder, _ = filepath.Rel(root, folder)
		folders = append(folders, filepath.ToSlash(folder))
	}
	for _, folder := range folders {
		names, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		if err != nil {
			return "", nil, err
		}
		var rows strings.Builder
		about := ""
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return "", nil, err
			}
			if file.Doc != nil {
				about = synopsis(file.Doc)
			}
			name = filepath.Base(name)
			says := sentence(file)
			if says == "" {
				silent = append(silent, folder+"/"+name)
			}
			fmt.Fprintf(&rows, "`%s` | %s\n", name, says)
		}
		if rows.Len() > 0 {
			fmt.Fprintf(&text, "\n## %s\n\n%s\n\nfile | what\n---|---\n%s", folder, about, rows.String())
		}
	}
	return text.String(), silent, nil
}

// sentence returns the first sentence of a file: that of the first comment
// behind the imports, if it comes before the first declaration or is its own,
// or else that of the package comment.
func sentence(file *ast.File) string {
	from, to := file.Name.End(), file.FileEnd
	for _, d := range file.Decls {
		if g, ok := d.(*ast.GenDecl); !ok || g.Tok != token.IMPORT {
			to = d.Pos()
			break
		}
		from = d.End()
	}
	for _, c := range file.Comments {
		if from < c.Pos() && c.End() < to && c.Text() != "" {
			return synopsis(c)
		}
	}
	return synopsis(file.Doc)
}

func synopsis(c *ast.CommentGroup) string {
	text := strings.ReplaceAll(new(doc.Package).Synopsis(c.Text()), "|", "\\|")
	if rest, ok := strings.CutPrefix(text, "This file "); ok {
		text = strings.ToUpper(rest[:1]) + rest[1:]
	}
	return text
}
