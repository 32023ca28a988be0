package sim

import (
	"math/rand/v2"
	"time"
)

// wide draws session timeouts and numbers of clients that go beyond those of
// most plans. Whatever is drawn later is measured by them. It draws from a
// source of its own, so that the other plans do not depend on it.
func (d *draw) wide() {
	own := &draw{rand.New(rand.NewPCG(d.Seed, 2)), d.Plan, 0}
	if own.one(1, 4) {
		d.Timeout = pick(own, 500*time.Millisecond, time.Second, 2*time.Second, 10*time.Second, 30*time.Second, time.Minute)
	}
	if d.Recipe == Campaign { // it has no end if no lease lasts
		d.Timeout = max(d.Timeout, time.Second)
	}
	if own.one(1, 6) {
		d.more = 1 + own.IntN(3)
	}
	d.Observers = pick(own, NoMore, NoMore, NoMore, NoMore, NoMore, Panic, Block, CallBack)
}
