package framework

import (
	"context"
	"errors"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/seam"
)

func init() { seam.Framework = forEngine{} }

// forEngine is what only the engine of this module's recipes calls: the package
// recipes/internal/privileged says what each method does.
type forEngine struct{}

func (forEngine) Attach(c *Client, key any, newValue func() any) any { return c.attach(key, newValue) }

func (forEngine) In(c *Client, s *Session) *Session { return &Session{live: s.live, root: c.root} }

func (forEngine) Whole(s *Session) *Session { return &Session{live: s.live} }

func (forEngine) Shown(c *Client, err error) error {
	var e *zkerr.Op
	if !errors.As(err, &e) || e.Root == string(c.root) {
		return err
	}
	shown := *e
	shown.Path, shown.Root = c.root.Unfix(request.Prefix(e.Root).Fix(e.Path)), string(c.root)
	return &shown
}

func (forEngine) MakeDirectory(ctx context.Context, c *Client, dir string) error {
	return c.scope().makeDirectory(ctx, dir)
}

func (forEngine) MakeDirectoryIn(ctx context.Context, s *Session, dir string) error {
	return s.scope().makeDirectory(ctx, dir)
}

func (forEngine) Filled(c *Client, dir string) { c.core().unused.used(c.root.Fix(dir)) }

func (forEngine) Used(c *Client, dir string) {
	k, full := c.core(), c.root.Fix(dir)
	k.unused.used(full)
	k.noteUsed(full, false)
}

func (forEngine) Unhurried(s *Session) *Session {
	return &Session{live: s.live, root: s.root, unhurried: true, allowance: s.allowance}
}

func (forEngine) CreateProtectedAndRead(ctx context.Context, s *Session, dir, name string, data []byte, flags int32, acl []zk.ACL, also ...request.Read) (Created, []request.Result, error) {
	created, found, err := s.createProtected(ctx, dir, name, data, flags, acl, also, "")
	return created, found.also, err
}

func (forEngine) CreateProtectedInstead(ctx context.Context, s *Session, dir, name string, data []byte, flags int32, acl []zk.ACL, replaced string) (_ Created, next bool, err error) {
	created, found, err := s.createProtected(ctx, dir, name, data, flags, acl, nil, replaced)
	return created, found.next, err
}

func (forEngine) BatchFits(c *Client, b ProtectedBatch) error { return b.fits(c.scope()) }

func (forEngine) StartDelete(ctx context.Context, s *Session, path string, patient bool) (finish func() error) {
	return s.startDelete(ctx, path, patient)
}

func (forEngine) ReadAll(ctx context.Context, s *Session, reads ...request.Read) ([]request.Result, error) {
	return s.scope().readAll(ctx, reads)
}

func (forEngine) WatchTree(ctx context.Context, s *Session, path string, on func(order uint64, what zk.EventType, path string)) (armed uint64, remove func(), err error) {
	return s.watchTree(ctx, path, on)
}

func (forEngine) TreesRefused(err error) bool { return errors.Is(err, errNoTrees) }

func (forEngine) HasTrees(s *Session) (has bool, said <-chan struct{}) {
	return s.session().hasTrees()
}

func (forEngine) DistrustTrees(c *Client, why string) { c.core().distrustTrees(why) }

func (forEngine) CreateEphemeral(s *Session, path string, data []byte, acl []zk.ACL) error {
	return s.createEphemeral(path, data, acl)
}

func (forEngine) Reserving(s *Session, dir, name string, n int) *Session {
	return s.reserving(dir, name, n)
}

func (forEngine) InRoomOf(s *Session, full string) *Session {
	return s.inRoom(s.session().core.ephemerals.roomOf(full))
}

func (forEngine) KeepRoom(s *Session, path string, sequential bool) (in func(*Session) *Session, drop func(), err error) {
	return s.keepRoom(path, sequential)
}

func (forEngine) SessionFull(err error) bool { return errors.Is(err, errSessionFull) }

func (forEngine) CloseEarlier(ctx context.Context, c *Client, id int64) (ours bool, err error) {
	return c.core().closeEarlier(ctx, id)
}

func (forEngine) LookForStrays(s *Session, dir, name string) (left <-chan struct{}, err error) {
	return s.scope().lookForStrays(context.Background(), dir, name)
}

