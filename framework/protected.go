package framework

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// A protected create has a random id in the znode's name. If its answer is
// lost, the znode is found again by that id. If its outcome stays unknown, or
// the caller has returned, the znode may still be created, late: it would be a
// stray. So its id is remembered for a while, and a znode with that id is
// deleted as soon as a list of the directory shows it: see strays.go.

// Created is the result of CreateProtected.
type Created struct {
	// Path is the path of the znode, in the session's namespace.
	Path string
	// Children are the names in the directory after the create, that of Path
	// among them, and Stat is the directory's stat, as of a time between the
	// create and the list. Both are nil when the list that was sent with the
	// create did not show the znode: list again.
	Children []string
	Stat     *zk.Stat
}

// CreateProtected creates dir/_c_<uuid>-name in protected mode, as Curator
// calls it: a lost answer neither creates the znode twice nor leaves it behind.
// It also lists dir. The list is sent right behind the create, and a session's
// requests are executed in order, so a list that shows the new znode was made
// after it was created. Both together cost one round trip. Creates that share a
// request share the lists as well, on servers since 3.6: to find that out costs
// what it costs Client.ReadAll.
//
// If the answer is lost, the znode is looked for by its id in the same session,
// and its owner is checked. If it is not there, the create is repeated with
// another id, within one budget of the retry policy.
//
// After an error the znode does not exist, or is deleted in the background as
// soon as it appears, as long as the session lives. zk.ErrNoNode means that dir
// is missing.
func (s *Session) CreateProtected(ctx context.Context, dir, name string, data []byte, flags int32, acl ...zk.ACL) (Created, error) {
	made, _, err := s.createProtected(ctx, dir, name, data, flags, acl, nil, "")
	return made, err
}

// createProtected is CreateProtected. Behind the list it makes the reads that
// also has. instead is the path of a znode whose delete has begun, or empty:
// see replace.go.
func (s *Session) createProtected(ctx context.Context, dir, name string, data []byte, flags int32, acl []zk.ACL, also []request.Read, instead string) (Created, made, error) {
	w := s.scope()
	unprotected := layout.Join(dir, name)
	if err := request.ValidatePath(unprotected); err != nil {
		return Created{}, made{}, &zkerr.Op{Op: request.NameCreate, Path: unprotected, Err: err}
	}
	if len(acl) == 0 {
		acl = w.core.cfg.acl
	}
	size := request.TextSize(w.root.Fix(unprotected)) + layout.ProtectionSize + request.CreateSize(data, acl)
	if err := w.core.cfg.fits(size); err != nil {
		return Created{}, made{}, &zkerr.Op{Op: request.NameCreate, Path: unprotected, Err: err}
	}
	full := make([]request.Read, len(also))
	for i, r := range also {
		full[i] = request.Read{Path: w.root.Fix(r.Path), Children: r.Children}
	}
	if instead != "" {
		instead = w.root.Fix(instead)
	}
	var found made
	err := w.do(ctx, request.NameCreate, dir, repeatable, func(a *attempt) (err error) {
		p := protectedCreate{session: s.session(), dir: w.root.Fix(dir), id: random.ID(), also: full, instead: instead, unhurried: s.unhurried, allowance: s.allowance}
		path := layout.Join(p.dir, layout.Protect(p.id, name))
		found, err = p.create(ctx, a, &zk.CreateRequest{Path: path, Data: data, Flags: flags, Acl: acl})
		return err
	})
	if err != nil {
		return Created{}, made{}, err
	}
	return Created{Path: w.root.Unfix(found.path), Children: found.names, Stat: found.stat}, found, nil
}

// protectedCreate is one try of a protected create.
type protectedCreate struct {
	session   *session
	dir, id   string
	also      []request.Read // see groupedWrite
	instead   string         // the same
	unhurried bool           // see Session.Unhurried
	allowance
}

func (p *protectedCreate) create(ctx context.Context, a *attempt, op *zk.CreateRequest) (made, error) {
	s := p.session
	write := newGroupedWrite(ctx, op)
	write.also, write.instead = p.also, p.instead
	patience := ctx
	if p.unhurried {
		patience = context.Background()
	}
	claim, err := s.core.ephemerals.claim(ctx, s, ephemeralSize(op), p.allowance)
	if err != nil {
		return made{}, err
	}
	found, err := detach(patience, s, func() (made, error) {
		s.writes.enqueue(write, false)
		found, err := s.writes.await(write)
		claim.settle(err, found.path)
		return found, err
	}, p.discardLate)
	if err == nil || isDetached(err) { // discardLate gets what is detached
		return found, err
	}
	if zkerr.Classify(err) == zkerr.Ambiguous {
		a.unsure = true // whatever the search for the znode finds
		if found, err = p.findAgain(ctx, op.Flags, err, a.budget); err != nil {
			return found, err // the claim stays unsure, also if the search has failed
		}
	}
	claim.settle(err, found.path)
	return found, err
}

