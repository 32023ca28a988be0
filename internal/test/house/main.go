// House measures how the managed client is built. make figures prints it. With
// the flag -map it writes a map of the client's files, as make map does.
//
// Its tests are fences. Imports go down, and what is larger than it should be
// is listed in testdata/today.txt with its number. The list only shrinks: the
// test fails if a number grows, and also if it falls and the list does not say
// so yet. With the flag -lower the test writes the lower numbers. measure.go
// says how each figure is made. The map is that of today, and a file that does
// not say what it is for is on the list.
package main

import (
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/test/surface"
)

const module = "github.com/zkrecipes/zkrecipes/"

// face are the files that framework is to have in the end.
var face = []string{
	"client.go", "client_ops.go", "doc.go", "errors.go", "observer.go", "options.go", "sasl.go", "session.go",
}

// faceLines is how many lines the face has at most.
const faceLines = 1600

func main() {
	draws := flag.Bool("map", false, "write "+mapPage+" instead")
	flag.Parse()
	if *draws {
		page, _, err := drawMap(".")
		if err == nil {
			err = os.WriteFile(mapPage, []byte(page), 0o644)
		}
		if err != nil {
			log.Fatal(err)
		}
		return
	}
	f, err := measure()
	if err != nil {
		log.Fatal(err)
	}
	for _, folder := range slices.Sorted(maps.Keys(f.files)) {
		fmt.Printf("%s: %d files, %d lines, %d of %d arrows between files run up\n",
			folder, len(f.files[folder]), f.lines[folder], f.up[folder], f.arrows[folder])
	}
	fmt.Println("in all:", total(f.lines), "lines,", total(f.up), "of", total(f.arrows), "arrows between files run up")
	fmt.Println("mutable fields of a struct:", most(f.fields))
	fmt.Println("mutable fields under a mutex:", most(f.guarded))
	fmt.Println("functions that lock a mutex:", most(f.locking))
	fmt.Println("methods of a type:", most(f.methods))
	fmt.Println("tests by name:", f.tests)
}

func total(of map[string]int) (sum int) {
	for _, n := range of {
		sum += n
	}
	return sum
}

// most returns the three largest.
func most(of map[string]int) string {
	names := slices.SortedFunc(maps.Keys(of), func(a, b string) int { return of[b] - of[a] })
	var text []string
	for _, name := range names[:3] {
		text = append(text, fmt.Sprintf("%d in %s", of[name], name))
	}
	return strings.Join(text, ", ")
}

// measure measures framework and each package of the managed client.
func measure() (*figures, error) {
	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}} {{.Module.Dir}}", module+"framework", module+"internal/managed/...").Output()
	if err != nil {
		return nil, err
	}
	f, packages := newFigures(), map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, root, _ := strings.Cut(strings.TrimSpace(line), " ")
		packages[path] = root
	}
	imports := surface.Compiled(slices.Collect(maps.Keys(packages))...)
	for path, root := range packages {
		if err := f.add(root, strings.TrimPrefix(path, module), imports); err != nil {
			return nil, err
		}
	}
	return f, nil
}
