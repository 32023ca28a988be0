package barrier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/missing"
	"github.com/zkrecipes/zkrecipes/internal/turns"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recheck"
)

// Double is a barrier for n members that begin together and end together. It
// has an ephemeral znode below path for each member, and path/ready while a
// round is open, as Curator's DistributedDoubleBarrier and Kazoo's
// DoubleBarrier have. It is safe for concurrent use: each Enter is one member.
// NewDouble returns one; the zero Double fails.
type Double struct {
	client *managed.Client
	path   string
	ready  string // its path
	n      int
	cfg    option.Shared
}

// NewDouble returns the double barrier at path, for rounds of n members. It
// makes no request. All who use the path must agree on n.
func NewDouble(client *framework.Client, path string, n int, opts ...Option) (*Double, error) {
	cfg, err := newConfig(client, path, opts)
	if err == nil && n < 1 {
		err = fmt.Errorf("n is %d, must be at least 1", n)
	}
	if err != nil {
		return nil, fmt.Errorf("barrier: new double: %w", err)
	}
	return &Double{(*managed.Client)(client), path, layout.Join(path, readyName), n, cfg}, nil
}

// errAgain says that Enter has to begin again in the same session.
var errAgain = errors.New("begin again")

// Enter returns when n members are there, or at once if a round is open. Then
// call Leave.
//
// The round is opened by a transaction that checks the znodes of n members: all
// of them stood at one instant. A member that comes while the round is open
// enters as well. A ready that an earlier round has left behind is removed.
//
// Enter fails when ctx ends, and when no server answers until a budget of the
// client's retry policy is used up. Then it removes the member's znode, and
// returns when that is gone, or after a fifth of the session timeout. If no
// server answers, the znode is removed later, by the end of the session at the
// latest, and counts for others until then. If the session is lost while Enter
// waits, it enters again in the next one, as soon as the lost one is known to
// be closed.
//
// It costs four requests: a watch, a read, a create with a list, and the
// removal of the watch; one more for whoever opens the round, and four more to
// remove a ready that was left behind. A member that waits looks about once per
// session timeout, in case an event was lost.
func (d *Double) Enter(ctx context.Context) (*Inside, error) {
	if d == nil || d.client == nil {
		return nil, errZero
	}
	began := time.Now()
	in, err := d.enter(ctx)
	if in != nil {
		in.entered = time.Now()
	}
	d.observeEntry(began, in, err)
	return in, err
}

func (d *Double) enter(ctx context.Context) (*Inside, error) {
	e := &entry{tag: newTag()}
	var tried int64 // the session in which it has tried to enter
	for again := (turns.Turns{}); ; again.Pause(ctx, d.client.Done()) {
		sess, err := d.client.AwaitSession(ctx)
		if err == nil && tried != 0 && tried != sess.ID() {
			err = d.awaitClosed(ctx, sess, tried)
		}
		if err == nil {
			tried = sess.ID()
			var in *Inside
			if in, err = d.enterIn(ctx, sess, e); err == nil {
				return in, nil
			}
		}
		begins := errors.Is(err, errAgain) || sess != nil && sess.Err() != nil
		if !begins || ctx.Err() != nil {
			return nil, failed(ctx, "enter", d.path, err)
		}
	}
}

// awaitClosed returns when an earlier session of the client is known to be gone
// with its znodes. Otherwise the member could count itself twice: the client
// may give a session up before the ensemble does.
func (d *Double) awaitClosed(ctx context.Context, sess *managed.Session, earlier int64) error {
	var patience recheck.Patience
	look := func() (bool, error) {
		if _, err := d.client.CloseEarlier(ctx, earlier); err == nil {
			return true, nil
		}
		return false, patience.Look(ctx, sess, d.path)
	}
	if closed, err := look(); closed || err != nil {
		return err
	}
	return recheck.Wait(ctx, sess, look)
}

// entry is what one Enter keeps from try to try.
type entry struct {
	tag  string
	gone missing.Directory
}

// enterIn tries to enter once.
func (d *Double) enterIn(ctx context.Context, sess *managed.Session, e *entry) (in *Inside, err error) {
	b := newBell(sess, d.ready)
	defer func() { b.stop() }()
	if _, err := b.arm(ctx); err != nil {
		return nil, err
	}
	own, names, err := d.joinPatiently(ctx, sess, e)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = withdraw(ctx, sess, own, err)
		}
	}()
	in = newInside(d, sess, own)
	if isLate(in.name) {
		return in, nil
	}
	var patience recheck.Patience
	for again := (turns.Turns{}); ; again.Pause(ctx, sess.Done()) {
		listed := names
		if names = nil; listed == nil {
			if listed, err = d.list(ctx, sess); err != nil {
				return nil, err
			}
		}
		if !slices.Contains(listed, in.name) {
			return nil, errAgain // somebody has removed it
		}
		if slices.Contains(listed, readyName) {
			if valid, err := d.isOlder(ctx, sess, own); valid || err != nil {
				return in, err
			}
			continue
		}
		b.await()
		members := distinct(in.name, membersIn(listed))
		if len(members) >= d.n {
			if members, err = d.withoutOthers(ctx, sess, members); err != nil {
				return nil, err
			}
		}
		if len(members) >= d.n {
			opened, err := d.open(ctx, sess, members[:d.n])
			if opened || err != nil {
				return in, err
			}
			continue
		}
		anew, err := b.arm(ctx)
		if err != nil {
			return nil, err
		}
		if anew {
			continue
		}
		err = recheck.Wait(ctx, sess, func() (bool, error) { return true, patience.Look(ctx, sess, d.path) }, b.rung, b.over)
		if closed.Is(b.rung) {
			return in, nil
		}
		if err != nil {
			return nil, err
		}
		again = turns.Turns{}
	}
}

