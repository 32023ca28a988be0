package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/chance"
	"github.com/zkrecipes/zkrecipes/internal/sim"
)

func TestBase(t *testing.T) {
	defer chance.None()()
	r := sim.Run(t, mutex())
	all := singles(r.Plan, r.Moments, false)
	fmt.Println(len(r.Moments), len(all), len(singles(r.Plan, r.Moments, true)))
	began := time.Now()
	bad, hit := 0, 0
	why := map[string]int{}
	for _, s := range all {
		p := mutex()
		p.Strikes = []sim.Strike{s}
		p.Scenario = sim.Mixed
		r := sim.Run(t, p)
		r.Judge("")
		hit += len(r.Struck)
		if len(r.Wrong) > 0 {
			bad++
			why[string(s.What)]++
			if why[string(s.What)] < 3 {
				fmt.Println(s, "\n", r.Wrong, "\n", r.Trace)
			}
		}
	}
	fmt.Println(time.Since(began), len(all), hit, bad, why)
}
