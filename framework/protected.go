package framework

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// A protected create carries a random id in the znode's name, by which it is
// found again when its answer is lost. One whose outcome stays unknown, or whose
// caller has left, is condemned: its id is remembered for a while, and any list
// that shows it has it removed, for it may arrive late on the same member: hunt.go.

// Created is the outcome of CreateProtected.
type Created struct {
	// Path is the znode's, in the session's namespace.
	Path string
	// Children lists the directory after the create, with Path's own name among
	// them, and Stat is the directory's stat in that very list. Both are nil when
	// the list that went out with the create did not show it: list again.
	Children []string
	Stat     *zk.Stat
}

// listing is an answer to a list of a directory.
type listing struct {
	names []string
	stat  *zk.Stat
}

// creation is an answer to a create.
type creation struct {
	path string
	err  error
}

// CreateProtected creates dir/_c_<uuid>-name in protected mode, and lists dir. The
// list follows the create on the wire without waiting for its answer: requests of
// a session are executed in order, so a list that shows the new znode was made
// after it. It costs one round trip and two requests.
//
// An answer that is lost is made up for: the znode is looked for, by its id, in
// this session, and its owner checked; if it is not there it is created anew
// under another id, within one budget of the retry policy.
//
// On any error nothing of it stays behind in a session that lives: what may
// still appear is hunted down in the background. zk.ErrNoNode: dir is missing.
func (s *Session) CreateProtected(ctx context.Context, dir, name string, data []byte, flags int32, acl ...zk.ACL) (Created, error) {
	w := s.scope()
	if err := ValidatePath(join(dir, name)); err != nil {
		return Created{}, &opError{op: opNameCreate, path: join(dir, name), err: err}
	}
	if len(acl) == 0 {
		acl = w.core.cfg.acl
	}
	longest := w.root.fix(join(dir, layout.Protect(newID(false), name)))
	if err := w.core.cfg.fits(textSize(longest) + createSize(data, acl)); err != nil {
		return Created{}, &opError{op: opNameCreate, path: join(dir, name), err: err}
	}
	var made Created
	err := w.do(ctx, opNameCreate, dir, repeatable, func(a *attempt) error {
		p := protected{session: s.session(), dir: w.root.fix(dir), id: newID(s.customIDs)}
		path := join(p.dir, layout.Protect(p.id, name))
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

// protected is one try of a protected create.
type protected struct {
	session *session
	dir, id string
}

func (p *protected) create(ctx context.Context, a *attempt, path string, data []byte, flags int32, acl []zk.ACL) (Created, error) {
	s := p.session
	sent := s.await(path)
	defer s.forget(path)
	lists := make(chan listing, 1)
	given := make(chan struct{}) // closed: no list is wanted any more
	defer close(given)
	go p.listBehind(sent, given, lists)
	answer, err := call(ctx, s, opNameCreate, func(conn *zk.Conn) (creation, error) {
		made, err := conn.Create(path, data, flags, acl)
		return creation{made, err}, err
	}, func(late creation, _ error) { p.disown(late) })
	switch {
	case err == nil:
	case isLeft(err):
		return Created{}, err // the late answer is disowned
	case judge(err) == ambiguous:
		a.unsure = true // whatever the search for it says
		return p.recover(ctx, flags, err, a.budget)
	default:
		return Created{}, err
	}
	made := Created{Path: answer.path}
	select {
	case l := <-lists:
		s.sweep(p.dir, l.names)
		if _, own := split(made.Path); slices.Contains(l.names, own) {
			made.Children, made.Stat = l.names, l.stat
		}
		return made, nil
	case <-ctx.Done():
		s.discard(made.Path)
		return Created{}, ctxerr.Of(ctx)
	case <-s.over:
		return Created{}, s.Err()
	}
}

// listBehind lists the directory once the create has been sent.
func (p *protected) listBehind(sent *frame, given <-chan struct{}, lists chan<- listing) {
	select {
	case <-sent.left:
	case <-given:
		return
	}
	l, err := observed(p.session, opNameList, func(conn *zk.Conn) (l listing, err error) {
		l.names, l.stat, err = conn.Children(p.dir)
		return l, err
	})
	if err != nil {
		l = listing{}
	}
	lists <- l
}

// disown takes the late answer to a create whose caller has left.
func (p *protected) disown(late creation) {
	switch {
	case late.err == nil:
		p.session.discard(late.path)
	case judge(late.err) == ambiguous:
		p.session.condemn(p.dir, p.id)
	}
}

// recover looks for the znode of a create whose answer was lost with err. It
// gives err back, to be tried again, when the znode is not there.
func (p *protected) recover(ctx context.Context, flags int32, err error, budget backoff.BackOff) (Created, error) {
	s := p.session
	l, path, findErr := p.find(ctx, budget)
	if findErr != nil || path == "" {
		s.condemn(p.dir, p.id)
		if findErr != nil {
			return Created{}, findErr
		}
		return Created{}, err
	}
	if flags&zk.FlagEphemeral != 0 && flags < zk.FlagContainer {
		stat, err := call(ctx, s, opNameExists, func(conn *zk.Conn) (*zk.Stat, error) {
			found, stat, err := conn.Exists(path)
			if err == nil && !found {
				err = zk.ErrNoNode
			}
			return stat, err
		}, nil)
		if err == nil && stat.EphemeralOwner != s.sessionID() {
			err = fmt.Errorf("%w: the znode found again is not this session's", ErrSessionLost)
		}
		if err != nil {
			s.condemn(p.dir, p.id)
			return Created{}, err
		}
	}
	return Created{Path: path, Children: l.names, Stat: l.stat}, nil
}

// find looks for the znode by its id, in the session, once it is connected
// again. Where the directory is missing there is nothing to find.
func (p *protected) find(ctx context.Context, budget backoff.BackOff) (listing, string, error) {
	s := p.session
	w := scope{core: s.core, in: s, budget: budget}
	if err := w.sync(ctx, p.dir); err != nil {
		return listing{}, "", err
	}
	names, stat, err := w.children(ctx, p.dir)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return listing{}, "", err
	}
	for _, name := range names {
		if idOf(name) == p.id {
			return listing{names, stat}, join(p.dir, name), nil
		}
	}
	return listing{}, "", nil
}

// What may not be removed is tried again after these.
const (
	forbiddenPause        = 5 * time.Second
	longestForbiddenPause = time.Minute
)

// discard removes a znode in the background, while the session lives. The channel
// it returns is closed when the znode is gone, or the session is over.
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

// deleteUntilGone deletes a znode, again and again, and reports whether it is gone.
// It reports false when the session is over or the client closes first.
func (s *session) deleteUntilGone(full string) bool {
	w := scope{core: s.core, in: s}
	for pause, logged := forbiddenPause, false; ; {
		err := w.delete(context.Background(), full, -1)
		if err == nil || errors.Is(err, zk.ErrNoNode) {
			return true
		}
		if errors.Is(err, ErrClosed) || s.Err() != nil {
			return false
		}
		rest := time.Second // the budget of the policy is used up: begin another
		if judge(errors.Unwrap(err)) == final {
			// Most likely an ACL. It may be corrected later: then the znode must not stay
			// until this process ends.
			if !logged {
				s.core.cfg.log.Error("cannot remove a znode of this session, will try again", zap.String("path", full), zap.Error(err))
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
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-s.over:
		return false
	case <-timer.C:
		return true
	}
}

// frame is a create that is looked for among what is sent.
type frame struct {
	left chan struct{} // closed: it has been sent
}

// await looks for the create of path, until forget.
func (s *session) await(path string) *frame {
	f := &frame{left: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving == nil {
		s.leaving = make(map[string]*frame)
	}
	s.leaving[path] = f
	return f
}

func (s *session) forget(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.leaving, path)
}

// idOf returns the id in a protected name, empty if there is none.
func idOf(name string) string {
	id, _, _ := layout.CutProtection(name)
	return id
}

// newID returns a random UUID in the form that Curator uses, of version 4, or 8 if
// it is to be a custom one.
func newID(custom bool) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	version := byte(4)
	if custom {
		version = 8
	}
	b[6] = b[6]&0x0f | version<<4
	b[8] = b[8]&0x3f | 0x80
	var text [36]byte
	at := 0
	for i, c := range b {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			text[at] = '-'
			at++
		}
		hex.Encode(text[at:], []byte{c})
		at += 2
	}
	return string(text[:])
}
