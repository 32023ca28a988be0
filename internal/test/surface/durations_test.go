package surface_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// duration is a function that takes one, and its least value, which is none if
// any value makes sense.
type duration struct {
	least time.Duration
	zero  bool // 0 has a meaning of its own
	use   func(t *testing.T, d time.Duration) []error
	why   string // any value makes sense
}

// durations are all exported functions that take one.
var durations = map[string]duration{
	"framework.WithSessionTimeout": {least: ms, use: client(framework.WithSessionTimeout)},
	"framework.WithStopMargin":     {least: ms, zero: true, use: client(framework.WithStopMargin)},
	"framework.WithServerTick":     {least: ms, zero: true, use: client(framework.WithServerTick)},
	"framework.WithSweep":          {least: time.Second, use: client(framework.WithSweep)},
	"recipes.WithMaxHold": {least: ms, zero: true, use: func(t *testing.T, d time.Duration) []error {
		o := recipes.WithMaxHold(d)
		_, sem := semaphore.New(offline(t), "/a", 2, o)
		return append(lines(t, o.LockOption), sem)
	}},
	"recipes.WithLinger": {least: ms, zero: true, use: func(t *testing.T, d time.Duration) []error { return lines(t, recipes.WithLinger(d)) }},
	"leader.WithMaxTerm": {least: ms, zero: true, use: func(t *testing.T, d time.Duration) []error {
		_, err := leader.New(offline(t), "/a", leader.WithMaxTerm(d))
		return []error{err}
	}},
	"leader.WithHealthCheck": {least: 10 * ms, use: func(t *testing.T, d time.Duration) []error {
		_, err := leader.New(offline(t), "/a", leader.WithHealthCheck(d, healthy))
		return []error{err}
	}},
	"presence.WithHealthCheck": {least: 10 * ms, use: func(t *testing.T, d time.Duration) []error {
		_, err := presence.New(offline(t), "/a", nil, presence.WithHealthCheck(d, healthy))
		return []error{err}
	}},
	"cache.WithMaxSnapshotAge": {least: time.Second, zero: true, use: func(t *testing.T, d time.Duration) []error {
		_, err := cache.New(offline(t), "/a", cache.WithMaxSnapshotAge(d))
		return []error{err}
	}},
	"cache.WithRecheck": {least: ms, zero: true, use: func(t *testing.T, d time.Duration) []error {
		_, err := cache.New(offline(t), "/a", cache.WithRecheck(d))
		return []error{err}
	}},
	"discovery.WithLastResort": {least: ms, zero: true, use: func(t *testing.T, d time.Duration) []error {
		_, err := discovery.New(offline(t), "/a", discovery.JSON[string](""), discovery.WithLastResort(d))
		return []error{err}
	}},
	"counter.WithMarkerAge": {least: time.Second, use: func(t *testing.T, d time.Duration) []error {
		_, err := counter.New(offline(t), "/a", counter.WithMarkerAge(d))
		return []error{err}
	}},
	"inspect.WithPause": {least: ms, use: func(t *testing.T, d time.Duration) []error {
		_, err := inspect.FindDeadlocks(ended(t), offline(t), "/", inspect.WithPause(d))
		return []error{about(d, err)}
	}},

	"retry.Exponential": {least: ms, zero: true, use: policies(func(d time.Duration) []retry.Policy {
		return []retry.Policy{retry.Exponential(d, time.Second, 9), retry.Exponential(time.Second, d, 9)}
	})},
	"retry.NTimes":  {least: ms, zero: true, use: policies(func(d time.Duration) []retry.Policy { return []retry.Policy{retry.NTimes(9, d)} })},
	"retry.OneTime": {least: ms, zero: true, use: policies(func(d time.Duration) []retry.Policy { return []retry.Policy{retry.OneTime(d)} })},
	"retry.Forever": {least: ms, zero: true, use: policies(func(d time.Duration) []retry.Policy { return []retry.Policy{retry.Forever(d)} })},
	"retry.UntilElapsed": {least: ms, zero: true, use: policies(func(d time.Duration) []retry.Policy {
		return []retry.Policy{retry.UntilElapsed(d, time.Second), retry.UntilElapsed(time.Second, d)}
	})},

	"testutil.WithTick":              {least: 2 * ms, use: ensemble(testutil.WithTick)},
	"testutil.WithMemberTick":        {least: 2 * ms, zero: true, use: ensemble(func(d time.Duration) testutil.Option { return testutil.WithMemberTick(0, d) })},
	"testutil.WithElectionTime":      {least: ms, zero: true, use: ensemble(testutil.WithElectionTime)},
	"testutil.WithContainerInterval": {least: ms, use: ensemble(testutil.WithContainerInterval)},
	"testutil.WithTimeLimit":         {least: time.Second, use: ensemble(testutil.WithTimeLimit)},
	"testutil.WithSessionTimeouts": {least: ms, zero: true, use: ensemble(func(d time.Duration) testutil.Option {
		return testutil.WithSessionTimeouts(d, time.Minute)
	})},
	"testutil.WithMemberTimeouts": {least: ms, zero: true, use: ensemble(func(d time.Duration) testutil.Option {
		return testutil.WithMemberTimeouts(0, d, time.Minute)
	})},
	"apache.WithTick": {least: ms, use: processes(apache.WithTick)},
	"apache.WithSessionTimeouts": {least: ms, use: processes(func(d time.Duration) apache.Option {
		return apache.WithSessionTimeouts(d, time.Minute)
	})},
	"apache.WithMemberTimeouts": {least: ms, use: processes(func(d time.Duration) apache.Option {
		return apache.WithMemberTimeouts(0, d, time.Minute)
	})},

	"guardian.Serve":        {why: "any wait after a death makes sense, and none; a negative one is an error"},
	"recipes.Within":        {why: "what is left of a caller's time may be none; the error names it"},
	"testutil.Delay":        {why: "any delay can happen"},
	"testutil.DelayReply":   {why: "any delay can happen"},
	"testutil.NewClientNet": {why: "its dialer gets the duration"},
}

