package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/talk"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// This file has an attempt to connect from its turn to its outcome: AwaitTurn
// and Dial, then NoteConnected, NoteAccepted and NoteProven as the connection
// gets further, or NoteFailed.

// AwaitTurn waits until the next attempt to connect may be made. It does not
// wait if the mechanism of SASL has other credentials than those that were
// refused, or if the list is replaced. It reports false if stop is closed
// first.
func (s *Servers) AwaitTurn(stop <-chan struct{}) bool {
	replaced := s.replacements.await()
	pause, rare := s.pace.next()
	turn := time.After(pause)
	var look <-chan time.Time
	if rare && s.cfg.SASL.Changed != nil {
		look = time.Tick(time.Second)
	}
	var changed bool
	var looked <-chan error
	for {
		select {
		case <-stop:
			return false
		case <-turn:
			return true
		case <-replaced:
			return true
		case <-look:
			// A look that has not returned, perhaps of an earlier wait, is not
			// joined by another one.
			if s.looking.CompareAndSwap(false, true) {
				looked = supplied.Go(s.cfg.Log, func() error {
					defer s.looking.Store(false)
					changed = s.cfg.SASL.Changed()
					return nil
				})
			}
		case err := <-looked:
			if looked = nil; err == nil && changed {
				s.pace.nextRound()
				return true
			}
		}
	}
}

// Dial opens a connection to the next server, within limit. If a mechanism of
// SASL is set it first begins an exchange, which Authenticate continues. It
// fails with supplied.ErrStopped once stop is closed; every other failure is
// logged, and noted as NoteFailed does.
func (s *Servers) Dial(network string, stop <-chan struct{}, limit time.Duration) (net.Conn, Server, talk.Exchange, error) {
	began := time.Now()
	to, round, err := s.list.Next(stop, limit)
	if errors.Is(err, supplied.ErrStopped) {
		return nil, to, nil, err
	}
	s.pace.noteAttempt(round)
	if err != nil {
		return nil, to, nil, s.notConnected(to, err)
	}
	return s.dial(network, to, stop, limit-time.Since(began))
}

// DialBack is Dial, but to a server where the client was until now. It is out
// of turn, and may not be in the list any more. If the client is connected
// there, it moves to others that it should move to.
func (s *Servers) DialBack(network string, to Server, stop <-chan struct{}, limit time.Duration) (net.Conn, Server, talk.Exchange, error) {
	s.list.NoteBack(to)
	to.Chosen = false
	return s.dial(network, to, stop, limit)
}

func (s *Servers) dial(network string, to Server, stop <-chan struct{}, limit time.Duration) (net.Conn, Server, talk.Exchange, error) {
	to = s.doubted(to)
	if to.OneOfSeveral || to.IsDoubtful() {
		limit /= 2 // a host that does not answer must not use up all of the time
	}
	began := time.Now()
	x, err := s.BeginSASL(context.Background(), stop, to, max(limit, time.Millisecond))
	if err != nil {
		return nil, to, nil, s.notConnected(to, err)
	}
	conn, err := s.DialServer(stop, network, to, max(limit-time.Since(began), time.Millisecond))
	if zkerr.IsHangUp(err) { // the server is quicker than the dial
		err = fmt.Errorf("%w: %s", err, s.WhyHungUp())
	}
	if err != nil {
		return nil, to, nil, s.notConnected(to, fmt.Errorf("connect to %s: %w", to, err))
	}
	return conn, to, x, nil
}

// notConnected notes err, unless it says that somebody has stopped the attempt.
func (s *Servers) notConnected(to Server, err error) error {
	if !errors.Is(err, supplied.ErrStopped) {
		s.NoteFailed(to, err)
		s.cfg.Log.Debug("cannot connect", zap.Error(err))
	}
	return err
}

// WhyHungUp says why a server may hang up before it has answered the connect
// request. Servers do not say it, except that they refuse a certificate: in TLS
// 1.3 only the first read says that.
func (s *Servers) WhyHungUp() string {
	const why = "it has no quorum, or has as many connections from this address as it allows (maxClientCnxns), or "
	if s.cfg.TLS != nil {
		return why + "refuses the client's certificate"
	}
	return why + "expects TLS"
}

// NoteFailed notes why an attempt to connect has failed. If a server has
// refused the client, and each server was tried since, the attempts become
// rarer, and Told.Rejected is called.
func (s *Servers) NoteFailed(to Server, err error) {
	s.NoteFault(to, err)
	if errors.Is(err, zkerr.AuthFailed) && s.pace.noteRefusal() {
		s.told.Rejected(err)
	}
}

// NoteConnected notes that a server has answered a connect with the session.
// What the name servers have answered until now has to be confirmed before the
// next connection.
func (s *Servers) NoteConnected(at Server) {
	s.foreign.noteKnown(at, s.isListed(at))
	s.list.NoteConnected(at)
}

// NoteAccepted notes that a connection is ready for requests: the servers do
// not refuse the client, and earlier faults are forgotten.
func (s *Servers) NoteAccepted() {
	s.pace.accepted()
	s.list.ForgetFaults()
}

// NoteProven notes that a server has proved to be in touch with its leader: the
// next round of attempts begins now, and without a pause.
func (s *Servers) NoteProven() {
	s.pace.reset()
	s.list.BeginRound()
}

// IsRefused reports whether the servers refuse the client: see pace.
func (s *Servers) IsRefused() bool { return s.pace.isRefused() }

// SkipPause lets a client that is refused make the next attempt without a
// pause: the last one brought no refusal, but the news that a session is gone.
func (s *Servers) SkipPause() { s.pace.skipPause() }
