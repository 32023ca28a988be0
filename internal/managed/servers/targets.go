package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/managed/serverlist"
	"github.com/zkrecipes/zkrecipes/internal/managed/talk"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// The list of servers may be replaced while a client runs. Then the client may
// be at a server that it has to leave: because the list does not have it, or
// because the clients would otherwise not be spread evenly over a list that has
// grown (see spread.go of package serverlist). This file says which server the
// client moves to. Package session says when, and moves.
//
// A move is the client's own wish, so it must cost little, and lose nothing:
//
//   - A target is asked first, by the word srvr. It must serve, and know of all
//     transactions that the session has seen. Otherwise it would hang up, and
//     the session would be without a connection for longer.
//   - The connection to the target is made before the present one is left.
//   - A target that does not resume the session is not believed: the client
//     goes back. If the session is resumed there, the target is of another
//     ensemble, and the client does not move to it again until the list is
//     replaced. If it has to call it, what it says of the session counts only
//     if its ensemble is known to be the same: see ensemble.go.

// MostNames is how many servers a list may have that replaces another one.
const MostNames = 1000

// Replace makes names the list, each "host:port". present is the server that
// the client is connected to, the zero Server if it is not. Replace first looks
// the names up, within ctx and a third of the session timeout, and decides
// whether the client should leave present: see Standing. The function of Config
// is not called any more. After an error the list is what it was.
func (s *Servers) Replace(ctx context.Context, names []string, present Server) error {
	names, err := normalized(names)
	if err != nil {
		return err
	}
	return s.replace(ctx, names, present, Given)
}

// normalized returns the names of a list that replaces another one, sorted and
// each once. It fails if there are too many.
func normalized(names []string) ([]string, error) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) > MostNames {
		return nil, fmt.Errorf("%d servers: at most %d can replace a list", len(names), MostNames)
	}
	return names, nil
}

func (s *Servers) replace(ctx context.Context, names []string, present Server, origin Origin) error {
	select {
	case s.replacements.busy <- struct{}{}:
		defer func() { <-s.replacements.busy }()
	case <-ctx.Done():
		return ctxerr.Of(ctx)
	case <-s.closing:
		return zkerr.Closed
	}
	found, err := s.list.LookUpAll(ctx, s.closing, names, s.cfg.Timeout/3)
	switch {
	case err != nil:
		return err
	case origin != Given && closed.Is(s.replacements.given):
		return errReplaced
	}
	before := s.Names()
	s.foreign.noteReplaced(before)
	s.list.Replace(names, found, present)
	s.replacements.note(origin)
	s.pace.nextRound()
	s.cfg.Log.Info("the list of servers was replaced", zap.Stringer("from", listText(slices.Sorted(slices.Values(before)))), zap.Stringer("to", listText(names)))
	return nil
}

var errReplaced = errors.New("the list was replaced in another way")

// listText is a list in a log line.
type listText []string

func (l listText) String() string { return strings.Join(l, ",") }

// Standing says whether the client may stay at a server that it is connected
// to.
func (s *Servers) Standing(at Server) serverlist.Standing {
	standing := s.list.Standing(at)
	if !s.replacements.any() && !s.list.WasRemoved(at) {
		return serverlist.Stays
	}
	return standing
}

// AsksRoot reports whether what the ensemble is known by has to be read after
// each connect: it is not certain that every address leads to the client's
// ensemble, since the list has names that are looked up, was replaced, or has
// the members that the ensemble names.
func (s *Servers) AsksRoot() bool {
	return s.cfg.Source.Follow != nil || s.replacements.any() || s.list.LooksUp()
}

// MoveIn returns how long to wait until the next move may begin: there is at
// most one in a session timeout.
func (s *Servers) MoveIn(timeout time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.moved.IsZero() {
		return 0
	}
	return max(0, timeout-clock.Elapsed(s.moved, clock.Now()))
}

// NoteMove notes that the client moves to a server now.
func (s *Servers) NoteMove(to Server) {
	s.list.NoteCalled(to)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved = clock.Now()
}

// LookUpAgain looks up all names, within limit, as long as ctx lasts. A name
// that cannot be looked up keeps the addresses that it has.
func (s *Servers) LookUpAgain(ctx context.Context, limit time.Duration) {
	s.list.LookUpAgain(ctx, s.closing, limit)
}

// Prepared is a connection to a server on which nothing was sent yet. Whoever
// has it closes it, unless it is dialed.
type Prepared struct {
	Conn     net.Conn
	To       Server
	Exchange talk.Exchange // nil: no SASL
}

// Close closes the connection.
func (p *Prepared) Close() { _ = p.Conn.Close() }

var errNoTarget = errors.New("the list has no other server that can be called")

// NoteForeign notes that another ensemble is at a server of the list.
func (s *Servers) NoteForeign(at Server) {
	s.foreign.note(at.Address)
	s.cfg.Log.Warn("a server of the list is another ensemble's", zap.Stringer("server", at))
}

// Prepare finds a server to move to from another one, and connects to it. The
// session has seen the transaction seen. It asks at most three servers, each
// step within limit, and returns why none of them can be moved to.
func (s *Servers) Prepare(ctx context.Context, from Server, seen int64, limit time.Duration) (*Prepared, error) {
	all := s.list.Candidates(from)
	candidates := slices.DeleteFunc(slices.Clone(all), s.foreign.isAvoided)
	why := errNoTarget
	if len(all) > len(candidates) {
		why = errors.New("another ensemble is at all other servers of the list that can be called")
	}
	for _, to := range candidates[:min(len(candidates), mostTries)] {
		p, err := s.prepareAt(ctx, to, seen, limit)
		if err == nil {
			return p, nil
		}
		if ctx.Err() != nil {
			return nil, ctxerr.Of(ctx)
		}
		why = fmt.Errorf("cannot move to %s: %w", to, err)
		s.list.NoteFailure(to, why)
	}
	return nil, why
}

func (s *Servers) prepareAt(ctx context.Context, to Server, seen int64, limit time.Duration) (*Prepared, error) {
	is, err := s.AskCondition(ctx, to, limit)
	if err == nil {
		err = is.Serves(seen)
	}
	if err != nil {
		return nil, fmt.Errorf("srvr: %w", err)
	}
	x, err := s.BeginSASL(ctx, ctx.Done(), to, limit)
	if err != nil {
		return nil, err
	}
	conn, err := s.DialServer(ctx.Done(), "tcp", to, limit)
	if err != nil {
		return nil, err
	}
	return &Prepared{conn, to, x}, nil
}
