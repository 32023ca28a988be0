package locks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
)

// Keyed is a lock for each key, any string, below one directory. It is safe for
// concurrent use, and all values of one client and root are the same locks.
//
//	<root>/<name of the key>/_c_<uuid>-lock-NNNNNNNNNN    as of a Mutex
//
// A key has nothing, at the ensemble or here, while nobody holds or waits: its
// directory is a container, which vanishes some time after its last use, and the
// next use makes it again, at the cost of three requests. (In Kazoo's layout the
// directories stay.)
type Keyed struct {
	client *framework.Client
	root   string
	cfg    line.Config
	rule   line.Rule

	open  context.Context // ends with Close
	close context.CancelFunc

	mu     sync.Mutex // guards what follows
	leases map[*recipes.Lease]struct{}
	closed bool // leases are those that Close has found, and no others come
}

// ErrClosed is the error of an acquisition by a key whose Keyed was closed.
var ErrClosed = errors.New("keyed locks closed")

// NewKeyed makes a Keyed whose directory is root, with options for the lock of
// each key. It does no I/O.
func NewKeyed(c *framework.Client, root string, opts ...Option) (*Keyed, error) {
	cfg, rule, err := newConfig(opts)
	if err != nil {
		return nil, fmt.Errorf("locks: keyed: path %s: %w", root, err)
	}
	k := &Keyed{client: c, root: root, cfg: cfg.Config, rule: rule, leases: make(map[*recipes.Lease]struct{})}
	if _, err := line.New(c, root, rule, k.cfg); err != nil { // what holds for it does for each key
		return nil, fmt.Errorf("locks: keyed: %w", err)
	}
	k.open, k.close = context.WithCancel(context.Background())
	k.cfg.Closed = k.open.Done()
	return k, nil
}

// Key is the lock of a key. It costs nothing, and need not be kept: two Mutexes of
// one key are one lock. A key whose name, as it is escaped, has more than 1024
// bytes has no lock: to acquire it is an error.
func (k *Keyed) Key(key string) *Mutex {
	name := keyName(key)
	m := &Mutex{keyed: k, bad: checkName(name)}
	if m.bad != nil {
		name = strings.ToValidUTF8(name[:maxName], "") + "%..." // no key's name
	}
	// What could be wrong with it, New has looked at: a name is always a valid one.
	m.line, _ = line.New(k.client, k.root+"/"+name, k.rule, k.cfg)
	return m
}

// Path is the path of the directory, in its client's view.
func (k *Keyed) Path() string { return k.root }

// Keys lists the keys that somebody, of any process, holds or waits for, and those
// whose directory has not vanished yet, sorted. It costs a list.
func (k *Keyed) Keys(ctx context.Context) ([]string, error) {
	names, _, err := k.client.Children(ctx, k.root)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
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

// acquire has grant acquire a key's lock, unless Close comes first.
func (k *Keyed) acquire(ctx context.Context, grant func(context.Context) (*recipes.Lease, error)) (*recipes.Lease, error) {
	wait, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(k.open, stop)()
	if k.open.Err() != nil {
		return nil, ErrClosed
	}
	l, err := grant(wait)
	switch {
	case err != nil && k.open.Err() != nil && ctx.Err() == nil:
		return nil, ErrClosed
	case err != nil:
		return nil, err
	case !k.add(l):
		_ = l.Release(wait) // which has ended: the removal is begun, and goes on
		return nil, ErrClosed
	}
	context.AfterFunc(l.Context(), func() { k.remove(l) })
	return l, nil
}

// add notes a lease for Close to release, or reports that it has come too late.
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

// Close releases all leases that were acquired through this value and are held,
// all at once, ends its waits, and has leave whatever of this client lingers below
// its root; from then on its locks cannot be acquired, with ErrClosed. ctx bounds
// the wait for the znodes to be gone alone: they go if it ends, too, and Close may
// be called again to wait again. It returns nil if each of the leases was held
// until now; ErrNotHeld is wrapped if one was lost meanwhile.
func (k *Keyed) Close(ctx context.Context) error {
	k.mu.Lock()
	k.closed = true
	leases := make([]*recipes.Lease, 0, len(k.leases))
	for l := range k.leases {
		leases = append(leases, l)
	}
	k.mu.Unlock()
	k.close()
	results := make([]error, len(leases))
	var all sync.WaitGroup // at once: the observer may take its time over each
	for i, l := range leases {
		all.Go(func() { results[i] = l.Release(ctx) })
	}
	all.Wait()
	var lost, other error // the first of thousands will do
	for _, err := range results {
		if errors.Is(err, recipes.ErrNotHeld) {
			lost = cmp.Or(lost, err)
		} else {
			other = cmp.Or(other, err)
		}
	}
	other = cmp.Or(other, line.EndLinger(ctx, k.client, k.root))
	if err := errors.Join(lost, other); err != nil {
		return fmt.Errorf("locks: close %s: %w", k.root, err)
	}
	return nil
}
