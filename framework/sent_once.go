package framework

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// This file sends a caller's Set and SetACL at any version, and Create, once. A
// second execution would undo what others have done since the first: it would
// overwrite their data, or bring a znode back that they have deleted.
//
// After an unknown outcome the znode is read behind a sync. The write has
// succeeded
//
//   - if it is a Set, the data are its own, and they were written later than
//     all that the session had seen when the Set was sent;
//   - if it is a SetACL, and the ACL is its own: nothing dates that;
//   - if it is a Create, and the znode is an ephemeral one of its session that
//     is later and has its data, and no other create can have made it: see
//     openCreates. Any other znode may be another client's, however equal,
//     and both clients would take it for their own.
//
// Otherwise the error is one with MaybeApplied, and says what exists.

// anyVersion is the version that matches each.
const anyVersion = -1

// atVersion returns what may be done after a try to write at a version. Any
// version but -1 is another one once a try was executed.
func (w scope) atVersion(version int32) idempotence {
	return idempotence(version != anyVersion || w.unique)
}

// isLost reports whether err is of a request that was perhaps sent, and has no
// answer.
func isLost(err error) bool {
	return err != nil && (isDetached(err) || zkerr.Classify(err) == zkerr.Ambiguous)
}

// lookFor looks for a write that was sent once, and whose answer was lost. It
// reads the znode. judge gets the result, whose stat is nil if there is no
// znode, and the session that it was read in. It returns nil if that shows that
// the write was executed, and what exists otherwise.
func (w scope) lookFor(ctx context.Context, a *attempt, path string, lost error, read func(conn *zk.Conn, full string) (node, error), judge func(node, *session) error) (*zk.Stat, error) {
	a.unsure = true
	if isDetached(lost) && (ctx.Err() != nil || w.in != nil || w.core.isClosing()) {
		return nil, lost
	}
	w.budget = a.budget
	full := w.root.Fix(path)
	var found node
	var in *session
	err := w.do(ctx, request.NameGet, path, repeatable, func(a *attempt) (err error) {
		in = a.session
		if err = in.sync(ctx, full); err != nil {
			return err
		}
		found, err = call(ctx, in, Request{Op: request.NameGet, Path: full}, func(conn *zk.Conn) (node, error) { return read(conn, full) }, nil)
		if errors.Is(err, zk.ErrNoNode) {
			found, err = node{}, nil
		}
		return err
	})
	lost = zkerr.WithMeaning(lost)
	if err != nil {
		return nil, fmt.Errorf("%w; the look for its result has failed: %w", lost, errors.Unwrap(err))
	}
	if exists := judge(found, in); exists != nil {
		return nil, fmt.Errorf("%w; after a sync: %w", lost, exists)
	}
	return found.stat, nil
}

func (s *session) sync(ctx context.Context, full string) error {
	_, err := call(ctx, s, Request{Op: request.NameSync, Path: full}, func(conn *zk.Conn) (string, error) { return conn.Sync(full) }, nil)
	return err
}

func readData(conn *zk.Conn, full string) (n node, err error) {
	n.data, n.stat, err = conn.Get(full)
	return n, err
}

func readACL(conn *zk.Conn, full string) (n node, err error) {
	n.acl, n.stat, err = conn.GetACL(full)
	return n, err
}

func (w scope) set(ctx context.Context, path string, data []byte, version int32) (*zk.Stat, error) {
	again := w.atVersion(version)
	return requestAt(ctx, w, request.NameSet, path, request.BlobSize(data)+request.Int32Size, again, func(conn *zk.Conn, full string) (*zk.Stat, error) {
		return conn.Set(full, data, version)
	}, func(a *attempt, stat *zk.Stat, err error) (*zk.Stat, error) {
		if again == repeatable || !isLost(err) {
			return stat, err
		}
		return w.lookFor(ctx, a, path, err, readData, func(n node, _ *session) error {
			switch {
			case n.stat == nil:
				return zk.ErrNoNode
			case !bytes.Equal(n.data, data):
				return errors.New("the znode has other data")
			case n.stat.Mzxid <= a.seen:
				return errors.New("the znode has had these data before")
			}
			return nil
		})
	})
}

