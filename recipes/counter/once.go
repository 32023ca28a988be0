package counter

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/missing"
)

// OnceResult is the result of AddOnce.
type OnceResult struct {
	Value    int64 // the counter after the addition, when it was made
	Repeated bool  // this call has added nothing: the id was counted before
}

// AddOnce adds delta, unless an addition with this id was made within the last
// day (WithMarkerAge) by any process. So after any error, even if
// framework.MaybeApplied is true for it, you can make the same call again, also
// in another session or process. If err is nil, delta was added exactly once
// for the id. If the id was counted with another delta, nothing is added, and
// the error is ErrAmount. An id has 1 to 128 bytes, without a slash and without
// anything else that the name of a znode cannot have.
//
// Each id has a marker, the znode <path>-once/<two hex digits>/<id>. The
// transaction of the addition creates it. Some calls of AddOnce remove old
// markers in the background. A marker is old if both the clock of the
// ensemble's leader and the clock of this process say so. If a leader's clock
// was slow when the id was counted, the id is forgotten earlier. A process that
// ends soon should call AwaitRemoval.
//
// AddOnce costs as much as Add; its request has two more operations. With
// WithMarkerAge, the first call costs one more read, and so does the first call
// after a minute. The removal costs eight reads for each addition on average.
func (n *Counter) AddOnce(ctx context.Context, id string, delta int64) (OnceResult, error) {
	if err := checkID(id); err != nil {
		return OnceResult{}, n.failed(addOnce, err)
	}
	r := n.do(ctx, &request{name: addOnce, alone: true, id: id, amount: delta, apply: func(l Layout, old int64) (int64, bool, error) {
		sum, err := l.add(old, delta)
		return sum, err == nil, err
	}})
	return OnceResult{Value: r.value, Repeated: r.repeated}, r.err
}

// ErrAmount is returned by AddOnce when the id was counted with another amount.
// The error shows both.
var ErrAmount = errors.New("was counted with another amount")

const addOnce = "add once"

// longestID is how long an id may be, in bytes.
const longestID = 128

func checkID(id string) error {
	switch {
	case id == "" || len(id) > longestID:
		return fmt.Errorf("id %q: must have 1 to %d bytes", id, longestID)
	case strings.Contains(id, "/"):
		return fmt.Errorf("id %q: cannot have a slash", id)
	}
	if err := framework.ValidatePath("/" + id); err != nil {
		return fmt.Errorf("id %q: %w", id, err)
	}
	return nil
}

// directories is how many the markers are in.
const directories = 256

// directory returns the one of an id's marker. All processes must agree on it.
func (n *Counter) directory(id string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return fmt.Sprintf("%s/%02x", n.markersRoot(), h.Sum32()%directories)
}

// addOnce has an addition with an id executed, or gives it up.
func (w *writer) addOnce(b *batch) {
	a := w.begin(b)
	defer a.unlock()
	unsure := false
	for {
		results, err := a.tryOnce(&unsure)
		if errors.Is(err, framework.ErrSessionLost) {
			err = a.again(err)
		}
		switch {
		case results != nil:
			w.finish(b, results)
			return
		case err != nil:
			w.fail(b, err, unsure || framework.MaybeApplied(err))
			return
		}
	}
}

// tryOnce makes a step, as try does. The marker stands for the receipt, and
// MultiOnce for the tries: unsure says that one of them is open.
func (a *attempt) tryOnce(unsure *bool) ([]result, error) {
	w, b, r := a.w, a.b, a.b.requests[0]
	if err := a.connect(); err != nil {
		return nil, err
	}
	dir := b.directory(r.id)
	if b.cfg.aged && w.carried < b.cfg.age {
		return nil, a.carryAge(dir)
	}
	if !a.knows() {
		return nil, a.read(false)
	}
	t := w.compute(b)
	marker := layout.Join(dir, r.id)
	if !t.writes && !w.known.synced {
		return nil, a.read(true)
	}
	if !t.writes { // it may have been possible before
		note, _, err := a.sess.Get(b.ctx, marker)
		switch {
		case err == nil:
			return r.noted(note, !*unsure, unsure)
		case !errors.Is(err, zk.ErrNoNode):
			return nil, err
		}
		return nil, t.results[0].err
	}
	data := b.cfg.layout.encode(t.value)
	began := time.Now()
	if !*unsure {
		a.opened = began
	}
	// Later the marker of an open try may be gone. An answer that is not lost
	// takes less than a session timeout.
	most := max(b.cfg.age, a.sess.Timeout())
	ctx, cancel := context.WithTimeoutCause(b.ctx, most-time.Since(a.opened), errForgetting)
	defer cancel()
	made, err := b.client.MultiOnce(ctx, marker, fmt.Appendf(nil, "%d %d", t.value, r.amount),
		&zk.SetDataRequest{Path: dir, Version: -1}, w.operation(b, data))
	switch {
	case err == nil && made.Responses != nil:
		w.wrote(data, made.Responses[1])
		w.sweep(b, dir, made.Responses[0].Stat)
		return t.results, nil
	case err == nil:
		w.known = known{}
		if made.Repeated && made.Stat == nil && !*unsure { // it was removed before it was read, since it is old
			return nil, a.again(errForgotten)
		}
		return r.noted(made.Note, made.Repeated && !*unsure, unsure)
	}
	*unsure = *unsure || framework.MaybeApplied(err)
	if ctx.Err() != nil && !*unsure {
		return nil, a.again(err)
	}
	if errors.Is(err, zk.ErrNoNode) { // of the directory, the counter, or what is above it
		w.carried = 0
		first := a.missing == missing.Directory{}
		if makeErr := a.makeDir(&a.missing, dir, err, a.sess.MakePersistentPath); makeErr != nil || first {
			return nil, makeErr
		}
	}
	return nil, a.conflict(err, time.Since(began))
}

var errForgetting = errors.New("no answer came for as long as its marker is kept")

var errForgotten = errors.New("its marker is removed whenever it is there")

// noted returns the result that a marker has. A marker without an amount is one
// of any.
func (r *request) noted(note []byte, repeated bool, unsure *bool) ([]result, error) {
	text, counted, has := strings.Cut(string(note), " ")
	value, err := strconv.ParseInt(text, 10, 64)
	amount := r.amount
	if err == nil && has {
		amount, err = strconv.ParseInt(counted, 10, 64)
	}
	switch {
	case err != nil:
		*unsure = true
		return nil, fmt.Errorf("it was counted, but its marker is gone or has other data: %q", note)
	case amount != r.amount:
		*unsure = false // the marker refuses what is open
		return nil, fmt.Errorf("id %q %w: %d, not %d", r.id, ErrAmount, amount, r.amount)
	}
	return []result{{value: value, repeated: repeated}}, nil
}
