// Package sample is measured by TestMeasure.
package sample

import "sync"

type state struct {
	never int // is set where the struct is made
	free  int

	mu                         sync.Mutex
	assigned, counted, pointed int
	mapped, deleted            map[int]int
	part                       inner
	called                     inner
	far                        *inner // is not written: what it points to is
	signal                     chan struct{}

	other sync.RWMutex
	list  []int
}

func newState() *state { return &state{never: 1, far: &inner{}} }
