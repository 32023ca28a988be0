package sim

import (
	"context"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// deed does what a fault says, and returns what ends it, nil if nothing has to.
// It is not done where it makes no sense.
func (w *world) deed(f Fault, msg message) (heal func(), done bool) {
	switch f.What {
	case Before, After, Refuse, Delay, DelayAns, Orphan, LeaderStops, LeaderStopsLate, RecreateUnder, RemakeUnder, Late:
		return w.rule(f, msg.xid), true
	case Stop, Pause, Isolate, Lag, Mute, Wedge:
		heal = w.member(f)
		return heal, heal != nil
	case Slow:
		w.ens.Latency(f.By)
		return func() { w.ens.Latency(w.plan.Latency) }, true
	case Recreate:
		go w.recreate(f)
		return nil, true
	case RemoveDir:
		return nil, w.removeDir()
	case Copy:
		w.copies()
		return nil, true
	case Restore, RebuildFewer, Rebuild, RebuildMore:
		return nil, w.replace(f.What)
	case Replace:
		return nil, w.replaceMember(f)
	case DenyCreate, DenyRead, DenyDelete:
		return w.deny(f.What)
	}
	if w.gone(f.Client) {
		return nil, false
	}
	return w.client(f, msg)
}

// client does what a fault of a client says.
func (w *world) client(f Fault, msg message) (heal func(), done bool) {
	c := f.Client
	switch f.What {
	case Cut:
		return w.cut(c, true, true), true
	case DropRequests:
		return w.cut(c, true, false), true
	case DropReplies:
		return w.cut(c, false, true), true
	case LateConnect, LostConnect, LateAttach:
		f.Op = testutil.OpCreateSession.String()
		heal = w.rule(f, 0)
		w.nets[c].Drop()
	case Drop:
		w.nets[c].Drop()
	case LoseEvents:
		w.nets[c].LoseEvents(true)
		return func() { w.nets[c].LoseEvents(false) }, true
	case ListWithout, ListOnly, ListElsewhere:
		return w.lists(f)
	case NamesSilent, NamesFail, NamesGone, NamesSlow, NamesMove, AddressTaken:
		return w.misname(f)
	case Full, LateBeside:
		return w.fares(f), true
	case RepeatConnect:
		return nil, w.repeat(c, msg.frame)
	case Expire:
		return nil, w.expire(c, true)
	case PauseProcess:
		w.jump(w.plan.Timeout * 3 / 2)
		return nil, w.expire(c, false)
	case Jump:
		w.jump(f.By)
	case Cancel:
		return nil, w.cancel(c)
	case RemoveZnode:
		return nil, w.touch(c, w.removed)
	case WriteZnode:
		return nil, w.touch(c, w.written)
	case WriteUnheard:
		return nil, w.touch(c, w.writtenUnheard)
	case Close:
		w.dies(c)
		w.ledger.close(c)
		go w.clients[c].Close()
	case Kill:
		w.kill(c)
	}
	return heal, true
}

func (w *world) dies(client int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead[client] = true
}

// cut stops what a client sends, or what it is sent, or both, until heal.
func (w *world) cut(client int, requests, answers bool) (heal func()) {
	add := func(n int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		cuts := w.cuts[client]
		if cuts == nil {
			cuts = new([2]int)
			w.cuts[client] = cuts
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

// repeat also sends the request that opens a connection on another connection,
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

// callable returns a context for one call of a worker, which a fault may end.
// over is to be called when the call has returned; it reports whether a fault
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

// touch does something to the znodes that a client has in the lines.
func (w *world) touch(client int, do func(path string) bool) (done bool) {
	for _, path := range w.paths {
		for _, dir := range w.ledger.resources[path].dirs {
			for _, name := range w.ens.Children(dir) {
				if w.owner(dir+"/"+name) == client && do(dir+"/"+name) {
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

// insist repeats what the operator does until it is done, or the run ends: it
// may find no server for longer than its retry policy lasts.
func (w *world) insist(do func() (done bool)) {
	for !do() {
		select {
		case <-time.After(w.plan.Timeout):
		case <-w.ending:
			return
		}
	}
}

func (w *world) removed(path string) bool {
	w.mu.Lock()
	deaf := w.deaf[path]
	w.mu.Unlock()
	if deaf {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), operatorPatience)
	defer cancel()
	defer w.ledger.remove(path)()
	return w.operator.Delete(ctx, path, -1) == nil
}

func (w *world) written(path string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), operatorPatience)
	defer cancel()
	_, err := w.operator.Set(ctx, path, []byte("__REVOKE__"), -1)
	return err == nil
}

// writtenUnheard writes to the znode of a waiter. A holder would not hear then
// that its znode is removed. If the waiter has become a holder meanwhile, while
// the operator had no connection, removed leaves the znode.
func (w *world) writtenUnheard(path string) (done bool) {
	if w.ledger.holds(path) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), operatorPatience)
	defer cancel()
	if _, err := w.operator.SetACL(ctx, path, zk.WorldACL(zk.PermAll&^zk.PermRead), -1); err != nil {
		return false
	}
	done = w.written(path)
	holds := w.ledger.holds(path)
	w.mu.Lock()
	w.deaf[path] = holds
	w.mu.Unlock()
	_, err := w.operator.SetACL(ctx, path, zk.WorldACL(zk.PermAll), -1)
	return done && err == nil
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
				defer w.ledger.remove(dir + "/" + name)()
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
	set := func(dir string, rights int32) error {
		ctx, cancel := context.WithTimeout(context.Background(), operatorPatience)
		defer cancel()
		_, err := w.operator.SetACL(ctx, dir, zk.WorldACL(rights), -1)
		return err
	}
	var dirs []string
	for _, path := range w.paths {
		for _, dir := range w.ledger.resources[path].dirs {
			dirs = append(dirs, dir)
			done = set(dir, zk.PermAll&^right) == nil || done
		}
	}
	return func() {
		for _, dir := range dirs {
			w.insist(func() bool { return set(dir, zk.PermAll) == nil || !w.ens.Exists(dir) })
		}
	}, done
}