func (w scope) setACL(ctx context.Context, path string, acl []zk.ACL, version int32) (*zk.Stat, error) {
	again := w.atVersion(version)
	return requestAt(ctx, w, request.NameSetACL, path, request.ACLSize(acl)+request.Int32Size, again, func(conn *zk.Conn, full string) (*zk.Stat, error) {
		return conn.SetACL(full, acl, version)
	}, func(a *attempt, stat *zk.Stat, err error) (*zk.Stat, error) {
		if again == repeatable || !isLost(err) {
			return stat, err
		}
		return w.lookFor(ctx, a, path, err, readACL, func(n node, _ *session) error {
			switch {
			case n.stat == nil:
				return zk.ErrNoNode
			case !slices.Equal(n.acl, acl):
				return errors.New("the znode has another ACL")
			}
			return nil
		})
	})
}

// createOnce creates a znode by calling send at most once. size is that of the
// request without the path.
func (w scope) createOnce(ctx context.Context, path string, data []byte, flags int32, size int, send func(conn *zk.Conn, full string) (string, error)) (string, error) {
	full, err := w.fit(request.NameCreate, path, flags, size)
	if err != nil {
		return "", err
	}
	w, claim, err := w.claim(ctx, request.NameCreate, path, &zk.CreateRequest{Path: full, Flags: flags})
	if err != nil {
		return "", err
	}
	made, err := withChroot(ctx, w, func(w scope) (made string, err error) {
		err = w.do(ctx, request.NameCreate, path, onceOnly, func(a *attempt) error {
			end := a.session.creates.begin(ephemeralAt(full, flags)...)
			a.seen = a.session.latestSeen() // another create that was answered since begin is known to be another one
			claim.tryIn(a.session)
			made, err = call(ctx, a.session, Request{Op: request.NameCreate, Path: full}, func(conn *zk.Conn) (string, error) {
				made, err := send(conn, full)
				end(err)
				return made, err
			}, nil)
			if !isDetached(err) {
				end(err) // also if nothing was sent
			}
			if request.IsSequential(flags) || !isLost(err) {
				return err
			}
			made = full
			_, err = w.lookFor(ctx, a, path, err, readData, func(n node, in *session) error {
				if a.made(n, in, full, flags) && bytes.Equal(n.data, data) {
					return nil
				}
				return whatExists(n, data, in)
			})
			return err
		})
		return made, w.nameMissingRoot(ctx, err)
	})
	claim.settle(err, made)
	if err != nil {
		return "", err
	}
	return w.root.Unfix(made), nil
}

// made reports whether the znode n, which was read in a session, can only have
// been made by the create of this try.
func (a *attempt) made(n node, in *session, full string, flags int32) bool {
	if ephemeralAt(full, flags) == nil {
		return false
	}
	several := a.session.creates.resolve(full)
	return !several && in == a.session && n.stat != nil && n.stat.EphemeralOwner == in.sessionID() && n.stat.Czxid > a.seen
}

// whatExists says what was found instead of the znode that was to have data.
func whatExists(n node, data []byte, in *session) error {
	switch {
	case n.stat == nil:
		return errors.New("no znode exists")
	case n.stat.EphemeralOwner != 0 && n.stat.EphemeralOwner != in.sessionID():
		return fmt.Errorf("%w: of session %s", zk.ErrNodeExists, wire.SessionText(n.stat.EphemeralOwner))
	case !bytes.Equal(n.data, data):
		return fmt.Errorf("%w: with other data", zk.ErrNodeExists)
	}
	return fmt.Errorf("%w: an equal one", zk.ErrNodeExists)
}
