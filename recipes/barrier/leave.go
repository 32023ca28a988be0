package barrier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/turns"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recheck"
)

// ErrGone is returned by Leave when the member's znode was gone before: its
// session had ended, or somebody has deleted it. The others did not wait for
// this member.
var ErrGone = errors.New("the member was not in the round until its end")

// Inside is a member of a round. Enter returns one; the zero Inside fails.
type Inside struct {
	double *Double
	sess   *managed.Session
	path   string // of its znode
	name   string
	begun  chan struct{} // has room for one: whoever fills it leaves
	over   chan struct{} // closed: err is set
	err    error
	left   bool        // Leave has deleted the znode, or may have
	again  turns.Turns // that Leave looked again and has not waited

	entered time.Time
}

func newInside(d *Double, sess *managed.Session, path string) *Inside {
	_, name := layout.Split(path)
	return &Inside{double: d, sess: sess, path: path, name: name, begun: make(chan struct{}, 1), over: make(chan struct{})}
}

// Leave returns nil when all members have left that were there when it was
// called. One that dies counts as left when its session ends. Then the barrier
// can be used again at once.
//
// It fails with ErrGone if the member's znode is gone, and with an error that
// wraps framework.ErrSessionLost if its session has ended. It also fails when
// ctx ends, and when no server answers until a budget of the client's retry
// policy is used up. Then the znode is removed in the background: the others do
// not wait for this member. A member leaves once: a later call returns what the
// first has returned.
//
// Leave costs a list, a delete, a watch on one other member and a list when
// that has left; for the last member, which waits for all others, a watch and a
// list for each of them. That makes about n events and n lists for the one, and
// as many for all others together. If ctx ends, the watch is given up: see
// framework.Session.Unwatch.
func (in *Inside) Leave(ctx context.Context) error {
	if in == nil || in.double == nil {
		return errZero
	}
	select {
	case in.begun <- struct{}{}:
		began := time.Now()
		if in.err = in.leave(ctx); in.err != nil {
			if over := in.sess.Err(); over != nil && !in.left {
				in.err = fmt.Errorf("%w: %w", ErrGone, over)
			}
			in.sess.Discard(in.path)
			in.err = failed(ctx, "leave", in.double.path, in.err)
		}
		in.observeExit(began)
		close(in.over)
		return in.err
	case <-in.over:
		return in.err
	default:
	}
	select {
	case <-in.over:
		return in.err
	case <-ctx.Done():
		return failed(ctx, "leave", in.double.path, ctxerr.Of(ctx))
	}
}

// leave removes the znode at once, unless the member is the last one: see
// lastOf. That one stays until all others have left. In a round of this library
// it is older than ready, so ready is valid until the end, and who comes
// meanwhile is late. It deletes ready and its own znode at once, so nobody ever
// sees a ready that a round has left behind on its normal way.
//
// A member of Kazoo deletes ready first. Then those who come are members of the
// next round, and nobody waits for them. A member that was late can find itself
// without ready as well: the round has ended while it came.
func (in *Inside) leave(ctx context.Context) error {
	d := in.double
	var others []string // that are waited for
	for first := true; ; first = false {
		if !first {
			in.again.Pause(ctx, in.sess.Done())
		}
		names, err := d.list(ctx, in.sess)
		if err != nil {
			return err
		}
		if !slices.Contains(names, in.name) {
			if in.left {
				return in.await(ctx, others, names)
			}
			return fmt.Errorf("%w: its znode was deleted", ErrGone)
		}
		all := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == readyName || sameMember(name, in.name) })
		open := slices.Contains(names, readyName)
		if open || first && !isLate(in.name) {
			if others, err = d.withoutOthers(ctx, in.sess, all); err != nil {
				return err
			}
		} else {
			others = both(others, all)
		}
		stays := !isLate(in.name) && lastOf(append(membersIn(others), in.name)) == in.name
		if stays && len(others) > 0 {
			if err := in.awaitChange(ctx, slices.Max(others)); err != nil { // neighbors wait for the highest name as well
				return err
			}
			continue
		}
		ops := []any{&zk.DeleteRequest{Path: in.path, Version: -1}}
		if stays && open {
			ops = append(ops, &zk.DeleteRequest{Path: d.ready, Version: -1})
		}
		in.left = true
		_, err = in.sess.Multi(ctx, ops...)
		switch {
		case err == nil && stays:
			return nil
		case err == nil:
			return in.await(ctx, others, names)
		case errors.Is(err, zk.ErrNoNode), framework.MaybeApplied(err) && ctx.Err() == nil: // if the session is over, the list says so
		default:
			return err
		}
	}
}

// await returns when none of the others is there. names is the latest list.
func (in *Inside) await(ctx context.Context, others, names []string) (err error) {
	d := in.double
	for others = both(others, names); len(others) > 0; others = both(others, names) {
		last := others[0] // all of them are late
		if members := membersIn(others); len(members) > 0 {
			last = lastOf(members)
		}
		if err = in.awaitChange(ctx, last); err != nil {
			return err
		}
		in.again.Pause(ctx, in.sess.Done())
		if names, err = d.list(ctx, in.sess); err != nil {
			return err
		}
	}
	if slices.Contains(names, readyName) { // the one that stays has died, or is Curator's
		return d.sweep(ctx, in.sess)
	}
	return nil
}

// awaitChange returns when a member may have left.
func (in *Inside) awaitChange(ctx context.Context, name string) error {
	path := layout.Join(in.double.path, name)
	changed, err := in.sess.Watch(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.sess.Unwatch(changed)
	in.again = turns.Turns{}
	var patience recheck.Patience
	return recheck.Wait(ctx, in.sess, func() (bool, error) {
		if err := patience.Look(ctx, in.sess, path); err != nil {
			return false, err
		}
		return recheck.Gone(ctx, in.sess, path), nil
	}, changed)
}

// both returns the names that are in both lists.
func both(a, b []string) (all []string) {
	for _, name := range a {
		if slices.Contains(b, name) {
			all = append(all, name)
		}
	}
	return all
}
