package servers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/talk"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// This file asks a server what it has and what it knows. A server that does not
// know an operation refuses it and closes the connection. On the connection of
// a session that may cost leases, so it is asked over another one.
//
// The question is its version (the word srvr), which needs no session. Where
// the answer has none, the operation is tried in a session that is closed
// afterwards. A silence, a refused connection and a lost one say nothing.

// newest are operations that not every server has: since which version, 3.x,
// and a request that does no harm, of that operation or of a later one.
var newest = map[wire.Op]struct {
	minor int
	try   wire.Op
	body  wire.Message
}{
	wire.OpRemoveWatches: {5, wire.OpMultiRead, readMany},
	wire.OpMultiRead:     {6, wire.OpMultiRead, readMany},
	wire.OpGetEphemerals: {6, wire.OpMultiRead, readMany},
	wire.OpAddWatch:      {6, wire.OpAddWatch, &wire.AddWatchRequest{Path: "/zookeeper", Mode: wire.WatchPersistentRecursive}},
}

var readMany = &wire.MultiRequest{Ops: []wire.MultiOp{{Op: wire.OpGetData, Request: &wire.WatchRequest{Path: "/zookeeper"}}}}

// Has asks a server whether it has an operation that not every server has. The
// answer is exact if the server has told its version: then it is about each
// such operation. Otherwise the operation is tried, which costs two
// transactions. Has fails if the server has not said it.
func (s *Servers) Has(ctx context.Context, to Server, op wire.Op, limit time.Duration) (has map[wire.Op]bool, exact bool, err error) {
	minor, exact, err := s.askOffer(ctx, to, op, limit)
	if err != nil {
		return nil, exact, err
	}
	has = make(map[wire.Op]bool)
	for other, since := range newest {
		if exact || other == op {
			has[other] = minor >= since.minor
		}
	}
	return has, exact, nil
}

// askOffer asks a server for the minor number of its version, which says
// whether it has an operation, and reports whether that is exact: then it
// says so of every operation in newest. It fails if it cannot be known.
func (s *Servers) askOffer(ctx context.Context, to Server, op wire.Op, limit time.Duration) (minor int, exact bool, err error) {
	if major, minor, err := s.AskVersion(ctx, to, limit); err == nil {
		switch {
		case major > 3:
			minor = math.MaxInt
		case major < 3:
			minor = 0
		}
		return minor, true, nil
	}
	if ctx.Err() != nil {
		return 0, false, ctx.Err()
	}
	has, err := s.TryOperation(ctx, to, limit, newest[op].try, newest[op].body)
	if has {
		minor = newest[op].minor
	}
	if errors.Is(err, ErrHangsUp) {
		err = nil
	}
	return minor, false, err
}

// ErrHangsUp is how a server answers an operation that it does not know, if it
// only ends the connection.
var ErrHangsUp = errors.New("the server ends the connection on this operation")

// TryOperation tries an operation at a server, in a session that is closed
// again, and reports whether the server has it. It returns ErrHangsUp if the
// connection has ended on it, although a read before it was answered and the
// session had not expired, and another error if the server has not said it.
func (s *Servers) TryOperation(ctx context.Context, to Server, limit time.Duration, op wire.Op, body wire.Appender) (has bool, err error) {
	began := time.Now()
	conn, session, err := s.Connect(ctx, to, limit, talk.Ask(&wire.ConnectRequest{Timeout: int32(limit.Milliseconds()), Password: make([]byte, wire.PasswordSize)}), true, readRoot)
	if session.SessionID != 0 {
		defer func() {
			if err := s.CloseAt(context.Background(), to, session.SessionID, session.Password, true, min(limit, talk.MaxStep)); err != nil {
				s.cfg.Log.Debug("cannot close a session", zap.Stringer("server", to), zap.String("session", wire.SessionText(session.SessionID)), zap.Error(err))
			}
		}()
	}
	if conn == nil {
		return false, cmp.Or(err, talk.ErrBadAnswer)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := talk.ReadSuccess(conn, talk.FirstXid); err != nil {
		return false, err
	}
	const xid = talk.FirstXid + 1
	if _, err := conn.Write(wire.AppendFrame(nil, &wire.RequestHeader{Xid: xid, Op: op}, body)); err != nil {
		return false, err
	}
	_, err = talk.ReadSuccess(conn, xid)
	var code wire.Code
	switch {
	case err == nil:
		return true, nil
	case zkerr.IsHangUp(err) && time.Since(began) < time.Duration(session.Timeout)*time.Millisecond:
		return false, ErrHangsUp
	case errors.As(err, &code):
		switch code {
		case wire.NodeExists, wire.NoAuth, wire.InvalidACL:
			return true, nil
		case wire.Unimplemented, wire.MarshallingError, wire.BadArguments:
			return false, nil
		}
	}
	return false, err
}

// readRoot is a read that every server answers.
var readRoot = wire.AppendFrame(nil, &wire.RequestHeader{Xid: talk.FirstXid, Op: wire.OpExists}, &wire.WatchRequest{Path: "/"})

var syncRoot = wire.AppendFrame(nil, &wire.RequestHeader{Xid: talk.FirstXid, Op: wire.OpSync}, &wire.PathRequest{Path: "/"})

// LatestTransaction opens a session at a server, syncs it with its leader,
// returns the latest transaction there, and closes the session. Each step takes
// limit at most. It fails where Vouch does, which it calls first.
func (s *Servers) LatestTransaction(at Server, seen int64, limit time.Duration) (zxid int64, err error) {
	if err := s.Vouch(context.Background(), at, seen, limit); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*limit)
	defer cancel()
	a, err := s.Converse(ctx, at, limit, &wire.ConnectRequest{Timeout: talk.Shortest, Password: make([]byte, wire.PasswordSize)}, true, syncRoot)
	if a.Session != 0 {
		_ = s.closeThrough(ctx, Orphan{a.Session, a.Password, 3 * limit}, at) // it is logged
	}
	if err == nil && a.Session == 0 {
		err = talk.ErrBadAnswer
	}
	return a.Zxid, err
}

