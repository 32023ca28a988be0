package bubble

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Unusual is a way in which the clients or servers of all tests differ from the
// usual ones in another pass of the tests. ZKR_UNUSUAL names those of a pass,
// as in `make unusual`. An option of the test itself counts more.
type Unusual string

// shortest is the least session timeout that servers grant by default.
const shortest = 4 * time.Second

// The unusual ways.
const (
	Below        Unusual = "below"         // clients see the ensemble below both a chroot and a namespace
	SmallRequest Unusual = "small-request" // 16 KiB is the largest request
	NoBatching   Unusual = "no-batching"
	NoContainers Unusual = "no-containers"
	ProofWrite   Unusual = "proof-write"
	FewRetries   Unusual = "few-retries"   // two more tries, a second apart, then an operation fails
	ShortTimeout Unusual = "short-timeout" // of the session
	OneShot      Unusual = "one-shot"      // servers have one-shot watches alone, and no multiRead
)

var options = map[Unusual][]framework.Option{
	SmallRequest: {framework.WithMaxRequest(16 << 10), framework.WithMaxEphemerals(3 << 19)}, // which would shrink as well
	NoBatching:   {framework.WithBatching(false)},
	NoContainers: {framework.WithContainers(false)},
	ProofWrite:   {framework.WithProof(framework.ProofWrite)},
	FewRetries:   {framework.WithRetry(retry.NTimes(2, time.Second))},
	ShortTimeout: {framework.WithSessionTimeout(shortest)},
}

// unusual are the ways of this pass.
var unusual = func() (all []Unusual) {
	for _, name := range strings.FieldsFunc(os.Getenv("ZKR_UNUSUAL"), func(r rune) bool { return r == ',' }) {
		if u := Unusual(name); u != Below && u != OneShot && options[u] == nil {
			panic(fmt.Sprintf("ZKR_UNUSUAL: %q is not known", name))
		}
		all = append(all, Unusual(name))
	}
	return all
}()

// is reports whether this pass is unusual in this way.
func (u Unusual) is() bool { return slices.Contains(unusual, u) }

// Usual skips a test in a pass that is unusual in one of these ways: it asserts
// exactly what they change, such as absolute paths or the number of requests.
func Usual(t testing.TB, ways ...Unusual) {
	t.Helper()
	for _, u := range ways {
		if u.is() {
			t.Skipf("asserts what %s changes", u)
		}
	}
}

// timeout returns the session timeout of this pass.
func timeout() time.Duration {
	if ShortTimeout.is() {
		return shortest
	}
	return framework.DefaultSessionTimeout
}

// withUnusual puts the options of this pass before those of a test.
func withUnusual(opts []framework.Option) []framework.Option {
	var all []framework.Option
	for _, u := range unusual {
		all = append(all, options[u]...)
	}
	return append(all, opts...)
}

// unusualServers is the same for the ensemble.
func unusualServers(opts []testutil.Option) []testutil.Option {
	if OneShot.is() {
		return append([]testutil.Option{testutil.WithoutNewOperations()}, opts...)
	}
	return opts
}

// unusualView returns the view of the clients of a test that names none.
func unusualView() View {
	if Below.is() {
		return Views[len(Views)-1]
	}
	return View{}
}
