// Package faults tries every fault at every step of small runs of each recipe.
package faults

import (
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/sim"
)

const timeout = 4 * time.Second

// plan returns a plan of workers, by client and goroutine, that is the same
// each time it runs.
func plan(recipe sim.Recipe, workers ...[][]sim.Step) *sim.Plan {
	return &sim.Plan{
		Recipe: recipe, Scenario: sim.Calm, Staged: true, Workers: workers,
		Members: 3, Tick: timeout / 4, Timeout: timeout, Latency: time.Millisecond, Reap: time.Minute,
		Proof: framework.ProofSync, Policy: framework.ErrorPolicySession, Endless: true,
		Limit: 1, Handoffs: -1, Longer: 2 * timeout,
	}
}

func mutex() *sim.Plan {
	step := sim.Step{Work: 40 * time.Millisecond, Writes: 1, Late: time.Second, Early: true}
	next := step
	next.Pause = 10 * time.Millisecond
	return plan(sim.Mutex, [][]sim.Step{{step}}, [][]sim.Step{{next}})
}
