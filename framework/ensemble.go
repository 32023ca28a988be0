package framework

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// At an address that the name server has not confirmed now there may be another
// ensemble, which has the same paths: two clients could hold one lock. The
// client may resume its session there, since no other ensemble has its id and
// password. Any other answer counts only if the ensemble is known: that the
// session is gone, or that another one was opened.
//
// The ensemble is known by the czxid and the ctime of the client's chroot, and
// without a chroot if its latest transaction is not below the latest one that
// the client has seen. What is compared is read after each connect, by one
// request, if the server list has names that are looked up.

// ensemble is what is known of the client's ensemble.
type ensemble struct {
	mu           sync.Mutex // guards what follows
	czxid, ctime int64      // of the chroot; 0: not known
	seen         int64      // the latest transaction; 0: not known
}

// errNotVouched is wrapped by the end of a connection to a server that may be
// of another ensemble.
var errNotVouched = errors.New("the name server does not confirm the address, and the ensemble there is not known to be the same")

// noteSeen notes the latest transaction that a session has seen, if it has seen
// any.
func (e *ensemble) noteSeen(zxid int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if zxid != 0 {
		e.seen = zxid
	}
}

// differs returns how an ensemble differs from the one that is known, "" if it
// does not. stat is that of the chroot, if it has one.
func (e *ensemble) differs(chroot request.Prefix, stat wire.Stat, latest int64) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.seen == 0 || chroot != "" && e.czxid == 0:
		return "nothing is known yet"
	case chroot == "" && latest < e.seen:
		return fmt.Sprintf("its latest transaction is 0x%x, this client has seen 0x%x", latest, e.seen)
	case chroot != "" && (stat.Czxid != e.czxid || stat.Ctime != e.ctime):
		return fmt.Sprintf("its chroot %s was created by transaction 0x%x at %d, not by 0x%x at %d", chroot, stat.Czxid, stat.Ctime, e.czxid, e.ctime)
	}
	return ""
}

// rootPath returns the path of the chroot.
func (c *core) rootPath() string { return cmp.Or(string(c.chroot), "/") }

// learnEnsemble reads what the ensemble is known by in the background, after a
// connect, or when the chroot was created. If that fails it is read after the
// next connect.
func (c *core) learnEnsemble() {
	c.mu.Lock()
	s := c.session
	c.mu.Unlock()
	if s != nil && c.servers.looksUpAny() {
		go s.learnEnsemble()
	}
}

func (s *session) learnEnsemble() {
	found, stat, err := s.conn.Exists(s.core.rootPath())
	if err != nil {
		return
	}
	e := &s.core.ensemble
	e.noteSeen(s.latestSeen())
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.czxid, e.ctime = 0, 0; found {
		e.czxid, e.ctime = stat.Czxid, stat.Ctime
	}
}

// vouch returns nil if the server is at an address that is given or was
// confirmed by the name server, or if its ensemble is the one that is known. It
// asks that in a session that it closes. An address of another ensemble is
// forgotten.
func (c *core) vouch(ctx context.Context, to server, limit time.Duration) error {
	if !to.remembered {
		return nil
	}
	latest, stat, err := c.lookAtRoot(ctx, to, limit)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", to, errNotVouched, err)
	}
	difference := c.ensemble.differs(c.chroot, stat, latest)
	if difference == "" {
		return nil
	}
	c.servers.forget(to)
	err = fmt.Errorf("%s: %w: %s", to, errNotVouched, difference)
	c.cfg.log.Warn("an address may be another ensemble's", zap.Stringer("server", to), zap.Error(err))
	return err
}

// lookAtRoot returns the latest transaction at a server that is in sync with
// its leader, and the Stat of the chroot, zero if there is none. It makes all
// requests in one write: sync, exists, and to close the session.
func (c *core) lookAtRoot(ctx context.Context, at server, limit time.Duration) (latest int64, stat wire.Stat, err error) {
	const shortest = 1 // ms: the server raises it to the shortest timeout that it allows
	requests := wire.AppendFrame(nil, &wire.RequestHeader{Xid: firstXid, Op: wire.OpSync}, &wire.PathRequest{Path: "/"})
	requests = wire.AppendFrame(requests, &wire.RequestHeader{Xid: firstXid + 1, Op: wire.OpExists}, &wire.WatchRequest{Path: c.rootPath()})
	requests = wire.AppendFrame(requests, &wire.RequestHeader{Xid: firstXid + 2, Op: wire.OpCloseSession})
	conn, _, err := c.openSide(ctx, at, limit, &wire.ConnectRequest{Timeout: shortest, Password: make([]byte, passwordSize)}, true, requests)
	if err == nil && conn == nil {
		err = errBadAnswer
	}
	if err != nil {
		return 0, stat, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := readSuccess(conn, firstXid); err != nil {
		return 0, stat, err
	}
	frame, err := wire.ReadFrame(conn, 4096, nil)
	if err != nil {
		return 0, stat, err
	}
	d := wire.NewDecoder(frame)
	var head wire.ReplyHeader
	if head.Decode(d); head.Err == wire.OK {
		stat.Decode(d)
	}
	switch {
	case d.Err() != nil || head.Xid != firstXid+1:
		return 0, stat, errBadAnswer
	case head.Err != wire.OK && head.Err != wire.NoNode:
		return 0, stat, fmt.Errorf("refused: %w", head.Err)
	}
	_, _ = readSuccess(conn, firstXid+2) // without the answer the session may stay until it expires
	return head.Zxid, stat, nil
}

// vouch returns nil if an answer to the connect request counts that names a
// session, or none. Otherwise it closes the session that the server has opened.
func (l *link) vouch(session int64) error {
	s := l.session
	if !l.to.remembered || session != 0 && session == s.sessionID() {
		return nil
	}
	l.connectTimer.Stop()
	if l.answeredAt.IsZero() {
		l.answeredAt = clock.Now()
	}
	ctx, cancel := contextUntil(s.severed)
	defer cancel()
	s.core.ensemble.noteSeen(s.latestSeen())
	err := s.core.vouch(ctx, l.to, l.limit)
	if err == nil {
		return nil
	}
	s.core.servers.noteFault(l.to, err)
	if session != 0 {
		late := time.AfterFunc(maxCloseStep, func() { _ = l.Conn.Close() })
		defer late.Stop()
		_, _ = l.Conn.Write(closeSession)
		s.mu.Lock()
		s.remembered = orphan{}
		s.mu.Unlock()
	}
	return err
}

// contextUntil returns a context that ends when stop is closed.
func contextUntil(stop <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-stop:
		case <-ctx.Done():
		}
		cancel()
	}()
	return ctx, cancel
}
