package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
)

// Call is what a worker does to a number that all share.
type Call struct {
	Pause  time.Duration // before it
	What   What
	ID     string        // of what is executed once
	Other  bool          // AddOnce does not add what the others with this ID do
	Cancel time.Duration // when the caller cancels; 0: never
}

// The calls: those of a counter, and those of the framework.
const (
	Add        What = "add"
	AddOnce    What = "add once"
	Reserve    What = "reserve"
	Swap       What = "swap"
	Set        What = "set"
	Get        What = "get"
	Update     What = "update"
	UpdateOnce What = "update once"
	MultiOnce  What = "multi once"
	SetAny     What = "set any" // at any version
	SetACL     What = "set ACL" // the same
	Make       What = "make"    // a znode, which is ephemeral if there is an ID
	Take       What = "take"    // deletes it
)

// The names of what these calls change, behind that of the number.
const (
	dataName = "-data"
	jobName  = "-job"
)

// unnumbered reports whether a call does nothing to the number.
func (f What) unnumbered() bool { return f == SetAny || f == SetACL || f == Make || f == Take }

// once reports whether an ID bounds how often it is executed.
func (c Call) once() bool { return c.What == AddOnce || c.What == UpdateOnce || c.What == MultiOnce }

// A number tells which calls made it. Each call that adds has a binary digit of
// its own, and each call that sets has a value of its own, which no sum
// reaches. So each state of the znode that the ensemble has committed says
// which calls were executed in between, and how often each was.

// counted is a call and its result.
type counted struct {
	who
	Call
	index    int
	number   int64 // what it adds or sets
	from, to int64 // the last transactions when it began and when it returned
	old      int64 // what it expects
	value    int64
	ok       bool
	repeated bool
	err      error
}

// run is one execution of a call.
type run struct {
	zxid          int64
	at            time.Time
	by            int64 // the session
	before, after int64
	call          *counted // that of a counter which has made it
}

// book returns the record of a call that is about to begin.
func (k *worker) book(c Call) *counted {
	k.mu.Lock()
	defer k.mu.Unlock()
	b := &counted{who: k.who, Call: c, index: len(k.calls)}
	b.number = 1 << b.index
	for _, o := range k.calls {
		if o.shares(b) {
			b.number = o.number
			break
		}
	}
	k.calls = append(k.calls, b)
	if c.What == Set || c.What == Swap {
		b.number = k.plan.value(b.index)
	}
	return b
}

// shares reports whether two calls add the same.
func (b *counted) shares(o *counted) bool {
	return b.What == AddOnce && o.What == AddOnce && b.ID == o.ID && !b.Other && !o.Other
}

// value returns what the call with an index sets.
func (p *Plan) value(index int) int64 { return -int64(index+1) << p.calls() }

// initial is the value of a counter that does not exist.
func (p *Plan) initial() int64 {
	if p.Initial && p.Recipe == Counter {
		return p.value(p.calls())
	}
	return 0
}

// age is for how long a client wants markers to be kept; 0: it says nothing.
func (p *Plan) age(client int) time.Duration {
	switch {
	case p.Uneven && client%3 == 1:
		return max(time.Second, p.Age/8)
	case p.Uneven && client%3 == 2:
		return 0
	}
	return p.Age
}

func (k *worker) counter() *counter.Counter {
	opts := []counter.Option{counter.WithLayout(k.plan.Layout), counter.WithInitial(k.plan.initial())}
	if age := k.plan.age(k.who.client); age > 0 {
		opts = append(opts, counter.WithMarkerAge(age))
	}
	return must(counter.New(k.client, k.plan.view(k.who.client).Path(k.paths[0]), opts...))
}

func (k *worker) callsOf(s Step) bool {
	for _, c := range s.Calls {
		time.Sleep(c.Pause)
		if !k.call(c) {
			return false
		}
	}
	return true
}

