package locks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/bridge"
)

// Keyed is a lock for each key, any string, below one directory. It is safe for
// concurrent use, and all values of one client and root are the same locks.
//
//	<root>/<name of the key>/_c_<uuid>-lock-NNNNNNNNNN    as of a Mutex
//
// A key has nothing, at the ensemble or here, while nobody holds or waits: its
// directory is a container, which vanishes some time after its last use. The
// next use creates it again, at the cost of three requests. (In Kazoo's layout
// the directories stay. For a directory that never had a child see
// recipes.NewLine.)
type Keyed struct {
	client *framework.Client
	root   string
	opts   []Option

	open  context.Context // ends with Close
	close context.CancelFunc

	mu     sync.Mutex // guards what follows
	leases map[*recipes.Lease]struct{}
	calls  map[*call]struct{} // that wait
	closed bool               // leases are those that Close has found, and no others come
}

// ErrClosed is returned by an Acquire by a key whose Keyed was closed.
var ErrClosed = errors.New("keyed locks closed")

var errNotMade = errors.New("locks: a zero Keyed has no locks: it must be made by NewKeyed")

// NewKeyed returns a Keyed whose directory is root, with options for the lock
// of each key. It does no I/O.
func NewKeyed(c *framework.Client, root string, opts ...Option) (*Keyed, error) {
	if _, err := newLine(c, root, opts, bridge.Inside{}); err != nil { // what holds for it does for each key
		return nil, err
	}
	k := &Keyed{client: c, root: root, opts: slices.Clone(opts), leases: make(map[*recipes.Lease]struct{}), calls: make(map[*call]struct{})}
	k.open, k.close = context.WithCancel(context.Background())
	return k, nil
}

// Key returns the lock of a key. It costs nothing, and need not be kept: two
// Mutexes of one key are one lock. A key whose name, as it is escaped, has more
// than 1024 bytes has no lock: its Acquire is an error.
func (k *Keyed) Key(key string) *Mutex {
	if k.client == nil {
		return &Mutex{} // of a zero Keyed: its Acquire fails
	}
	name := keyName(key)
	m := &Mutex{keyed: k, bad: checkName(name)}
	if m.bad != nil {
		name = strings.ToValidUTF8(name[:maxName], "") + "%..." // no key's name
	}
	// NewKeyed has looked at what could be wrong with it: a name is always valid.
	m.line, _ = newLine(k.client, k.root+"/"+name, k.opts, bridge.Inside{
		StopLinger: k.open.Done(), Label: k.client.Resolve(k.root), Waiting: k.waiting,
	})
	return m
}

// Path returns the path of the directory, in its client's view.
func (k *Keyed) Path() string { return k.root }

// Keys lists the keys that somebody, of any process, holds or waits for, and
// those whose directory has not vanished yet, sorted. It costs a list.
func (k *Keyed) Keys(ctx context.Context) ([]string, error) {
	if k.client == nil {
		return nil, errNotMade
	}
	names, _, err := k.client.Children(ctx, k.root)
	if err != nil && !framework.Absent(err) {
		return nil, fmt.Errorf("locks: keys: %w", err)
	}
	var keys []string
	for _, name := range names {
		if key, ok := keyOf(name); ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys, nil
}

// acquire acquires the lock of a key, unless Close comes first.
func (k *Keyed) acquire(ctx context.Context, m *Mutex, acquire func(*recipes.Line, context.Context) (*recipes.Lease, error)) (*recipes.Lease, error) {
	errClosed := fmt.Errorf("locks: acquire %s: %w", m.Path(), ErrClosed)
	this := &call{returned: make(chan struct{})}
	defer close(this.returned)
	wait, stop := context.WithCancelCause(context.WithValue(ctx, callKey{}, this))
	defer stop(nil)
	defer context.AfterFunc(k.open, func() { stop(ErrClosed) })()
	if k.open.Err() != nil {
		return nil, errClosed
	}
	l, err := acquire(m.line, wait)
	switch {
	case err != nil && k.open.Err() != nil && ctx.Err() == nil:
		return nil, errClosed
	case err != nil:
		return nil, err
	case !k.add(l):
		_ = l.Release(wait) // which has ended: the removal is begun, and goes on
		return nil, errClosed
	}
	context.AfterFunc(l.Context(), func() { k.remove(l) })
	return l, nil
}

// call is a call of Acquire, which Close ends and waits for.
type call struct {
	returned chan struct{} // closed: it is about to return
}

type callKey struct{}

// waiting notes the call with ctx until its wait is over.
func (k *Keyed) waiting(ctx context.Context) (over func()) {
	this, _ := ctx.Value(callKey{}).(*call)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls[this] = struct{}{}
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.calls, this)
	}
}

// awaitCalls waits until the calls that wait now have returned. One that calls
// Close itself, from an observer, no longer waits.
func (k *Keyed) awaitCalls(ctx context.Context) error {
	k.mu.Lock()
	calls := slices.Collect(maps.Keys(k.calls))
	k.mu.Unlock()
	for _, c := range calls {
		select {
		case <-c.returned:
		case <-ctx.Done():
			return ctxerr.Of(ctx)
		}
	}
	return nil
}

// add notes a lease for Close to release. It reports false if Close came
// before.
func (k *Keyed) add(l *recipes.Lease) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.closed {
		k.leases[l] = struct{}{}
	}
	return !k.closed
}

// remove forgets a lease that is over.
func (k *Keyed) remove(l *recipes.Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.closed {
		delete(k.leases, l)
	}
}

// Close releases all held leases that were acquired through this value, ends
// its waits, and removes every znode that this client is keeping under the
// root. From then on an Acquire of its locks fails with ErrClosed. Close
// returns when the calls of Acquire that were waiting have returned, with their
// observers, and the znodes are gone. If ctx ends before that, the removal
// continues, and Close may be called again to wait again. It returns nil if
// each of the leases was held until now, and wraps ErrNotHeld if one was lost
// meanwhile.
func (k *Keyed) Close(ctx context.Context) error {
	if k.client == nil {
		return errNotMade
	}
	k.mu.Lock()
	k.closed = true
	leases := make([]*recipes.Lease, 0, len(k.leases))
	for l := range k.leases {
		leases = append(leases, l)
	}
	k.mu.Unlock()
	k.close()
	var all sync.WaitGroup // at once: the observer may take its time over each
	for _, l := range leases {
		all.Go(func() { _ = l.Release(ctx) })
	}
	all.Wait()
	lost, other := error(nil), k.awaitCalls(ctx) // the first of thousands will do
	for _, l := range leases {
		err := l.Release(ctx) // the same again: an observer may have ended the other goroutine
		if errors.Is(err, recipes.ErrNotHeld) {
			lost = cmp.Or(lost, err)
		} // else EndLinger meets it as well
	}
	other = cmp.Or(other, recipes.EndLinger(ctx, k.client, k.root))
	if err := oneline.Join(lost, other); err != nil {
		return fmt.Errorf("locks: close %s: %w", k.root, err)
	}
	return nil
}
