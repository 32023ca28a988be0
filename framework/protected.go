package framework

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/layout"
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
	// among them, and Stat is the directory's stat in the same list. Both are
	// nil when the list that was sent with the create did not show the znode:
	// list again.
	Children []string
	Stat     *zk.Stat
}

// listing is an answer to a list of a directory.
type listing struct {
	names []string
	stat  *zk.Stat
}

// createAnswer is an answer to a create.
type createAnswer struct {
	path string
	err  error
}

// CreateProtected creates dir/_c_<uuid>-name in protected mode, as Curator
// calls it: a lost answer neither creates the znode twice nor leaves it behind.
// It also lists dir. The list is sent right behind the create, and a session's
// requests are executed in order, so a list that shows the new znode was made
// after it was created. Both together cost one round trip.
//
// If the answer is lost, the znode is looked for by its id in the same session,
// and its owner is checked. If it is not there, the create is repeated with
// another id, within one budget of the retry policy.
//
// After an error the znode does not exist, or is deleted in the background as
// soon as it appears, as long as the session lives. zk.ErrNoNode means that dir
// is missing.
func (s *Session) CreateProtected(ctx context.Context, dir, name string, data []byte, flags int32, acl ...zk.ACL) (Created, error) {
	w := s.scope()
	unprotected := layout.Join(dir, name)
	if err := ValidatePath(unprotected); err != nil {
		return Created{}, &opError{op: opNameCreate, path: unprotected, err: err}
	}
	if len(acl) == 0 {
		acl = w.core.cfg.acl
	}
	size := textSize(w.root.fix(unprotected)) + layout.ProtectionSize + createSize(data, acl)
	if err := w.core.cfg.fits(size); err != nil {
		return Created{}, &opError{op: opNameCreate, path: unprotected, err: err}
	}
	var made Created
	err := w.do(ctx, opNameCreate, dir, repeatable, func(a *attempt) error {
		p := protectedCreate{session: s.session(), dir: w.root.fix(dir), id: random.ID(), unhurried: s.unhurried}
		path := layout.Join(p.dir, layout.Protect(p.id, name))
		var err error
		made, err = p.create(ctx, a, path, data, flags, acl)
		return err
	})
	if err != nil {
		return Created{}, err
	}
	made.Path = w.root.unfix(made.Path)
	return made, nil
}

// protectedCreate is one try of a protected create.
type protectedCreate struct {
	session   *session
	dir, id   string
	unhurried bool          // see Session.Unhurried
	lists     chan listing  // one for each time the create was sent
	done      chan struct{} // closed: no list is needed any more
	sent      atomic.Int32  // how often the create was sent
}

func (p *protectedCreate) create(ctx context.Context, a *attempt, path string, data []byte, flags int32, acl []zk.ACL) (Created, error) {
	s := p.session
	p.lists, p.done = make(chan listing, mostSends), make(chan struct{})
	defer close(p.done)
	write := newGroupedWrite(ctx, &zk.CreateRequest{Path: path, Data: data, Acl: acl, Flags: flags}, func(on *link) { p.listBehind(ctx, on) })
	patience := ctx
	if p.unhurried {
		patience = context.Background()
	}
	answer, err := detach(patience, s, func() (createAnswer, error) {
		s.writes.enqueue(write, false)
		made, err := s.writes.await(write)
		return createAnswer{made, err}, err
	}, func(late createAnswer, _ error) { p.discardLate(late) })
	switch {
	case err == nil:
	case isDetached(err):
		return Created{}, err // discardLate gets the answer
	case classify(err) == ambiguous:
		a.unsure = true // whatever the search for the znode finds
		return p.findAgain(ctx, flags, err, a.budget)
	default:
		return Created{}, err
	}
	made := Created{Path: answer.path}
	_, own := layout.Split(made.Path)
	for range p.sent.Load() {
		select {
		case l := <-p.lists:
			s.discardStrays(p.dir, l.names)
			if slices.Contains(l.names, own) {
				made.Children, made.Stat = l.names, l.stat
				return made, nil
			}
		case <-ctx.Done():
			if p.unhurried {
				return made, nil
			}
			s.discard(made.Path)
			return Created{}, ctxerr.Of(ctx)
		case <-s.over:
			return Created{}, s.Err()
		}
	}
	return made, nil
}

// listBehind lists the directory, now that the create is sent on a connection.
func (p *protectedCreate) listBehind(ctx context.Context, on *link) {
	p.sent.Add(1)
	on.out.announce()
	go func() {
		var l listing
		select {
		case <-p.done:
			on.withdraw()
		default:
			var err error
			l, err = observed(ctx, p.session, Request{Op: opNameList, Path: p.dir}, func(conn *zk.Conn) (l listing, err error) {
				l.names, l.stat, err = conn.Children(p.dir)
				return l, err
			})
			if err != nil {
				on.withdraw() // it may not have been sent
				l = listing{}
			}
		}
		p.lists <- l
	}()
}

// discardLate handles the answer to a create whose caller has returned.
func (p *protectedCreate) discardLate(late createAnswer) {
	switch {
	case late.err == nil:
		p.session.discard(late.path)
	case classify(late.err) == ambiguous:
		p.session.expectStrays(p.dir, p.id)
	}
}

// findAgain looks for the znode of a create whose answer was lost with the
// error lost. If the znode is not there it returns that error, so that the
// create is retried.
func (p *protectedCreate) findAgain(ctx context.Context, flags int32, lost error, budget backoff.BackOff) (Created, error) {
	made, err := p.find(ctx, flags, budget)
	if err == nil && made.Path == "" {
		err = lost
	}
	if err != nil {
		p.session.expectStrays(p.dir, p.id)
		return Created{}, err
	}
	return made, nil
}

// find looks for the znode by its id, once the session is connected again, and
// checks that it belongs to this session. If the connection ends meanwhile it
// goes on within the budget: others may count the znode already, so it is not
// given up for that.
func (p *protectedCreate) find(ctx context.Context, flags int32, budget backoff.BackOff) (Created, error) {
	s := p.session
	w := scope{core: s.core, in: s, budget: budget}
	l, err := w.search(ctx, p.dir)
	if err != nil {
		return Created{}, err
	}
	i := slices.IndexFunc(l.names, func(name string) bool { return idOf(name) == p.id })
	if i < 0 {
		return Created{}, nil
	}
	path := layout.Join(p.dir, l.names[i])
	if flags&zk.FlagEphemeral != 0 && flags < zk.FlagContainer {
		found, stat, err := w.exists(ctx, path)
		switch {
		case err != nil:
			return Created{}, err
		case !found:
			return Created{}, nil
		case stat.EphemeralOwner != s.sessionID():
			return Created{}, fmt.Errorf("%w: the znode belongs to another session", ErrSessionLost)
		}
	}
	stat := *l.stat // others have the same list
	return Created{Path: path, Children: slices.Clone(l.names), Stat: &stat}, nil
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
		if errors.Is(err, ErrClosed) || s.Err() != nil {
			return false
		}
		rest := time.Second // the budget of the policy is used up: begin another
		if classify(errors.Unwrap(err)) == final {
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
