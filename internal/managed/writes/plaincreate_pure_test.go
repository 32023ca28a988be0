package writes

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
)

func plain(names string) (all []*plainCreate) {
	for i, name := range strings.Fields(names) {
		dir := "/" + name[:1]
		all = append(all, &plainCreate{
			op: &zk.CreateRequest{Path: fmt.Sprintf("%s/%03d", dir, i)}, dir: dir,
			alone: strings.HasSuffix(name, "!"), looked: strings.HasSuffix(name, "?"), told: strings.HasSuffix(name, "."),
			result: make(chan error, 2),
		})
	}
	return all
}

// How many creates go into one request.
func TestHowManyPlainCreatesFit(t *testing.T) {
	one := request.OperationSize(plain("a")[0].op)
	for name, tt := range map[string]struct {
		waiting string
		room    int // 0: enough
		plain   bool
		want    int
	}{
		"one":                  {"a", 0, false, 1},
		"all":                  {"a b a", 0, false, 3},
		"as large as may be":   {"a a a", 3 * one, false, 3},
		"a byte less":          {"a a a", 3*one - 1, false, 2},
		"the first is larger":  {"a a", one - 1, false, 1},
		"a full one":           {strings.Repeat("a ", batchOps), 0, false, batchOps},
		"one more":             {strings.Repeat("a ", batchOps+1), 0, false, batchOps},
		"without batches":      {"a a", 0, true, 1},
		"the second is alone":  {"a a! a", 0, false, 1},
		"the first is alone":   {"a! a a", 0, false, 1},
		"the third is alone":   {"a a a!", 0, false, 2},
		"there is only that":   {"a!", 0, false, 1},
		"there is none at all": {"", 0, false, 0},
	} {
		s, _ := writesInUse("")
		if s.cfg.NoBatching = tt.plain; tt.room > 0 {
			s.Client.Config.MaxRequest = tt.room * batchShare
		}
		if got := s.plain.fit(plain(tt.waiting)); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

// Without a connection all fail as soon as they are sent, and the queue ends.
func TestPlainCreatesWithoutAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := unreadyWrites()
		all, began := plain("a b a"), time.Now()
		for _, c := range all {
			s.plain.add(c)
		}
		for _, c := range all {
			if err := <-c.result; !errors.Is(err, zk.ErrNoServer) || !c.told || time.Since(began) != gathering {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		}
		synctest.Wait()
		if s.plain.running || len(s.plain.queue) > 0 {
			t.Error("it goes on")
		}
	})
}