// call makes one call, and reports whether the worker can go on.
func (k *worker) call(c Call) bool {
	b := k.book(c)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if c.Cancel > 0 {
		defer time.AfterFunc(c.Cancel, cancel).Stop()
	}
	ctx, over := k.callable(ctx, k.who)
	k.says("counts")
	k.ledger.log("%v: %s %q, %d", k.who, c.What, c.ID, b.number)
	b.from = k.truth.now()
	err := k.execute(ctx, b)
	k.mu.Lock()
	b.err, b.to = err, k.truth.now()
	k.mu.Unlock()
	struck := over()
	k.says("counted")
	k.ledger.log("%v: %s %q, %d: %d %v: %v", k.who, c.What, c.ID, b.number, b.value, b.repeated, err)
	switch left := struck || c.Cancel > 0; {
	case err == nil:
	case errors.Is(err, framework.ErrClosed):
		k.clientClosed(err)
		return false
	case left && errors.Is(err, context.Canceled):
	case c.What == Make && errors.Is(err, zk.ErrNodeExists), c.What == Take && errors.Is(err, zk.ErrNoNode):
	case errors.Is(err, counter.ErrAmount): // see reckonOnce
	case c.What == Update && errors.Is(err, zk.ErrBadVersion), c.What == UpdateOnce && errors.Is(err, zk.ErrBadVersion):
		// The others were quicker, or an earlier try was executed.
	case !k.plan.Scenario.quiet() && (framework.MaybeApplied(err) || errors.Is(err, framework.ErrSessionLost)), k.expected(err):
	default:
		k.ledger.fault("%v: %s: %v", k.who, c.What, err)
	}
	return true
}

func (k *worker) execute(ctx context.Context, b *counted) (err error) {
	n, path := k.number, k.plan.view(k.who.client).Path(k.paths[0])
	change := func(old []byte, _ *zk.Stat) ([]byte, error) {
		value, err := strconv.ParseInt("0"+string(old), 10, 64)
		b.value = value + b.number
		return strconv.AppendInt(nil, b.value, 10), err
	}
	switch b.What {
	case Add:
		b.value, err = n.Add(ctx, b.number)
	case Reserve:
		b.value, err = n.Reserve(ctx, b.number)
		b.value += b.number - 1
	case AddOnce:
		r, addErr := n.AddOnce(ctx, b.ID, b.number)
		b.value, b.repeated, err = r.Value, r.Repeated, addErr
	case Set:
		err = n.Set(ctx, b.number)
	case Get:
		b.value, err = n.Get(ctx)
	case Swap:
		if b.old, err = n.Get(ctx); err == nil {
			b.from = k.truth.now()
			b.ok, err = n.CompareAndSet(ctx, b.old, b.number)
		}
	case Update:
		_, err = k.client.Update(ctx, path, change)
	case UpdateOnce:
		r, updateErr := k.client.UpdateOnce(ctx, path, path+"-u-"+b.ID, change)
		b.repeated, err = r.Repeated, updateErr
	case MultiOnce:
		r, multiErr := k.client.MultiOnce(ctx, path+"-m-"+b.ID, []byte(strconv.Itoa(b.index)), &zk.CreateRequest{Path: fmt.Sprint(path, "-by-", b.index), Acl: zk.WorldACL(zk.PermAll)})
		b.repeated, err = r.Repeated, multiErr
		if note, noErr := strconv.ParseInt(string(r.Note), 10, 64); noErr == nil {
			b.value = note
		}
	case SetAny:
		_, err = k.client.Set(ctx, path+dataName, []byte(strconv.Itoa(b.index)), -1)
	case SetACL:
		_, err = k.client.SetACL(ctx, path+dataName, append(zk.WorldACL(zk.PermAll), zk.DigestACL(zk.PermRead, "call", strconv.Itoa(b.index))...), -1)
	case Make:
		flags := int32(zk.FlagPersistent)
		if b.ID != "" {
			flags = zk.FlagEphemeral
		}
		_, err = k.client.Create(ctx, path+jobName, []byte(strconv.Itoa(b.index)), flags)
	case Take:
		err = k.client.Delete(ctx, path+jobName, -1)
	}
	return err
}

// decode returns the value of the number's data.
func (p *Plan) decode(data string) (int64, error) {
	switch {
	case p.Recipe == Once && data == "":
		return 0, nil
	case p.Recipe == Counter && p.Layout == counter.LayoutLong && len(data) == 8:
		return int64(binary.BigEndian.Uint64([]byte(data))), nil
	case p.Recipe == Counter && p.Layout == counter.LayoutCount && len(data) == 4:
		return int64(int32(binary.BigEndian.Uint32([]byte(data)))), nil
	}
	return strconv.ParseInt(data, 10, 64)
}