const ms = time.Millisecond

func healthy(context.Context) error { return nil }

// client returns the error of a client with the option.
func client(option func(time.Duration) framework.Option) func(*testing.T, time.Duration) []error {
	return func(_ *testing.T, d time.Duration) []error {
		c, err := framework.New("127.0.0.1:1", option(d))
		if err == nil {
			_ = c.Close()
		}
		return []error{err}
	}
}

// offline returns a client without a server.
func offline(t *testing.T) *framework.Client {
	c, err := framework.New("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// lines returns the errors of the locks that take an option.
func lines(t *testing.T, o recipes.LockOption) []error {
	c := offline(t)
	_, line := recipes.NewLine(c, "/a", "kind", "name", func(string, string) bool { return true }, o)
	_, mutex := locks.NewMutex(c, "/a", o)
	_, keyed := locks.NewKeyed(c, "/a", o)
	_, rw := rwlock.New(c, "/a", o)
	return []error{line, mutex, keyed, rw}
}

// policies returns what the options say that take a policy. A policy corrects 0
// and negative durations itself.
func policies(made func(time.Duration) []retry.Policy) func(*testing.T, time.Duration) []error {
	return func(t *testing.T, d time.Duration) (errs []error) {
		if d < 0 {
			d = 1
		}
		for _, p := range made(d) {
			errs = append(errs, client(func(time.Duration) framework.Option { return framework.WithRetry(p) })(t, d)...)
			_, err := leader.New(offline(t), "/a", leader.WithBackoff(p))
			errs = append(errs, err)
		}
		return errs
	}
}

// ensemble returns the error of an embedded ensemble with the option.
func ensemble(option func(time.Duration) testutil.Option) func(*testing.T, time.Duration) []error {
	return func(_ *testing.T, d time.Duration) []error {
		e, err := testutil.New(testutil.InMemory(), option(d))
		if err == nil {
			_ = e.Close()
		}
		return []error{err}
	}
}

// processes returns the error of an ensemble of real processes with the option.
func processes(option func(time.Duration) apache.Option) func(*testing.T, time.Duration) []error {
	return func(t *testing.T, d time.Duration) []error {
		_, err := apache.New(ended(t), t.TempDir(), 1, option(d))
		return []error{about(d, err)}
	}
}

// ended returns a context that has ended.
func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// about returns err if it is about d, and not that of the context.
func about(d time.Duration, err error) error {
	if err != nil && !strings.Contains(err.Error(), d.String()) {
		return nil
	}
	return err
}

// WithMarkerAge(7) was seven nanoseconds, and counted a payment twice. Whoever
// forgets the unit gets an error that has one.
func TestDurationsHaveALeastValue(t *testing.T) {
	for name, duration := range durations {
		if duration.use == nil {
			if duration.why == "" {
				t.Errorf("%s: neither a least value nor a reason", name)
			}
			continue
		}
		t.Run(name, func(t *testing.T) {
			for d, good := range map[time.Duration]bool{-1: false, 1: false, 7: false, duration.least - 1: false, 0: duration.zero, duration.least: true, duration.least + ms: true} {
				for i, err := range duration.use(t, d) {
					switch {
					case good != (err == nil):
						t.Errorf("%d: %v: %v", i, d, err)
					case err != nil && d > 0 && !strings.Contains(err.Error(), d.String()):
						t.Errorf("%d: %v: the unit is not named: %v", i, d, err)
					}
				}
			}
		})
	}
}

// The table above has each exported function that takes a duration, of all
// modules, and no other.
func TestDurationsAreAllKnown(t *testing.T) {
	found := map[string]bool{}
	err := filepath.WalkDir("../../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && (name == "internal" || name == "testdata" || name == "examples" || name == "bench" || name == "cmd" || name[0] == '.' && strings.Trim(name, ".") != "") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.IsExported() && takesDuration(f.Type.Params) {
				found[file.Name.Name+"."+f.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range found {
		if _, ok := durations[name]; !ok {
			t.Errorf("%s takes a duration: it needs a least value, and a line in the table", name)
		}
	}
	for name := range durations {
		if !found[name] {
			t.Errorf("%s is in the table, and takes no duration", name)
		}
	}
}

// takesDuration reports whether a parameter is a time.Duration, or has one in
// it.
func takesDuration(params *ast.FieldList) (takes bool) {
	ast.Inspect(params, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Duration" {
			takes = true
		}
		return true
	})
	return takes
}
