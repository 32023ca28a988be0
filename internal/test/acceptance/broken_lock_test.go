package acceptance_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A broken lock is detected: workers under separate locks write into one
// ledger, and the ledger is rejected.
func TestTheLedgerOfABrokenLockIsRejected(t *testing.T) {
	parallel(t)
	onBoth(t, 1, func(t *testing.T, ens testutil.Ensemble) {
		c := client(t, ens)
		file := load.Ledger(filepath.Join(t.TempDir(), "ledger"))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 3 {
			m, err := locks.NewMutex(c, fmt.Sprint("/suite/broken/", i))
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				w := load.Worker{Places: []load.Place{{Ledger: file}}, Mode: load.Exclusive, Who: fmt.Sprint("1.", i), Lock: m, Client: c, Figures: &load.Figures{}, Pace: load.Brisk}
				if err := w.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		for began := time.Now(); file.Grants(t) < 100 && time.Since(began) < load.Patience; {
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
		wg.Wait()
		text, err := os.ReadFile(string(file))
		if err != nil {
			t.Fatal(err)
		}
		_, err = load.Judge(string(text), load.Permits)
		// Whichever comes first: two hold at once, or one comes late, after
		// another has come and gone.
		if err == nil || !strings.Contains(err.Error(), " is in, in mode ") && !strings.Contains(err.Error(), ": token ") {
			t.Errorf("judged: %v", err)
		}
	})
}
