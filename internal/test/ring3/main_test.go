package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const real = `package p

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

func TestLong(t *testing.T) { apache.Start(t, 1) }
`

// files are those of a module that is made for this test.
var files = map[string]string{
	"recipe/a_test.go": `package recipe

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

func start(t *testing.T) { apache.Start(t, 1) }

type stage struct{}

func (stage) play(t *testing.T) { start(t) }

func TestDirectly(t *testing.T) { apache.Start(t, 3) }

func TestMain(m *testing.M) { start(nil) }

func TestNamesAType(t *testing.T) { var _ *apache.Ensemble }

func BenchmarkReal(b *testing.B) { apache.Start(b, 1) }

func Testimony(t *testing.T) { start(t) }
`,
	"recipe/b_test.go": `package recipe

import (
	"os"
	"testing"

	each "github.com/zkrecipes/zkrecipes/internal/test/servers"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

func TestByAFunction(t *testing.T) { start(t) }

func TestByItsName(t *testing.T) {
	f := apache.Start
	f(t, 1)
}

func TestByAValue(t *testing.T) { t.Run("real", start) }

func TestByAMethod(t *testing.T) { stage{}.play(t) }

func TestBySeveral(t *testing.T) { t.Run("a", func(t *testing.T) { TestByAMethod(t) }) }

func TestByAHelper(t *testing.T) { each.OnReal(t) }

func TestByTheEnvironment(t *testing.T) { os.Getenv("ZKR_REAL") }

var kinds = map[string]func(*testing.T){"real": start}

func TestByAVariable(t *testing.T) { kinds["real"](t) }

var inRing3 = os.Getenv("ZKR_REAL") == "1"

func TestBesideRealOnes(t *testing.T) { t.Log(inRing3) }

func TestByAnotherHelper(t *testing.T) { each.Dial(t) }

func TestWithout(t *testing.T) { t.Log("apache.Start") }

func ExampleReal() { start(nil) }
`,
	"internal/test/acceptance/a_test.go": real,
	"nested/go.mod":                      "module nested\n",
	"nested/a_test.go":                   real,
	"build/old/a_test.go":                real,
	"testutil/apache/apache.go": `package apache

type Ensemble struct{}

func Start(t any, members int) *Ensemble { return nil }
`,
	"testutil/apache/a_test.go": `package apache

import "testing"

func TestStart(t *testing.T) { Start(t, 1) }
`,
	"virtual/a_test.go": "package virtual\n\nimport \"testing\"\n\nfunc TestVirtual(t *testing.T) {}\n",
	"internal/test/servers/servers.go": `package servers

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

func OnReal(t *testing.T) { all(t) }

func all(t *testing.T) { apache.Start(t, 3) }

func Dial(t *testing.T) {}
`,
}

func TestArguments(t *testing.T) {
	root := t.TempDir()
	for name, text := range files {
		name = filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := arguments(root)
	if err != nil {
		t.Fatal(err)
	}
	want := "-run ^(ExampleReal|TestByAFunction|TestByAHelper|TestByAMethod|TestByAValue|TestByAVariable|TestByItsName|TestBySeveral|TestByTheEnvironment|TestDirectly|TestLong|TestStart)$ " +
		"./internal/test/acceptance ./recipe ./testutil/apache"
	if got := strings.Join(got, " "); got != want {
		t.Errorf("the arguments are\n%s\nwant\n%s", got, want)
	}
	for _, dir := range []string{"recipe", longest, apache} {
		if err := os.RemoveAll(filepath.Join(root, dir)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := arguments(root); err == nil {
		t.Errorf("no error where no test reaches a real server, but %q", got)
	}
}