// NoteRoot notes what the chroot was created by, zeros if there is none. A
// session has read it, and has seen the transaction seen.
func (s *Servers) NoteRoot(czxid, ctime, seen int64) {
	s.ensemble.noteRoot(czxid, ctime, seen)
}

// doubted returns the server with a doubt if its address was found to be of
// another ensemble, or may be of one, since a later list has brought it: then
// what it says does not count until it is vouched for.
func (s *Servers) doubted(to Server) Server {
	isForeign, isFresh := s.foreign.standingOf(to)
	isFresh = isFresh && (!to.Remembered || s.isListed(to)) // a member that only the ensemble names is doubted as a remembered address
	to.Chosen = to.Chosen || isForeign && s.ensemble.wasKnown(s.cfg.Root) || isFresh && s.ensemble.isKnown(s.cfg.Root)
	return to
}

func (s *Servers) isListed(to Server) bool { return slices.Contains(s.Names(), to.Name) }

// Vouch returns nil if the server is at an address that is given or was
// confirmed by the name server, or if its ensemble is the one that is known. It
// asks that in a session that it closes. seen is the latest transaction that
// the client's session has seen, 0 if that is not known. An address of another
// ensemble is forgotten. One that the client has moved to is doubted from then
// on, whatever the name server says. The error wraps zkerr.NotVouched.
func (s *Servers) Vouch(ctx context.Context, to Server, seen int64, limit time.Duration) error {
	s.ensemble.noteSeen(seen)
	if !to.IsDoubtful() {
		return nil
	}
	latest, stat, err := s.lookAtRoot(ctx, to, limit)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", to, zkerr.NotVouched, err)
	}
	difference := s.ensemble.differs(s.cfg.Root, stat, latest)
	if difference == "" {
		s.foreign.noteKnown(to, s.isListed(to))
		return nil
	}
	s.list.Forget(to)
	if to.Chosen && s.ensemble.isKnown(s.cfg.Root) {
		s.foreign.note(to.Address)
	}
	err = fmt.Errorf("%s: %w: %s", to, zkerr.NotVouched, difference)
	s.cfg.Log.Warn("an address may be another ensemble's", zap.Stringer("server", to), zap.Error(err))
	return err
}

// lookAtRoot returns the latest transaction at a server that is in sync with
// its leader, and the Stat of the chroot, zero if there is none. It makes all
// requests in one write: sync, exists, and to close the session.
func (s *Servers) lookAtRoot(ctx context.Context, at Server, limit time.Duration) (latest int64, stat wire.Stat, err error) {
	requests := wire.AppendFrame(nil, &wire.RequestHeader{Xid: talk.FirstXid, Op: wire.OpSync}, &wire.PathRequest{Path: "/"})
	requests = wire.AppendFrame(requests, &wire.RequestHeader{Xid: talk.FirstXid + 1, Op: wire.OpExists}, &wire.WatchRequest{Path: s.cfg.Root})
	requests = wire.AppendFrame(requests, &wire.RequestHeader{Xid: talk.FirstXid + 2, Op: wire.OpCloseSession})
	conn, _, err := s.Connect(ctx, at, limit, talk.Ask(&wire.ConnectRequest{Timeout: talk.Shortest, Password: make([]byte, wire.PasswordSize)}), true, requests)
	if err == nil && conn == nil {
		err = talk.ErrBadAnswer
	}
	if err != nil {
		return 0, stat, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := talk.ReadSuccess(conn, talk.FirstXid); err != nil {
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
	case d.Err() != nil || head.Xid != talk.FirstXid+1:
		return 0, stat, talk.ErrBadAnswer
	case head.Err != wire.OK && head.Err != wire.NoNode:
		return 0, stat, fmt.Errorf("refused: %w", head.Err)
	}
	_, _ = talk.ReadSuccess(conn, talk.FirstXid+2) // without the answer the session may stay until it expires
	return head.Zxid, stat, nil
}
