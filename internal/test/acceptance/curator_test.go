package acceptance_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/testutil"
)

// ofCurator lists our recipes that Apache Curator also has.
var ofCurator = repertoire{
	alone: []string{"mutex", "latch", "selector", "write"},
	read:  "read", write: "write",
	semaphore: "semaphore",
}

// A Curator process and ours exclude each other on the same znodes, in both
// directions. They are served in the order of arrival, each sees the other
// among its participants, and if either is killed the other succeeds it.
func TestBesideCurator(t *testing.T) {
	needsCurator(t)
	besideNeighbors(t, func(t *testing.T, ens testutil.Ensemble) { standTogether(t, ens, ofCurator, curator, ours) })
}

// Two Curator processes behave on the embedded ensemble as on the real one.
func TestCuratorOnTheEmbeddedEnsemble(t *testing.T) {
	needsCurator(t)
	standTogether(t, embedded(t, 1), ofCurator, curator, curator)
}

// curatorHomeVariable names a directory with the jars of another release.
const curatorHomeVariable = "ZKR_CURATOR_HOME"

func curatorClassPath() (string, error) {
	if home := os.Getenv(curatorHomeVariable); home != "" {
		if jars, err := filepath.Glob(filepath.Join(home, "curator-recipes-*.jar")); err != nil || len(jars) == 0 {
			return "", fmt.Errorf("no curator-recipes-*.jar in %s %s", curatorHomeVariable, home)
		}
		return filepath.Join(home, "*"), nil
	}
	var debian []string // their manifests name what they need
	for _, jar := range []string{"curator-recipes", "curator-x-discovery"} {
		path := "/usr/share/java/" + jar + ".jar"
		if _, err := os.Stat(path); err != nil {
			return "", err
		}
		debian = append(debian, path)
	}
	return strings.Join(debian, string(os.PathListSeparator)), nil
}

func needsCurator(t *testing.T) {
	t.Helper()
	needsNeighbors(t)
	_, err := curatorClassPath()
	if err == nil {
		_, err = exec.LookPath("javac")
	}
	if err != nil {
		missing(t, "Apache Curator (Debian's packages libcurator-recipes-java and libcurator-discovery-java) and a JDK", err)
	}
}

// classes is the directory of the compiled Java programs, which all tests
// share.
var classes = sync.OnceValues(func() (dir string, err error) {
	classPath, err := curatorClassPath()
	if err != nil {
		return "", err
	}
	if dir, err = os.MkdirTemp("", "neighbor"); err != nil {
		return "", err
	}
	removeClasses = func() { _ = os.RemoveAll(dir) }
	out, err := exec.Command("javac", "-d", dir, "-cp", classPath, "testdata/Neighbor.java", "testdata/Instances.java").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("javac: %w: %s", err, out)
	}
	return dir, nil
})

// removeClasses is called after all tests.
var removeClasses = func() {}

// curatorVersion returns the version that the name of the recipes' jar has.
func curatorVersion(t *testing.T) string {
	t.Helper()
	dir := os.Getenv(curatorHomeVariable)
	if dir == "" {
		dir = "/usr/share/java"
	}
	jars, err := filepath.Glob(filepath.Join(dir, "curator-recipes-*.jar"))
	if err != nil || len(jars) != 1 {
		t.Fatalf("%v, %v", jars, err)
	}
	return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(jars[0]), "curator-recipes-"), ".jar")
}

// curator starts a process with Curator's recipes.
func curator(t *testing.T, ens testutil.Ensemble) *neighbor {
	t.Helper()
	return curatorFor(t, ens, timeout)
}

func curatorFor(t *testing.T, ens testutil.Ensemble, session time.Duration) *neighbor {
	t.Helper()
	dir, err := classes()
	if err != nil {
		t.Fatal(err)
	}
	classPath, err := curatorClassPath()
	if err != nil {
		t.Fatal(err)
	}
	process := exec.Command("java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
		"-cp", dir+string(os.PathListSeparator)+classPath, "Neighbor", ens.Servers(), fmt.Sprint(session.Milliseconds()))
	process.Env = environment(ens)
	return startNeighbor(t, "curator", process)
}