func (forEngine) GetAndWatch(s *Session, path string) (data []byte, stat *zk.Stat, changed <-chan struct{}, resume func() (<-chan struct{}, bool), err error) {
	return s.getAndWatch(path)
}

func (forEngine) Arm(ctx context.Context, s *Session, paths ...string) ([]seam.Armed, error) {
	return s.arm(ctx, paths)
}

func (forEngine) AtOnce(s *Session) *Session {
	return &Session{live: s.live, root: s.root, atOnce: true, allowance: s.allowance}
}

func (forEngine) Endless(s *Session) *Session {
	return &Session{live: s.live, root: s.root, endless: true, allowance: s.allowance}
}

func (forEngine) Events(s *Session, path string, on func(order uint64, what zk.EventType, path string), relies func(path string) bool) (stop func(), err error) {
	return s.events(path, on, relies)
}

func (forEngine) ReadAllAndWatch(ctx context.Context, s *Session, root string, reads ...request.Read) ([]request.Result, error) {
	return s.readAllAndWatch(ctx, root, reads)
}

func (forEngine) StatAll(ctx context.Context, s *Session, reads ...request.Read) ([]request.Result, error) {
	return s.scope().statAll(ctx, reads)
}

func (forEngine) SetWatches(ctx context.Context, s *Session, since int64, reads ...request.Read) (zxid int64, order uint64, unset []request.Read, err error) {
	return s.setWatchesAgain(ctx, since, reads)
}

func (forEngine) Unwatch(s *Session, reads ...request.Read) { s.unwatchAll(reads) }

func (forEngine) SetUnique(ctx context.Context, c *Client, path string, data []byte) error {
	w := c.scope()
	w.unique = true
	_, err := w.set(ctx, path, data, anyVersion)
	return err
}

func (forEngine) Budget(c *Client) backoff.BackOff { return c.core().cfg.retry() }

func (forEngine) Unsure(op, path string, err error) error {
	return &zkerr.Op{Op: op, Path: path, Err: err, Maybe: true}
}

func (forEngine) WantLeases(c *Client) bool { return c.core().observers.wantLeases() }

func (forEngine) Values(ctx context.Context, c *Client) context.Context {
	return c.core().observers.values(ctx)
}

func (forEngine) StartAcquire(ctx context.Context, c *Client, a Acquire) (during context.Context, end func(AcquireResult)) {
	return c.core().observers.startAcquire(ctx, a)
}

func (forEngine) Released(ctx context.Context, c *Client, r Release) {
	c.core().observers.released(ctx, r)
}

func (forEngine) LostReleased(ctx context.Context, c *Client, l Loss) {
	c.core().observers.lostReleased(ctx, l)
}

func (forEngine) Overran(ctx context.Context, c *Client, o Overrun) {
	c.core().observers.overran(ctx, o)
}

func (forEngine) Lost(ctx context.Context, c *Client, l Loss) { c.core().observers.lost(ctx, l) }

func (forEngine) Revoked(ctx context.Context, c *Client, r Revocation) {
	c.core().observers.revoked(ctx, r)
}

func (forEngine) PresenceChanged(c *Client, change PresenceChange) {
	k := c.core()
	change.Timeout = k.cfg.sessionTimeout
	if s, err := c.Session(); err == nil {
		change.Timeout = s.Timeout()
	}
	k.observers.presenceChanged(change)
}

func (forEngine) CacheChanged(c *Client, change CacheChange) {
	c.core().observers.cacheChanged(change)
}

func (forEngine) WantReads(c *Client) bool { return c.core().observers.wantReads() }

func (forEngine) CacheRead(c *Client, r CacheRead) { c.core().observers.cacheRead(r) }

func (c *Client) attach(key any, newValue func() any) any {
	k := c.core()
	k.mu.Lock()
	value, ok := k.attached[key]
	k.mu.Unlock()
	if ok || newValue == nil {
		return value
	}
	made := newValue() // without the mutex: the function is the caller's, and may take its time
	k.mu.Lock()
	defer k.mu.Unlock()
	if value, ok = k.attached[key]; !ok {
		k.attached[key], value = made, made
	}
	return value
}
