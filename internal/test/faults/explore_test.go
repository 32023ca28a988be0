package faults

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/test/sim"
	"github.com/zkrecipes/zkrecipes/testutil"
)

func TestExplore(t *testing.T) {
	defer random.None()()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	part := os.Getenv("PART")
	onlyCount := os.Getenv("ALLWRONG") == ""
	bad := map[string]int{}
	n := 0
	for i, s := range Scenarios {
		if part != "" && fmt.Sprint(i%2) != part {
			continue
		}
		base := Schedule{Scenario: s.Name}.Run(t, 0)
		seen := map[sim.Moment]bool{}
		for _, m := range base.Moments {
			one := sim.Moment{Client: m.Client, Op: m.Op}
			if m.Point != sim.Sent || seen[one] || m.Op == "ping" || m.Op == connect {
				continue
			}
			seen[one] = true
			for _, code := range []testutil.Code{-1, -2, -3, -4, -5, -6, -7, -8, -101, -102, -103, -110, -111, -112, -118, -122, -125, -127} {
				at := m.Moment
				f := sim.Fault{What: sim.RefuseAll, Client: m.Client, For: long, Code: code, At: sim.When{Moment: at}}
				began := time.Now()
				r := Schedule{Scenario: s.Name, Faults: []sim.Fault{f}}.Run(t, 0)
				n++
				if d := time.Since(began); d > 5*time.Second {
					fmt.Println("SLOW", s.Name, f, d)
				}
				for _, w := range r.Wrong {
					if strings.Contains(w, "were refused in") || !onlyCount {
						fmt.Println("WRONG", s.Name, f, strings.SplitN(w, "\n", 2)[0])
						bad[m.Op]++
					}
				}
			}
		}
	}
	fmt.Println(n, bad)
	_ = slices.Sorted[int]
}