// discardLate handles the answer to a create whose caller has returned.
func (p *protectedCreate) discardLate(late made, err error) {
	switch {
	case err == nil:
		p.session.discard(late.path)
	case zkerr.Classify(err) == zkerr.Ambiguous:
		p.session.expectStrays(p.dir, p.id)
	}
}

// findAgain looks for the znode of a create whose answer was lost with the
// error lost. If the znode is not there it returns that error, so that the
// create is retried.
func (p *protectedCreate) findAgain(ctx context.Context, flags int32, lost error, budget backoff.BackOff) (made, error) {
	found, err := p.find(ctx, flags, budget)
	if err == nil && found.path == "" {
		err = lost
	}
	if err != nil {
		p.session.expectStrays(p.dir, p.id)
		return made{}, err
	}
	return found, nil
}

// find looks for the znode by its id, once the session is connected again, and
// checks that it belongs to this session. If the connection ends meanwhile it
// goes on within the budget: others may count the znode already, so it is not
// given up for that.
func (p *protectedCreate) find(ctx context.Context, flags int32, budget backoff.BackOff) (made, error) {
	s := p.session
	w := scope{core: s.core, in: s, budget: budget}
	l, err := w.search(ctx, p.dir)
	if err != nil {
		return made{}, err
	}
	i := slices.IndexFunc(l.names, func(name string) bool { return idOf(name) == p.id })
	if i < 0 {
		return made{}, nil
	}
	path := layout.Join(p.dir, l.names[i])
	if isEphemeral(flags) {
		found, stat, err := w.exists(ctx, path)
		switch {
		case err != nil:
			return made{}, err
		case !found:
			return made{}, nil
		case stat.EphemeralOwner != s.sessionID():
			return made{}, fmt.Errorf("%w: the znode belongs to another session", zkerr.SessionLost)
		}
	}
	stat := *l.stat // others have the same list
	return made{path: path, listing: listing{slices.Clone(l.names), &stat}}, nil
}

// Pauses between the attempts to delete a znode that the session may not
// delete.
const (
	forbiddenPause        = 5 * time.Second
	longestForbiddenPause = time.Minute
)

// discard deletes a znode in the background, while the session lives. The
// channel it returns is closed when the znode is gone, or the session is over.
func (s *session) discard(full string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.over
	}
	if done, already := s.discarding[full]; already {
		return done
	}
	if s.discarding == nil {
		s.discarding = make(map[string]chan struct{})
	}
	done := make(chan struct{})
	s.discarding[full] = done
	s.core.tasks.Go(func() { // begun before the session is over: Close waits for it
		if !s.deleteUntilGone(full) {
			<-s.over // the client is closing: the session ends before Close waits
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.discarding, full)
		close(done)
	})
	return done
}

// deleteUntilGone retries to delete a znode until it is gone. It reports false
// if the session is over or the client closes first.
func (s *session) deleteUntilGone(full string) bool {
	w := scope{core: s.core, in: s, patient: true}
	for pause, logged := forbiddenPause, false; ; {
		err := w.leave(context.Background(), full, logged, false)
		if err == nil || errors.Is(err, zk.ErrNoNode) {
			return true
		}
		if errors.Is(err, zkerr.Closed) || s.Err() != nil {
			return false
		}
		rest := time.Second // the budget of the policy is used up: begin another
		if zkerr.Classify(errors.Unwrap(err)) == zkerr.Final {
			// Most likely an ACL. It may be corrected, and then the znode must
			// not stay for as long as this process lives.
			if !logged {
				s.core.cfg.log.Error("cannot remove a znode of this session, will try again", zap.String("znode", full),
					zap.String("session", wire.SessionText(s.sessionID())), zap.Error(err))
			}
			rest, pause, logged = pause, min(2*pause, longestForbiddenPause), true
		}
		if !s.rest(rest) {
			return false
		}
	}
}

// rest waits for d, and reports false when the session is over first.
func (s *session) rest(d time.Duration) bool {
	select {
	case <-s.over:
		return false
	case <-time.After(d):
		return true
	}
}

// idOf returns the id in the name of a protected znode, or "" if there is none.
func idOf(name string) string {
	id, _, _ := layout.CutProtection(name)
	return id
}