// executed returns the executions of each call, by its index.
func (w *world) executed() map[int][]run {
	all := map[int][]run{}
	before := w.plan.initial()
	for _, z := range w.truth.below(w.paths[0], func(path string) bool { return path == w.paths[0] })[w.paths[0]] {
		after, err := w.plan.decode(z.data)
		if err != nil || !z.exists {
			w.ledger.fault("the number is %+v: %v", z, err)
			return all
		}
		if !w.isStart(z, after) && !w.explain(run{zxid: z.zxid, at: z.at, by: z.by, before: before, after: after}, all) {
			w.ledger.fault("at %x the number has become %d after %d, which no calls do", z.zxid, after, before)
		}
		before = after
	}
	for name, made := range map[string]bool{dataName: false, jobName: true} {
		for _, z := range w.truth.below(w.paths[0]+name, func(string) bool { return true })[w.paths[0]+name] {
			if index, err := strconv.Atoi(z.data); err == nil && z.exists && (z.zxid == z.czxid) == made {
				all[index] = append(all[index], run{zxid: z.zxid, at: z.at})
			}
		}
	}
	for _, b := range w.calls {
		for _, z := range w.truth.below(w.paths[0]+"-by-"+strconv.Itoa(b.index), func(string) bool { return true }) {
			all[b.index] = append(all[b.index], run{zxid: z[0].zxid, at: z[0].at})
		}
	}
	return all
}

// isStart reports whether the state is the one in which the framework's number
// was created.
func (w *world) isStart(z znode, value int64) bool {
	return w.plan.Recipe == Once && z.zxid == z.czxid && value == 0
}

// explain adds a state to the executions of the calls that have made it.
func (w *world) explain(r run, all map[int][]run) (explained bool) {
	for _, b := range w.calls {
		if (b.What == Set || b.What == Swap) && b.number == r.after {
			all[b.index] = append(all[b.index], r)
			return true
		}
	}
	added := r.after - r.before
	if added <= 0 || added >= 1<<len(w.calls) {
		return false
	}
	for _, b := range w.calls {
		if digit := int64(1) << b.index; added&digit != 0 {
			if b.number != digit || b.What == Get || b.What == MultiOnce || b.What.unnumbered() {
				return false
			}
			r.call = w.caller(b, r)
			all[r.call.index] = append(all[r.call.index], r)
		}
	}
	return true
}

// caller returns the call that has made an execution, of those that share the
// number of a call: one of the session's client, and rather one that says so.
func (w *world) caller(b *counted, r run) *counted {
	likely, best := 0, b
	for _, o := range w.calls {
		rank := 0
		switch {
		case o != b && !o.shares(b), o.from >= r.zxid, w.clientOf(r.by) != o.client:
		case o.err == nil && o.to > 0 && !o.repeated && o.covers(r.zxid):
			rank = 3
		case o.to == 0, framework.MaybeApplied(o.err):
			rank = 2
		default:
			rank = 1
		}
		if rank > likely {
			likely, best = rank, o
		}
	}
	return best
}

// clientOf returns the client that a session is of, -1 if it is nobody's.
func (w *world) clientOf(session int64) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if client, ok := w.sessions[session]; ok {
		return client
	}
	return -1
}

// reckon compares what calls have returned with what was executed.
func (w *world) reckon() {
	all := w.executed()
	for _, b := range w.calls {
		w.reckonOne(b, all)
	}
	w.reckonACLs()
	for i, b := range w.calls {
		for _, o := range w.calls[:i] {
			if b.What == Reserve && o.What == Reserve && b.err == nil && o.err == nil && b.value-b.number < o.value && o.value-o.number < b.value && w.together(all, i, o.index) {
				w.ledger.fault("two blocks overlap: %+v, %+v", b, o)
			}
		}
	}
}

// reckonACLs compares how often an ACL was set with how often that was called.
func (w *world) reckonACLs() {
	least, most := int32(0), int32(0)
	for _, b := range w.calls {
		switch returned := b.to > 0; {
		case b.What != SetACL:
		case returned && b.err == nil:
			least++
			fallthrough
		case !returned, framework.MaybeApplied(b.err):
			most++
		}
	}
	if z, ok := w.ens.Stat(w.paths[0] + dataName); ok && (z.Aversion < least || z.Aversion > most) {
		w.ledger.fault("the ACL was set %d times by %d to %d calls", z.Aversion, least, most)
	}
}

// together reports whether nothing has set the number between two calls.
func (w *world) together(all map[int][]run, a, b int) bool {
	if len(all[a]) == 0 || len(all[b]) == 0 {
		return false
	}
	low, high := min(all[a][0].zxid, all[b][0].zxid), max(all[a][0].zxid, all[b][0].zxid)
	for _, c := range w.calls {
		for _, r := range all[c.index] {
			if (c.What == Set || c.What == Swap) && low < r.zxid && r.zxid < high {
				return false
			}
		}
	}
	return true
}

