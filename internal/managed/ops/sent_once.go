package ops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/ephemerals"
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
//     Session of package ephemerals. Any other znode may be another client's,
//     however equal, and both clients would take it for their own.
//
// Otherwise the error is one with MaybeApplied, and says what exists.

// anyVersion is the version that matches each.
const anyVersion = -1

// atVersion returns what may be done after a try to write at a version. Any
// version but -1 is another one once a try was executed.
func (w Scope) atVersion(version int32) Idempotence {
	return Idempotence(version != anyVersion || w.unique)
}

// lookFor looks for a write that was sent once, and whose answer was lost. It
// reads the znode. judge gets the result, whose stat is nil if there is no
// znode, and the session that it was read in. It returns nil if that shows that
// the write was executed, and what exists otherwise.
func (w Scope) lookFor(ctx context.Context, a *Attempt, path string, lost error, read func(conn *zk.Conn, full string) (Node, error), judge func(Node, *Session) error) (*zk.Stat, error) {
	a.Unsure = true
	if IsDetached(lost) && (ctx.Err() != nil || w.In != nil || w.Client.isClosing()) {
		return nil, lost
	}
	w.Budget = a.Budget
	full := w.Root.Fix(path)
	var found Node
	var in *Session
	err := w.Do(ctx, request.NameGet, path, Repeatable, func(a *Attempt) (err error) {
		in = a.Session
		if err = in.sync(ctx, full); err != nil {
			return err
		}
		found, err = Call(ctx, in, Request{Op: request.NameGet, Path: full}, func(conn *zk.Conn) (Node, error) { return read(conn, full) }, nil)
		if errors.Is(err, zk.ErrNoNode) {
			found, err = Node{}, nil
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
	return found.Stat, nil
}

func readData(conn *zk.Conn, full string) (n Node, err error) {
	n.Data, n.Stat, err = conn.Get(full)
	return n, err
}

func readACL(conn *zk.Conn, full string) (n Node, err error) {
	n.acl, n.Stat, err = conn.GetACL(full)
	return n, err
}

// SetUnique is set at any version of a znode whose path never names another
// one. It is repeated after an unknown outcome.
func (w Scope) SetUnique(ctx context.Context, path string, data []byte) error {
	w.unique = true
	_, err := w.Set(ctx, path, data, anyVersion)
	return err
}

// Set is framework.Client.Set. At any version it is sent once.
func (w Scope) Set(ctx context.Context, path string, data []byte, version int32) (*zk.Stat, error) {
	again := w.atVersion(version)
	return requestAt(ctx, w, request.NameSet, path, request.BlobSize(data)+request.Int32Size, again, func(conn *zk.Conn, full string) (*zk.Stat, error) {
		return conn.Set(full, data, version)
	}, func(a *Attempt, stat *zk.Stat, err error) (*zk.Stat, error) {
		if again == Repeatable || !IsLost(err) {
			return stat, err
		}
		return w.lookFor(ctx, a, path, err, readData, func(n Node, _ *Session) error {
			switch {
			case n.Stat == nil:
				return zk.ErrNoNode
			case !bytes.Equal(n.Data, data):
				return errors.New("the znode has other data")
			case n.Stat.Mzxid <= a.Seen:
				return errors.New("the znode has had these data before")
			}
			return nil
		})
	})
}

// SetACL is framework.Client.SetACL. At any version it is sent once.
func (w Scope) SetACL(ctx context.Context, path string, acl []zk.ACL, version int32) (*zk.Stat, error) {
	again := w.atVersion(version)
	return requestAt(ctx, w, request.NameSetACL, path, request.ACLSize(acl)+request.Int32Size, again, func(conn *zk.Conn, full string) (*zk.Stat, error) {
		return conn.SetACL(full, acl, version)
	}, func(a *Attempt, stat *zk.Stat, err error) (*zk.Stat, error) {
		if again == Repeatable || !IsLost(err) {
			return stat, err
		}
		return w.lookFor(ctx, a, path, err, readACL, func(n Node, _ *Session) error {
			switch {
			case n.Stat == nil:
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
func (w Scope) createOnce(ctx context.Context, path string, data []byte, flags int32, size int, send func(conn *zk.Conn, full string) (string, error)) (string, error) {
	full, err := w.fit(request.NameCreate, path, flags, size)
	if err != nil {
		return "", err
	}
	w, claim, err := w.claim(ctx, request.NameCreate, path, &zk.CreateRequest{Path: full, Flags: flags})
	if err != nil {
		return "", err
	}
	made, err := withChroot(ctx, w, func(w Scope) (made string, err error) {
		err = w.Do(ctx, request.NameCreate, path, OnceOnly, func(a *Attempt) error {
			end := a.Session.Ephemerals.Begin(ephemerals.Fixed(full, flags)...)
			a.Seen = a.Session.Chain().Seen() // another create that was answered since begin is known to be another one
			claim.TryIn(&a.Session.Ephemerals)
			made, err = Call(ctx, a.Session, Request{Op: request.NameCreate, Path: full}, func(conn *zk.Conn) (string, error) {
				made, err := send(conn, full)
				end(IsLost(err))
				return made, err
			}, nil)
			if !IsDetached(err) {
				end(IsLost(err)) // also if nothing was sent
			}
			if request.IsSequential(flags) || !IsLost(err) {
				return err
			}
			made = full
			_, err = w.lookFor(ctx, a, path, err, readData, func(n Node, in *Session) error {
				if a.made(n, in, full, flags) && bytes.Equal(n.Data, data) {
					return nil
				}
				return whatExists(n, data, in)
			})
			return err
		})
		return made, w.NameMissingRoot(ctx, err)
	})
	claim.Settle(err, made)
	if err != nil {
		return "", err
	}
	return w.Root.Unfix(made), nil
}

// made reports whether the znode n, which was read in a session, can only have
// been made by the create of this try.
func (a *Attempt) made(n Node, in *Session, full string, flags int32) bool {
	if ephemerals.Fixed(full, flags) == nil {
		return false
	}
	several := a.Session.Ephemerals.Resolve(full)
	return !several && in == a.Session && n.Stat != nil && n.Stat.EphemeralOwner == in.Chain().ID() && n.Stat.Czxid > a.Seen
}

// whatExists says what was found instead of the znode that was to have data.
func whatExists(n Node, data []byte, in *Session) error {
	switch {
	case n.Stat == nil:
		return errors.New("no znode exists")
	case n.Stat.EphemeralOwner != 0 && n.Stat.EphemeralOwner != in.Chain().ID():
		return fmt.Errorf("%w: of session %s", zk.ErrNodeExists, wire.SessionText(n.Stat.EphemeralOwner))
	case !bytes.Equal(n.Data, data):
		return fmt.Errorf("%w: with other data", zk.ErrNodeExists)
	}
	return fmt.Errorf("%w: an equal one", zk.ErrNodeExists)
}
