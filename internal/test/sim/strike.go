package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// runFaults starts the faults that have a time, and ends all faults at the end:
// of a staged plan after a while, unless the run is over before.
func (w *world) runFaults(over <-chan struct{}) {
	p, began := w.plan, time.Now()
	var timed []Fault
	last := 10 * p.Timeout
	if !p.Staged {
		timed, last, over = slices.Clone(p.Faults), 0, nil
	}
	slices.SortStableFunc(timed, func(a, b Fault) int { return cmp.Compare(a.At.Time, b.At.Time) })
	for _, f := range timed {
		time.Sleep(time.Until(began.Add(f.At.Time)))
		lasts := f.For
		if f.At.Upon {
			w.arm(&f)
			lasts += p.Timeout
		} else {
			w.strike(f, message{}) // which may take its time, and delays the next one
		}
		last = max(last, time.Since(began)+lasts)
	}
	if p.Scenario.quiet() {
		return
	}
	if p.instant() { // nothing lasts, so nothing may be late
		w.ledger.settle(time.Second)
	}
	select {
	case <-over:
		return
	case <-time.After(time.Until(began.Add(last + time.Second))):
	}
	w.mu.Lock()
	w.pending = nil
	w.mu.Unlock()
	w.heal()
	w.endStranded()
	_, longest := p.granted()
	w.ledger.settle(8*longest + 10*time.Second)
}

// arm starts a fault when any client is next sent an event about a write, and
// then strikes that client. The fault does not start if that takes longer than
// a session lasts.
func (w *world) arm(f *Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed[f] = true
	time.AfterFunc(w.plan.Timeout, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.armed, f)
	})
}

// delay is a fault that ends after some steps of other clients.
type delay struct {
	client, left int
	end          func()
}

// strike makes a fault happen. It reports whether that has broken the
// connection of its client.
func (w *world) strike(f Fault, msg message) (broken bool) {
	heal, done := w.deed(f, msg)
	w.ledger.log("done %v: %v", done, f)
	if !done {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hit = append(w.hit, f)
	w.lasting++
	if first := heal; f.Then > 0 {
		cut := make(chan func(), 1)
		time.AfterFunc(f.Then, func() { cut <- w.cut(f.Client, true, !f.What.connects()) })
		heal = func() {
			if first != nil {
				first()
			}
			(<-cut)()
		}
	}
	instant := w.plan.instant()
	if heal == nil || f.For == 0 {
		go w.over(f, instant)
		return f.What == Drop
	}
	var once sync.Once
	end := func(instant bool) {
		once.Do(func() {
			heal()
			w.over(f, instant)
		})
	}
	time.AfterFunc(f.For, func() { end(false) })
	if began := time.Now(); f.Steps > 0 {
		w.delays = append(w.delays, &delay{f.Client, f.Steps, func() { end(instant && time.Since(began) < w.plan.Timeout/brief) }})
	}
	return f.What == Drop
}

// recovery is the number of session timeouts after which nothing may be late.
// That is time for a session to expire, and for a removal that was refused to
// be tried again.
const recovery = 3

// over lets the ledger judge what is late, some time after the last fault of a
// staged plan, unless all are instant, so that it judges all the time.
func (w *world) over(f Fault, instant bool) {
	w.ledger.log("over: %v", f)
	w.mu.Lock()
	w.lasting--
	last := len(w.pending) == 0 && w.lasting == 0
	w.mu.Unlock()
	if last && w.plan.Staged && !instant {
		w.ledger.settle(recovery * w.plan.Timeout)
	}
}

// instant reports whether a plan is staged and no fault of it leaves anything
// behind that takes time.
func (p *Plan) instant() bool {
	return p.Staged && !slices.ContainsFunc(p.Faults, func(f Fault) bool { return !f.instant() && !(f.What == Kill && p.prompt(f.Client)) })
}

// brief is the part of a session timeout in which the steps of a fault must
// come. Behind a longer silence a client may have begun to call other members.
const brief = 10

// instant reports whether a fault leaves nothing behind that takes time, if its
// steps come soon: see brief.
func (f Fault) instant() bool {
	switch f.What {
	case Refuse: // a removal that is refused is tried again after some seconds
		return f.At.Moment.Op != "delete" && f.Times >= 0
	case Cut, DropRequests, DropReplies:
		return f.Steps > 0
	case Drop, Cancel, RemoveZnode, WriteZnode, RemoveDir, RepeatConnect:
		return true
	}
	return false
}

// struck reports whether anything has struck.
func (w *world) struck() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.hit) > 0
}

// heal ends all faults.
func (w *world) heal() {
	w.mu.Lock()
	w.rules = nil
	clear(w.besides)
	w.mu.Unlock()
	w.ens.Heal()
	w.ens.Latency(w.plan.Latency)
	for i := range w.ens.Members() {
		w.restore(i)
	}
	for _, n := range w.named {
		n.heal()
	}
	for i, net := range w.nets {
		if !w.gone(i) {
			net.Heal()
			net.LoseEvents(false)
		}
	}
	w.listAgain()
}

// allowed reports whether a call may fail with this error because of what has
// struck.
func (w *world) allowed(err error) bool {
	if errors.Is(err, zk.ErrNoAuth) && slices.ContainsFunc(w.plan.Faults, func(f Fault) bool { return f.What == WriteUnheard }) { // it is not over
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.hit {
		switch f.What {
		case Refuse:
			if refused(err, f.Code) {
				return true
			}
		case DenyCreate, DenyRead, DenyDelete:
			if errors.Is(err, zk.ErrNoAuth) {
				return true
			}
		}
	}
	return false
}

// refused reports whether err is what a caller is told when a server answers
// with this code.
func refused(err error, code testutil.Code) bool {
	switch code {
	case testutil.CodeConnectionLoss, testutil.CodeOperationTimeout, testutil.CodeThrottled, testutil.CodeSessionMoved:
		return false // the client tries again
	}
	known := map[testutil.Code]error{
		testutil.CodeNoNode: zk.ErrNoNode, testutil.CodeNoAuth: zk.ErrNoAuth, testutil.CodeBadVersion: zk.ErrBadVersion,
		testutil.CodeNodeExists: zk.ErrNodeExists, testutil.CodeNotEmpty: zk.ErrNotEmpty,
		testutil.CodeSessionExpired: framework.ErrSessionLost,
		testutil.CodeAuthFailed:     zk.ErrAuthFailed, -108: zk.ErrNoChildrenForEphemerals, -114: zk.ErrInvalidACL,
	}
	if e := known[code]; e != nil {
		return errors.Is(err, e)
	}
	return strings.Contains(err.Error(), fmt.Sprintf("(code %d)", code))
}
