package managed_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/tamper"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A batch is executed, and answered with results that it cannot have. None of
// them is believed: each znode is looked for, and is there once.
func TestBatchesThatAreAnsweredWrongly(t *testing.T) {
	refused := wire.MultiResult{Op: wire.OpError, Err: wire.NoNode}
	for name, lie := range map[string]func(results []wire.MultiResult) []wire.MultiResult{
		"one too few":         func(r []wire.MultiResult) []wire.MultiResult { return r[1:] },
		"none":                func([]wire.MultiResult) []wire.MultiResult { return nil },
		"one too many":        func(r []wire.MultiResult) []wire.MultiResult { return append(r, r[0]) },
		"another order":       func(r []wire.MultiResult) []wire.MultiResult { slices.Reverse(r); return r },
		"another path":        func(r []wire.MultiResult) []wire.MultiResult { r[0].Path = "/d0/other"; return r },
		"a delete":            func(r []wire.MultiResult) []wire.MultiResult { r[0] = wire.MultiResult{Op: wire.OpDelete}; return r },
		"a set":               func(r []wire.MultiResult) []wire.MultiResult { r[0] = wire.MultiResult{Op: wire.OpSetData}; return r },
		"one refused":         func(r []wire.MultiResult) []wire.MultiResult { r[0] = refused; return r },
		"one refused, alone":  func([]wire.MultiResult) []wire.MultiResult { return []wire.MultiResult{refused} },
		"the last is refused": func(r []wire.MultiResult) []wire.MultiResult { r[len(r)-1] = refused; return r },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				const dirs = 8
				ens.Latency(time.Millisecond)
				watcher, _ := connect(t, ens)
				for i := range dirs {
					_, err := watcher.Create(t.Context(), fmt.Sprint("/d", i), nil, zk.FlagPersistent)
					must(t, err)
				}
				c, lies := liar(t, ens, wire.OpMulti, 1, func(f []byte) tamper.Instead {
					var answer wire.MultiResponse
					must(t, wire.Unmarshal(f[answerHead:], &answer))
					return resized((&wire.MultiResponse{Results: lie(answer.Results)}).Append(slices.Clip(f[:answerHead])))
				})
				must(t, c.WaitConnected(t.Context()))
				s := session(t, c)
				var creating sync.WaitGroup
				for i := range dirs {
					creating.Go(func() {
						dir := fmt.Sprint("/d", i)
						made, err := s.CreateProtected(t.Context(), dir, "lock-", nil, zk.FlagEphemeral|zk.FlagSequence)
						if err != nil {
							t.Errorf("%s: %v", dir, err)
						} else if in := ens.Children(dir); len(in) != 1 || made.Path != dir+"/"+in[0] {
							t.Errorf("created %s, and the directory has %q", made.Path, in)
						}
					})
				}
				creating.Wait()
				if lies.Load() != 1 {
					t.Errorf("%d lies", lies.Load())
				}
			})
		})
	}
}
