package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

// Registration is an instance that was registered. It is safe for concurrent
// use.
type Registration[T any] struct {
	d        *Discovery[T]
	instance Instance[T]    // as it was registered
	node     *presence.Node // nil: it is persistent
	znode    *persistent

	mu     sync.Mutex  // guards what follows
	latest Instance[T] // of the latest Update
}

// Register registers an instance, and returns when its znode stands. opts are
// those of a presence.Node, such as presence.WithHealthCheck, which withdraws
// the instance while it is ill, and presence.WithYield, with which an operator
// drains it by deleting the znode. Dynamic instances cost what a presence.Node
// does.
//
// If another session has registered the ID, Register waits until that session
// has ended, as after a crash, or until ctx ends; presence.WithTakeover does
// not wait. After an error nothing stays: what was made is removed in the
// background.
//
// Static and Permanent instances are created once, and take no opts but those
// of package recipes. One that is there already is taken over if it differs in
// nothing but its time, and otherwise the error is zk.ErrNodeExists. If
// MaybeApplied(err) is true, the znode may exist, or others may have removed it
// already; Register does not repeat the create.
func (d *Discovery[T]) Register(ctx context.Context, instance Instance[T], opts ...presence.Option) (*Registration[T], error) {
	fail := func(err error) (*Registration[T], error) {
		return nil, fmt.Errorf("discovery: register %s/%s: %w", instance.Name, instance.ID, err)
	}
	if d.client == nil {
		return fail(errZero)
	}
	instance.ID = cmp.Or(instance.ID, random.ID())
	instance.Type = cmp.Or(instance.Type, Dynamic)
	if instance.Registered.IsZero() {
		instance.Registered = time.Now()
	}
	instance.Registered = time.UnixMilli(instance.Registered.UnixMilli()) // as it is read back
	if err := instance.validate(); err != nil {
		return fail(err)
	}
	data, err := d.codec.Encode(instance)
	if err != nil {
		return fail(err)
	}
	r := &Registration[T]{d: d, instance: instance}
	path := layout.Join(d.path, instance.Name+"/"+instance.ID)
	label := option.Label(d.client.Resolve(layout.Join(d.path, instance.Name)))
	opts = slices.Concat([]presence.Option{label}, d.opts, opts)
	switch instance.Type {
	case Static, Permanent:
		r.znode, err = d.createPersistent(ctx, path, &r.instance, data, opts)
	case DynamicSequential:
		opts = append(opts, presence.WithSequential())
		fallthrough
	default:
		r.node, err = presence.Announce(ctx, d.client, path, data, opts...)
	}
	if err != nil {
		return fail(err)
	}
	r.latest = r.instance
	return r, nil
}

// Instance returns the instance as it was registered, with the ID and the
// registration time that its znode has.
func (r *Registration[T]) Instance() Instance[T] { return r.instance }

// Update replaces the data of the instance, and returns when the ensemble has
// them. Name, ID and Type must stay the same, or be empty; Registered stays the
// same if it is zero. There need be no connection: if ctx ends first, the data
// are those that the znode of a Dynamic instance will have, also after an
// expiry. Update also replaces what somebody else has written, such as that the
// instance is disabled.
func (r *Registration[T]) Update(ctx context.Context, instance Instance[T]) error {
	fail := func(err error) error {
		return fmt.Errorf("discovery: update %s/%s: %w", r.instance.Name, r.instance.ID, err)
	}
	if r.d == nil {
		return fail(errZero)
	}
	was := r.instance
	instance.Name = cmp.Or(instance.Name, was.Name)
	instance.ID = cmp.Or(instance.ID, was.ID)
	instance.Type = cmp.Or(instance.Type, was.Type)
	if instance.Registered.IsZero() {
		instance.Registered = was.Registered
	}
	if instance.Name != was.Name || instance.ID != was.ID || instance.Type != was.Type {
		return fail(errors.New("another name, ID or type: that is another instance"))
	}
	if err := instance.validate(); err != nil {
		return fail(err)
	}
	data, err := r.d.codec.Encode(instance)
	if err != nil {
		return fail(err)
	}
	r.mu.Lock()
	r.latest = instance
	r.mu.Unlock()
	if r.node != nil {
		err = r.node.Set(ctx, data)
	} else {
		err = r.znode.set(ctx, data)
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// Status returns what is known of the znode. It makes no request. A persistent
// znode counts as Standing until Close.
func (r *Registration[T]) Status() presence.Status {
	switch {
	case r.node != nil:
		return r.node.Status()
	case r.znode != nil:
		return r.znode.status()
	}
	return presence.Status{State: presence.Closed}
}

// Close removes the instance for good: see presence.Node.Close. It removes no
// persistent znode that somebody else has created meanwhile. With
// WithLastResort it disables the instance first.
func (r *Registration[T]) Close(ctx context.Context) (err error) {
	r.withdraw(ctx)
	switch {
	case r.node != nil:
		err = r.node.Close(ctx)
	case r.znode != nil:
		err = r.znode.close(ctx)
	}
	if err != nil {
		return fmt.Errorf("discovery: close %s/%s: %w", r.instance.Name, r.instance.ID, err)
	}
	return nil
}