func (w *world) reckonOne(b *counted, all map[int][]run) {
	runs := all[b.index]
	wrong := func(what string) {
		w.ledger.fault("%v: %s %q of %d: %s: executed %+v, in its group %+v; from %x to %x, value %d after %d, %v %v: %v",
			b.who, b.What, b.ID, b.number, what, runs, w.group(b, all), b.from, b.to, b.value, b.old, b.ok, b.repeated, b.err)
	}
	returned := b.to > 0
	switch {
	case b.What == SetACL, b.What == Take: // these say no more
		return
	case b.What == Get:
		if returned && b.err == nil && !w.mayLag() && !w.had(b, func(v int64) bool { return v == b.value }) {
			wrong("it never had this value meanwhile")
		}
		return
	case returned && b.err != nil && !framework.MaybeApplied(b.err) && len(runs) > 0 && !(w.plan.Age > 0 && errors.Is(b.err, counter.ErrAmount)): // which the marker says as long as it is kept
		wrong("it was executed, and has failed")
	case b.What == Swap && returned && b.err == nil && !b.ok:
		if len(runs) > 0 || !w.mayLag() && !w.had(b, func(v int64) bool { return v != b.old }) {
			wrong("the value was the expected one")
		}
		return
	case b.once():
		w.reckonOnce(b, all, wrong)
		return
	case len(runs) > 1:
		wrong("it was executed twice")
	case returned && b.err == nil && len(runs) == 0:
		wrong("it was not executed")
	case returned && b.err == nil && !b.covers(runs[0].zxid):
		wrong("it was executed at another time")
	}
	switch {
	case b.err != nil || len(runs) != 1 || !returned:
	case b.What == Swap && runs[0].before != b.old:
		wrong("the value was another one")
	case (b.What == Add || b.What == Reserve) && (b.value-b.number < runs[0].before || b.value > runs[0].after),
		b.What == Update && b.value != runs[0].after:
		wrong("the value is wrong")
	}
}

// covers reports whether a transaction lies between the call and its return.
func (b *counted) covers(zxid int64) bool { return b.from < zxid && zxid <= b.to }

// had reports whether the number had such a value between the call and its
// return.
func (w *world) had(b *counted, is func(int64) bool) bool {
	value := w.plan.initial()
	for _, z := range w.truth.below(w.paths[0], func(path string) bool { return path == w.paths[0] })[w.paths[0]] {
		if z.zxid > b.from && is(value) {
			return true
		}
		if z.zxid > b.to {
			return false
		}
		value, _ = w.plan.decode(z.data)
	}
	return is(value)
}

// group returns the executions of all calls with an ID.
func (w *world) group(b *counted, all map[int][]run) (runs []run) {
	if !b.once() {
		return nil
	}
	for _, o := range w.calls {
		if o.What == b.What && o.ID == b.ID {
			runs = append(runs, all[o.index]...)
		}
	}
	return runs
}

// reckonOnce judges a call that is executed once for its ID.
func (w *world) reckonOnce(b *counted, all map[int][]run, wrong func(string)) {
	group, own := w.group(b, all), all[b.index]
	for i, r := range group {
		for _, o := range group[:i] {
			if apart := r.at.Sub(o.at).Abs(); w.plan.Age == 0 || apart < w.keeps(r, o) {
				wrong(fmt.Sprintf("twice for an ID, %v apart", apart))
			}
		}
	}
	other := errors.Is(b.err, counter.ErrAmount)
	if b.err != nil && !other || b.to == 0 || w.allowed(zk.ErrNodeExists) { // which says that the marker was there
		return
	}
	fits := false
	for _, r := range group {
		if b.What == AddOnce && (r.call.number != b.number) != other {
			continue
		}
		if other {
			fits = fits || r.zxid <= b.to
			continue
		}
		mine := len(own) > 0 && r.zxid == own[0].zxid
		value := b.What != AddOnce || b.value == r.after
		if b.What == MultiOnce {
			value = len(all[int(b.value)]) > 0 && all[int(b.value)][0].zxid == r.zxid
		}
		fits = fits || r.zxid <= b.to && value && (b.repeated && !mine || !b.repeated && (r.zxid > b.from || !w.plan.Scenario.quiet())) // one of its tries may be open
	}
	if !fits {
		wrong("the result is wrong")
	}
}

// keeps returns for how long the marker of the earlier of two executions is
// kept at least: for as long as its client has said.
func (w *world) keeps(a, b run) time.Duration {
	if a.call == nil {
		return w.plan.Age
	}
	if b.at.Before(a.at) {
		a = b
	}
	return w.plan.age(a.call.client)
}
