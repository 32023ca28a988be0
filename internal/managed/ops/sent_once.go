package ops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/ephemerals"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// This file sends a caller's Create, Set and SetACL at any version, and Multi,
// once. A second execution would undo what others have done since the first: it
// would overwrite their data, or bring a znode back that they have deleted.
//
// After an unknown outcome of a Multi nobody knows. Otherwise the znode is read
// behind a sync. The write has succeeded
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

// AnyVersion is the version that matches each.
const AnyVersion = -1

// atVersion returns what may be done after a try to write at a version. Any
// version but -1 is another one once a try was executed.
func (w Scope) atVersion(version int32) Idempotence {
	return Idempotence(version != AnyVersion || w.unique)
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
		if err = in.Sync(ctx, full); err != nil {
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

// SetUnique is set at any version of a znode whose path never names another
// one. It is repeated after an unknown outcome.
func (w Scope) SetUnique(ctx context.Context, path string, data []byte) error {
	w.unique = true
	_, err := w.Set(ctx, path, data, AnyVersion)
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

// Create is framework.Client.Create, once: see sent_once.go.
func (w Scope) Create(ctx context.Context, path string, data []byte, flags int32, acl []zk.ACL) (string, error) {
	if len(acl) == 0 {
		acl = w.Client.Config.ACL
	}
	return w.createOnce(ctx, path, data, flags, request.CreateSize(data, acl), func(conn *zk.Conn, full string) (string, error) {
		if flags == zk.FlagContainer {
			return w.Client.createContainer(conn, full, data, acl)
		}
		return request.Create(conn, full, data, flags, acl)
	})
}

// longestTTL is the longest time to live that the protocol can express.
const longestTTL = time.Duration(wire.MaxTTL) * time.Millisecond

// CreateTTL is framework.Client.CreateTTL.
func (w Scope) CreateTTL(ctx context.Context, path string, data []byte, flags int32, ttl time.Duration, acl []zk.ACL) (string, error) {
	if ttl < time.Millisecond || ttl > longestTTL {
		return "", &zkerr.Op{Op: request.NameCreate, Path: path, Err: fmt.Errorf("time to live %v: must be from 1ms to %v", ttl, longestTTL)}
	}
	if len(acl) == 0 {
		acl = w.Client.Config.ACL
	}
	return w.createOnce(ctx, path, data, flags, request.CreateSize(data, acl)+request.Int64Size, func(conn *zk.Conn, full string) (string, error) {
		made, err := conn.CreateTTL(full, data, flags, acl, ttl)
		if err == nil {
			err = request.CheckMade(full, made, flags)
		}
		return made, err
	})
}

// createOnce creates a znode by calling send at most once. size is that of the
// request without the path.
func (w Scope) createOnce(ctx context.Context, path string, data []byte, flags int32, size int, send func(conn *zk.Conn, full string) (string, error)) (string, error) {
	full, err := w.fit(request.NameCreate, path, flags, size)
	if err != nil {
		return "", err
	}
	w, claim, err := w.Claim(ctx, request.NameCreate, path, &zk.CreateRequest{Path: full, Flags: flags})
	if err != nil {
		return "", err
	}
	made, err := WithChroot(ctx, w, func(w Scope) (made string, err error) {
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

// Multi is framework.Client.Multi: it is sent once.
func (w Scope) Multi(ctx context.Context, ops []any) ([]zk.MultiResponse, error) {
	full, err := w.FixOps(ops)
	if err != nil {
		return nil, &zkerr.Op{Op: request.NameMulti, Path: string(w.Root) + "/", Err: err}
	}
	w, claim, err := w.Claim(ctx, request.NameMulti, request.FirstPath(ops), full...)
	if err != nil {
		return nil, err
	}
	try := func(w Scope) ([]zk.MultiResponse, error) {
		var responses []zk.MultiResponse
		err := w.Do(ctx, request.NameMulti, request.FirstPath(ops), OnceOnly, func(a *Attempt) error {
			claim.TryIn(&a.Session.Ephemerals)
			var err error
			responses, err = Call(ctx, a.Session, Request{Op: request.NameMulti, Path: request.FirstPath(full), Operations: len(full)}, func(*zk.Conn) ([]zk.MultiResponse, error) {
				return a.Session.Multi(full)
			}, nil)
			return err
		})
		w.Root.UnfixMade(responses)
		return responses, w.NameMissingRoot(ctx, request.NameRefused(err, ops, responses))
	}
	var responses []zk.MultiResponse
	if slices.ContainsFunc(ops, func(op any) bool { return request.NameOf(op) == request.NameCreate }) {
		responses, err = WithChroot(ctx, w, try)
	} else {
		responses, err = try(w)
	}
	w.Client.Ephemerals.SettleMulti(claim, w.Root, full, responses, err)
	return responses, err
}

// FixOps returns a copy of the operations, with absolute paths. The caller's
// stay as they are, so that they can be used again.
func (w Scope) FixOps(ops []any) ([]any, error) {
	return request.FixAll(ops, w.Root, w.Client.Config.ACL, w.Client.Config.MaxRequest)
}

// Multi is request.Multi in this session, with its creates of ephemeral znodes
// noted.
func (s *Session) Multi(ops []any) ([]zk.MultiResponse, error) {
	var paths []string
	for _, op := range ops {
		if create, ok := op.(*zk.CreateRequest); ok {
			paths = append(paths, ephemerals.Fixed(create.Path, create.Flags)...)
		}
	}
	end := s.Ephemerals.Begin(paths...)
	responses, err := request.Multi(s.Conn(), ops)
	end(IsLost(err))
	return responses, err
}
