// Typecheck checks the types of packages, their tests included, for another
// system or with another standard library. It compiles nothing: it reads the
// sources of all that they import, which takes a small part of the time of go
// vet.
//
//	typecheck GOOS=darwin CGO_ENABLED=0 ./...
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	if err := check(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// check checks packages. Arguments with a = are for the environment of the go
// command that finds them.
func check(args []string) error {
	config := packages.Config{
		Mode: packages.NeedFiles | packages.NeedImports | packages.NeedDeps | packages.NeedModule |
			packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedTypesSizes,
		Tests: true,
		Env:   os.Environ(),
	}
	var patterns []string
	for _, arg := range args {
		if strings.Contains(arg, "=") {
			config.Env = append(config.Env, arg)
		} else {
			patterns = append(patterns, arg)
		}
	}
	found, err := packages.Load(&config, patterns...)
	if err != nil {
		return err
	}
	if packages.PrintErrors(found) > 0 {
		return errors.New("typecheck: failed")
	}
	return nil
}
