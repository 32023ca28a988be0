package sim

import (
	"cmp"
	"runtime"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/testutil"
)

// rule is a fault that strikes single requests.
type rule struct {
	Fault
	left  int   // below 0: all
	xid   int32 // of the one request that it strikes; 0: of any
	began time.Time
	count int // of the requests that it has struck
}

// strikes reports whether the rule strikes a request of a client.
func (f *rule) strikes(w *world, client int, r testutil.Request) bool {
	if f.Times < 0 {
		return f.left != 0 && client == f.Client && !keepsAlive(r.Op) && (f.Op == "" || w.has(r, f.Op))
	}
	ofOne := f.What == Late || f.What == RecreateUnder || f.What == RemakeUnder || f.What.connects() || f.At.Moment != Moment{}
	return f.left != 0 && (!ofOne || client == f.Client) && (f.xid == 0 || f.xid == r.Xid) && (f.What == Late || w.has(r, f.Op))
}

// keepsAlive reports whether a request is the connection's own.
func keepsAlive(op testutil.Op) bool {
	return op == testutil.OpPing || op == testutil.OpCreateSession || op == testutil.OpCloseSession || op == testutil.OpAuth
}

// paced reports whether a client pauses before it sends again what was refused:
// in the long run each of its goroutines sends a request each 10ms at most. A
// client that does not is refused nothing more, or virtual time might stop.
func (f *rule) paced(goroutines int) bool {
	f.count++
	return f.count <= goroutines*(40+int(time.Since(f.began)/(10*time.Millisecond)))
}

// rule makes a fault strike requests: the one with a number, or, if that is 0,
// the next ones.
func (w *world) rule(f Fault, xid int32) (heal func()) {
	f.Op = cmp.Or(f.Op, f.At.Moment.Op)
	r := &rule{Fault: f, left: max(f.Times, 1), xid: xid, began: time.Now()}
	if f.What == Late || f.Times < 0 {
		r.left = -1
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rules = append(w.rules, r)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.rules = slices.DeleteFunc(w.rules, func(o *rule) bool { return o == r })
	}
}

// leaver is a caller that cancels when its client sends a request, or a
// goroutine beside it releases.
type leaver struct {
	Step
	left  int
	leave func()
}

// leaveLocked cancels the callers whose time has come. What happens first at
// one instant is up to the scheduler, so it gets a choice.
func (w *world) leaveLocked(client int, op testutil.Op, answered bool) {
	for k, l := range w.leavers {
		if k.client != client || l.Beside || l.On != op || l.Answered != answered {
			continue
		}
		if l.left--; l.left != 0 {
			continue
		}
		by := l.OnBy
		if answered {
			by = 0
		}
		l.leaves(by)
	}
}

// leaves cancels the caller, some time from now. If he leaves upon an answer or
// a release that has returned, and nobody is to run first, he leaves at once,
// on this goroutine.
func (l *leaver) leaves(by time.Duration) {
	if l.Answered && l.Yields == 0 {
		l.leave()
		return
	}
	time.AfterFunc(by, func() {
		for range l.Yields {
			runtime.Gosched()
		}
		l.leave()
	})
}

// leaveBeside cancels the callers of a client that leave when a goroutine of it
// releases, or has released.
func (w *world) leaveBeside(by who, released bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, l := range w.leavers {
		if k.client != by.client || !l.Beside || l.Answered != released {
			continue
		}
		if l.left--; l.left == 0 {
			l.leaves(0)
		}
	}
}

// asked is called with each request of a client, when it has ended.
func (w *world) asked(client int, op string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for f := range w.armed {
		if err == nil && f.begins(client, op) {
			delete(w.armed, f)
			now := *f
			now.Client = client
			go w.strike(now, message{})
		}
	}
	w.leaveLocked(client, map[string]testutil.Op{
		"create": testutil.OpCreate, "list": testutil.OpGetChildren2, "watch": testutil.OpGetData, "multi": w.plan.multi(),
	}[op], true)
}

// begins reports whether the fault was waiting for a request of a client.
func (f *Fault) begins(client int, op string) bool {
	if f.What == Recreate {
		return op == "delete" && client == f.Client
	}
	return op == "multi"
}

// nobody is the client of a request whose session is not known.
const nobody = -2

// control decides what happens to a request.
func (w *world) control(r testutil.Request) testutil.Action {
	w.mu.Lock()
	client, known := w.sessions[r.Session]
	w.mu.Unlock()
	switch {
	case client == operator:
		return testutil.Pass()
	case !known:
		client = nobody
	case r.Op != testutil.OpCreateSession:
		w.isGuarded(client, r)
		w.happens(client, Executed, r.Op.String(), message{})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, op := range w.operations(r) {
		w.leaveLocked(client, op, false)
	}
	for _, f := range w.rules {
		if f.strikes(w, client, r) {
			f.left--
			if f.Times < 0 && !f.paced(len(w.plan.Workers[client])) {
				f.left = 0
				w.ledger.fault("%d requests were refused in %v: %v", f.count, time.Since(f.began), f.Fault)
			}
			return w.answer(f.Fault, client, r)
		}
	}
	return testutil.Pass()
}

// answer is what a fault does to a request of a client.
func (w *world) answer(f Fault, client int, r testutil.Request) testutil.Action {
	if f.What != Late {
		w.ledger.log("%s: %v %s of session %#x at member %d", f.What, r.Op, r.Path, r.Session, r.Member)
	}
	switch f.What {
	case Before:
		return testutil.DropBefore()
	case After, LostConnect:
		return testutil.DropAfter()
	case Refuse:
		if f.Code == testutil.CodeSessionExpired || r.Op == testutil.OpCreateSession && r.Session != 0 { // which is true when the client is told
			if w.ens.Leader() < 0 {
				return testutil.Pass() // nobody can say so
			}
			w.buried[r.Session] = true
			time.AfterFunc(1, func() { w.ledger.expire(r.Session) })
		}
		if f.Nth > 0 {
			return testutil.FailOperation(f.Nth-1, f.Code)
		}
		return testutil.Fail(f.Code)
	case Orphan:
		w.orphans[orphan{r.Session, r.Path}] = true
		if client != nobody {
			time.AfterFunc(f.By/4, w.nets[client].Drop)
		}
	case RecreateUnder, RemakeUnder:
		go w.recreate(f)
	case LeaderStops, LeaderStopsLate:
		go w.stopLeader(f.By/2, f.For)
	}
	switch f.What {
	case Late, DelayAns, LateConnect, LeaderStopsLate:
		return testutil.DelayReply(f.By)
	}
	w.late[r.Session] = true
	return testutil.Delay(f.By)
}