// withdraw removes the znode of a member that does not enter because of why,
// and returns why. It waits for that, so that another Enter, of whatever
// process, does not count it. A member that begins again would count it itself,
// so it waits until the znode is gone; if it cannot, it returns another error.
func withdraw(ctx context.Context, sess *managed.Session, path string, why error) error {
	gone := sess.Discard(path)
	if errors.Is(why, errAgain) {
		var patience recheck.Patience
		err := recheck.Wait(ctx, sess, func() (bool, error) { return false, patience.Look(ctx, sess, path) }, gone)
		if err == nil {
			return why
		}
		why = err
	}
	if sess.Connected() {
		select {
		case <-gone:
		case <-time.After(sess.Timeout() / 10):
		}
	}
	return why
}

// joinPatiently joins. If ctx ends while the create is on its way it waits for
// the answer, so that the znode can be withdrawn before Enter returns. After a
// tenth of the session timeout it fails, and the znode is removed later.
func (d *Double) joinPatiently(ctx context.Context, sess *managed.Session, e *entry) (own string, names []string, err error) {
	type result struct {
		own   string
		names []string
		err   error
	}
	results, left := make(chan result), make(chan struct{})
	during, stop := context.WithCancel(ctx)
	go func() {
		defer stop()
		own, names, err := d.join(during, sess.Unhurried(), e)
		select {
		case results <- result{own, names, err}:
		case <-left:
			if err == nil {
				sess.Discard(own)
			}
		}
	}()
	var late <-chan time.Time
	for ended := ctx.Done(); ; {
		select {
		case r := <-results:
			return r.own, r.names, r.err
		case <-ended:
			ended, late = nil, time.After(sess.Timeout()/10)
		case <-late:
			close(left)
			return "", nil, ctx.Err()
		}
	}
}

// join creates the member's znode, and returns its path. names is a list of the
// directory that was made later, nil if there is none.
//
// If a round is open the member is late. Its create is one transaction with
// checks of ready and of an older member, so the round was open at that
// instant. Otherwise there was no ready shortly before, and the list shows
// whether one was created in between: then the znode is removed, and the member
// is late. A ready that was left behind is deleted in the transaction that
// creates the znode.
func (d *Double) join(ctx context.Context, sess *managed.Session, e *entry) (own string, names []string, err error) {
	ready, older, err := d.judge(ctx, sess)
	if err != nil {
		return "", nil, err
	}
	name := memberName + e.tag + "-"
	if ready == nil {
		made, err := sess.CreateProtected(ctx, d.path, name, d.cfg.Data, zk.FlagEphemeralSequential, d.cfg.ACL...)
		if errors.Is(err, zk.ErrNoNode) {
			err = e.gone.Make(d.path, err, func() error { return sess.MakeDirectory(ctx, d.path) })
			if err == nil {
				err = errAgain
			}
		} else if err == nil {
			d.client.Filled(d.path)
		}
		return made.Path, made.Children, err
	}
	b := managed.ProtectedBatch{Dir: d.path, Name: name, N: 1, Data: d.cfg.Data, Flags: zk.FlagEphemeralSequential, ACL: d.cfg.ACL}
	if older != "" {
		b.Name, b.Flags = lateName, zk.FlagEphemeral
		for _, path := range []string{d.ready, layout.Join(d.path, older)} {
			b.Before = append(b.Before, &zk.CheckVersionRequest{Path: path, Version: -1})
		}
	} else {
		remove, err := d.remover(ctx, sess, ready)
		if err != nil {
			return "", nil, err
		}
		b.Before = []any{remove}
	}
	paths, _, err := sess.CreateAllProtected(ctx, b)
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrBadVersion) {
		err = errAgain // it has changed since it was judged
	}
	if err != nil {
		return "", nil, err
	}
	return paths[0], nil, nil
}

// isOlder reports whether a member's znode is not younger than ready. If it is
// younger, it fails with errAgain: ready was created between a look and the
// znode. If one of them is gone it reports false.
func (d *Double) isOlder(ctx context.Context, sess *managed.Session, own string) (bool, error) {
	found, ready, err := sess.Exists(ctx, d.ready)
	if err != nil || !found {
		return false, err
	}
	found, member, err := sess.Exists(ctx, own)
	switch {
	case err != nil || !found:
		return false, err
	case member.Czxid > ready.Czxid:
		return false, errAgain
	}
	return true, nil
}

// open creates ready, if n members are there: the transaction checks them all.
// It cannot be executed late, when they have left. It reports whether a round
// is open that the first of the members belongs to. If not, look again.
func (d *Double) open(ctx context.Context, sess *managed.Session, members []string) (opened bool, err error) {
	var ops []any
	for _, name := range members {
		ops = append(ops, &zk.CheckVersionRequest{Path: layout.Join(d.path, name), Version: -1})
	}
	_, err = sess.Multi(ctx, append(ops, &zk.CreateRequest{Path: d.ready})...)
	switch {
	case err == nil, errors.Is(err, zk.ErrNodeExists): // the checks come first: own is there, and older than ready
		return true, nil
	case errors.Is(err, zk.ErrNoNode), framework.MaybeApplied(err) && ctx.Err() == nil && sess.Err() == nil:
		return false, nil
	}
	return false, err
}
