package sim

import (
	"context"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// deed does what a strike says, and returns what ends it, nil if it does not
// last. It is not done where it makes no sense.
func (w *world) deed(s Strike, msg message) (heal func(), done bool) {
	if w.gone(s.Client) {
		return nil, false
	}
	c := s.Client
	switch s.What {
	case Cut:
		return w.cut(c, true, true), true
	case DropRequests:
		return w.cut(c, true, false), true
	case DropReplies:
		return w.cut(c, false, true), true
	case DelayRequests, DelayAnswers:
		w.delay(c, s.Steps, w.cut(c, s.What == DelayRequests, s.What == DelayAnswers))
	case Drop:
		w.nets[c].Drop()
	case LateConnect:
		return w.lateConnect(c), true
	case Refuse:
		answer := testutil.Fail(s.Code)
		if s.Nth > 0 {
			answer = testutil.FailOperation(s.Nth-1, s.Code)
		}
		w.shoot(c, msg.xid, answer)
		if s.Code == testutil.CodeSessionExpired { // which is true
			w.expire(c, true)
		}
	case OrphanRequest:
		w.mu.Lock()
		w.strikes.orphans[c] = msg.xid
		w.mu.Unlock()
	case RepeatConnect:
		return nil, w.repeat(c, msg.frame)
	case Expire:
		return nil, w.expire(c, true)
	case PauseProcess:
		w.jump(w.plan.Timeout * 3 / 2)
		return nil, w.expire(c, false)
	case Jump:
		w.jump(w.plan.Timeout * time.Duration(s.Tenths) / 10)
	case Cancel:
		return nil, w.cancel(c)
	case Close, Kill:
		w.client(Fault{What: s.What, Client: c})
	case RemoveZnode:
		return nil, w.remove(c)
	case RemoveDir:
		return nil, w.removeDir()
	case DenyCreate, DenyRead, DenyDelete:
		return w.deny(s.What)
	default:
		heal = w.member(memberFault(s, w.near(c, 0), w.ens.Leader()))
		return heal, heal != nil
	}
	return nil, true
}

// memberFault returns the fault of a member that a strike means.
func memberFault(s Strike, near, leader int) Fault {
	switch s.What {
	case IsolateLeader:
		return Fault{What: Isolate, Member: max(leader, 0)}
	case PauseLeader:
		return Fault{What: Pause, Member: max(leader, 0)}
	case StopFirst:
		return Fault{What: StopFirst}
	}
	return Fault{What: s.What, Member: near}
}

// cut stops what a client sends, or what it is sent, or both, until heal.
func (w *world) cut(client int, requests, answers bool) (heal func()) {
	add := func(n int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		cuts := w.strikes.cuts[client]
		if cuts == nil {
			cuts = new([2]int)
			w.strikes.cuts[client] = cuts
		}
		if requests {
			cuts[0] += n
		}
		if answers {
			cuts[1] += n
		}
		if w.dead[client] {
			return // what has cut it off for good stays
		}
		switch net := w.nets[client]; {
		case cuts[0] > 0 && cuts[1] > 0:
			net.Cut()
		case cuts[0] > 0:
			net.CutOneWay(true)
		case cuts[1] > 0:
			net.CutOneWay(false)
		default:
			net.Heal()
		}
	}
	add(1)
	return func() { add(-1) }
}

// lateConnect disconnects a client. Its next connect is answered late, and what
// it sends after that connect does not arrive.
func (w *world) lateConnect(client int) (heal func()) {
	answers := w.rule(Fault{What: LateConnect, Client: client, Op: testutil.OpCreateSession, N: 1, By: w.plan.Timeout / 4})
	w.nets[client].Drop()
	cut := make(chan func(), 1)
	time.AfterFunc(8*w.plan.Latency, func() { cut <- w.cut(client, true, false) })
	return func() {
		answers()
		(<-cut)()
	}
}

// delay ends a cut after some steps of other clients, or when they take long.
func (w *world) delay(client, steps int, heal func()) {
	d := &delay{client: client, left: steps}
	timer := time.AfterFunc(w.plan.Timeout/4, func() { d.heal() })
	d.heal = func() {
		w.mu.Lock()
		ended := d.client < 0
		d.client, d.left = -1, 0
		w.mu.Unlock()
		timer.Stop()
		if !ended {
			heal()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.strikes.delays = append(w.strikes.delays, d)
}

// shoot sets what happens to the request that is about to leave a client.
func (w *world) shoot(client int, xid int32, a testutil.Action) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.strikes.shots[client] = shot{xid, a}
	time.AfterFunc(1, func() { // it has missed if it is still there: the connection was gone
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.strikes.shots[client].xid == xid {
			delete(w.strikes.shots, client)
		}
	})
}

// shots decides what happens to a request of a client, in front of the member.
func (w *world) shots(client int) func(testutil.Request) testutil.Action {
	return func(r testutil.Request) testutil.Action {
		w.mu.Lock()
		defer w.mu.Unlock()
		s, aimed := w.strikes.shots[client]
		if !aimed || s.xid != r.Xid {
			return testutil.Pass()
		}
		delete(w.strikes.shots, client)
		return s.action
	}
}

// orphanLocked reports whether a request that has arrived at a member is to be
// executed only when its connection is gone.
func (w *world) orphanLocked(client int, r testutil.Request) bool {
	xid, aimed := w.strikes.orphans[client]
	if !aimed || xid != r.Xid {
		return false
	}
	delete(w.strikes.orphans, client)
	return true
}

// repeat sends the request that opens a connection on another connection, too,
// as a network may that has lost track of time. Nobody reads the answer.
func (w *world) repeat(client int, frame []byte) (done bool) {
	conn, err := w.ens.Dial("tcp", strings.Split(w.ens.Servers(), ",")[client%w.ens.Members()], time.Second)
	if err != nil {
		return false
	}
	_, err = conn.Write(frame)
	time.AfterFunc(w.plan.Timeout/8, func() { conn.Close() })
	return err == nil
}

// expire ends a client's session, as the leader does on its own, or an
// operator.
func (w *world) expire(client int, operator bool) (done bool) {
	sess, err := w.clients[client].Session()
	if err != nil {
		return false
	}
	if operator {
		w.ledger.expire(sess.ID())
		return true
	}
	return w.ens.ExpireSession(sess.ID()) == nil
}

func (w *world) jump(by time.Duration) {
	w.ledger.jump()
	clock.Jump(by)
}

// cancel ends the contexts of all calls of a client's callers.
func (w *world) cancel(client int) (done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, leave := range w.calling {
		if k.client == client && leave != nil {
			leave()
			delete(w.calling, k)
			w.ended[k] = true
			done = true
		}
	}
	return done
}

// callable returns a context for one call of a worker, which a strike may end.
// over is to be called when the call has returned; it reports whether a strike
// has ended it.
func (w *world) callable(ctx context.Context, k who) (_ context.Context, over func() (struck bool)) {
	ctx, leave := context.WithCancel(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	around := w.calling[k] // the call in which this one is made: a candidate's
	w.calling[k] = leave
	return ctx, func() bool {
		leave()
		w.mu.Lock()
		defer w.mu.Unlock()
		if delete(w.calling, k); around != nil {
			w.calling[k] = around
		}
		struck := w.ended[k]
		delete(w.ended, k)
		return struck
	}
}

// remove removes the znodes that a client has in the lines.
func (w *world) remove(client int) (done bool) {
	for _, path := range w.paths {
		for _, dir := range w.ledger.resources[path].dirs {
			for _, name := range w.ens.Children(dir) {
				if w.owner(dir+"/"+name) == client && w.removed(dir+"/"+name) {
					done = true
				}
			}
		}
	}
	return done
}

func (w *world) owner(path string) (client int) {
	stat, ok := w.ens.Stat(path)
	w.mu.Lock()
	defer w.mu.Unlock()
	if owner, known := w.sessions[stat.EphemeralOwner]; ok && known {
		return owner
	}
	return operator
}

// operatorPatience is how long the operator's requests may take.
const operatorPatience = time.Minute

func (w *world) removed(path string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), operatorPatience)
	defer cancel()
	w.ledger.remove(path)
	return w.operator.Delete(ctx, path, -1) == nil
}

// removeDir removes the directories with all that they contain.
func (w *world) removeDir() (done bool) {
	ctx, cancel := context.WithTimeout(context.Background(), operatorPatience)
	defer cancel()
	for _, path := range w.paths {
		for _, dir := range w.ledger.resources[path].dirs {
			if !w.ens.Exists(dir) {
				continue
			}
			var ops []any
			for _, name := range w.ens.Children(dir) {
				w.ledger.remove(dir + "/" + name)
				ops = append(ops, &zk.DeleteRequest{Path: dir + "/" + name, Version: -1})
			}
			_, err := w.operator.Multi(ctx, append(ops, &zk.DeleteRequest{Path: dir, Version: -1})...)
			w.ledger.log("removed %s: %v", dir, err)
			done = done || err == nil
		}
	}
	return done
}

// deny takes a right on the directories from everybody.
func (w *world) deny(what What) (heal func(), done bool) {
	right := map[What]int32{DenyCreate: zk.PermCreate, DenyRead: zk.PermRead, DenyDelete: zk.PermDelete}[what]
	set := func(rights int32) {
		ctx, cancel := context.WithTimeout(context.Background(), operatorPatience)
		defer cancel()
		for _, path := range w.paths {
			for _, dir := range w.ledger.resources[path].dirs {
				_, err := w.operator.SetACL(ctx, dir, zk.WorldACL(rights), -1)
				done = done || err == nil
			}
		}
	}
	set(zk.PermAll &^ right)
	return func() { set(zk.PermAll) }, done
}
