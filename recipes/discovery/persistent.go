package discovery

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/missing"
	"github.com/zkrecipes/zkrecipes/internal/version"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

// persistent is the znode of an instance that no session owns.
type persistent struct {
	client  *framework.Client
	path    string
	created *zk.Stat

	mu    sync.Mutex // guards what follows
	state presence.State
	since time.Time
}

// createPersistent creates the znode of an instance, or finds an equal one, and
// then sets the instance's time to that of the znode.
func (d *Discovery[T]) createPersistent(ctx context.Context, path string, instance *Instance[T], data []byte, opts []presence.Option) (*persistent, error) {
	var shared option.Shared
	for _, opt := range opts {
		if !shared.Set(opt) {
			return nil, fmt.Errorf("option %T: a %s instance has none of a presence.Node", opt, instance.Type)
		}
	}
	dir, _ := layout.Split(path)
	err := missing.Create(ctx, d.client.Done(), dir, func() error { return (*managed.Client)(d.client).MakeDirectory(ctx, dir) }, func() error {
		_, err := d.client.Create(ctx, path, data, zk.FlagPersistent, shared.ACL...)
		return err
	})
	var stat *zk.Stat
	made := err == nil
	if made || errors.Is(err, zk.ErrNodeExists) && !framework.MaybeApplied(err) {
		var there []byte
		there, stat, err = d.client.Get(ctx, path)
		if err == nil && (stat.EphemeralOwner != 0 || !d.adopt(there, instance)) {
			err = fmt.Errorf("%w: another instance has the ID: delete its znode first, %s", zk.ErrNodeExists, path)
		}
	}
	switch {
	case err != nil && made:
		return nil, managed.Unsure("create", path, err)
	case err != nil:
		return nil, err
	}
	return &persistent{client: d.client, path: path, created: stat, state: presence.Standing, since: time.Now()}, nil
}

// adopt reports whether data are those of the instance, but for the time, which
// it sets. Java may write them in another way.
func (d *Discovery[T]) adopt(data []byte, instance *Instance[T]) bool {
	there, err := d.codec.Decode(data)
	if err != nil {
		return false
	}
	ours := *instance
	ours.Registered = there.Registered
	want, err := d.codec.Encode(ours)
	if err != nil {
		return false
	}
	if found, err := d.codec.Encode(there); err != nil || string(want) != string(found) {
		return false
	}
	*instance = ours
	return true
}

// set writes data. A write whose answer was lost is made again, which does no
// harm: whatever was written meanwhile is to be replaced.
func (p *persistent) set(ctx context.Context, data []byte) error {
	for {
		_, err := p.client.Update(ctx, p.path, func(_ []byte, stat *zk.Stat) ([]byte, error) {
			if version.CreatedOf(stat) != version.CreatedOf(p.created) {
				return nil, fmt.Errorf("%w: it was deleted and created again", zk.ErrNoNode)
			}
			return data, nil
		})
		if !errors.Is(err, zk.ErrBadVersion) || !framework.MaybeApplied(err) {
			return err
		}
	}
}

func (p *persistent) close(ctx context.Context) error {
	err := p.client.DeleteCreated(ctx, p.path, p.created)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != presence.Closed {
		p.state, p.since = presence.Closed, time.Now()
	}
	return nil
}

func (p *persistent) status() presence.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return presence.Status{State: p.state, Since: p.since}
}
