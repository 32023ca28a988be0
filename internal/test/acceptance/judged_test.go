package acceptance_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A double grant and a znode that is left carry the mark, without which CI
// would run the test again. They are made in another process of this test.
func TestWhatIsJudged(t *testing.T) {
	const broken = "ZKR_TEST_BROKEN"
	parallel(t)
	if os.Getenv(broken) != "" {
		onBoth(t, 1, breakPromises)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestWhatIsJudged$")
	cmd.Env = append(os.Environ(), broken+"=1")
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"two works while one works", "two has token ", "left at /suite/judged/two: "} {
		if err == nil || !strings.Contains(string(out), ": "+judge.Mark+want) {
			t.Errorf("%v, want %q in\n%s", err, judge.Mark+want, out)
		}
	}
}

// breakPromises uses two locks as if they were one, and releases neither.
func breakPromises(t *testing.T, ens testutil.Ensemble) {
	c := client(t, ens)
	take := func(name string) *recipes.Lease {
		m, err := locks.NewMutex(c, "/suite/judged/"+name)
		if err != nil {
			t.Fatal(err)
		}
		return acquire(t, t.Context(), m)
	}
	two, one := take("two"), take("one") // the later one has the greater token
	a := &audit{t: t}
	go a.work("one", one, time.Minute) // until the client closes
	bubble.AwaitTrue(t, "one works", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.grants == 1
	})
	a.work("two", two, 0)
	nothingLeftAfter(t, c, "/suite/judged/two", time.Second)
}
