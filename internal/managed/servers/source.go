package servers

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
	"github.com/zkrecipes/zkrecipes/retry"
)

// The list may come from a function of the user: a file, a DNS record, a
// secret. It is called on a goroutine of its own: when the client starts, about
// once a minute, and when each server of the list has been called without
// success. Then there are pauses between the calls, which grow. Attempts to
// connect do not wait for it.
//
// While the client is connected, an answer has to come twice before it counts:
// a function that answers something else each time, such as a random part of
// the servers, must not move clients to and fro. Without a connection an answer
// counts immediately, since the list as it is has not helped.

const (
	askEach    = time.Minute
	mostVaried = 5 // so many answers in a row that differ are logged
)

var errVaries = errors.New("it returns another list each time")

// returned is what the function has returned.
type returned struct {
	latest []string // sorted
	varied int      // how many in a row were another one than the one before
}

// add adds an answer, which is sorted, as list is. It reports whether the
// answer becomes the list.
func (a *returned) add(names, list []string, connected bool) (use bool) {
	again := slices.Equal(names, a.latest)
	if a.varied++; again || a.latest == nil {
		a.varied = 0
	}
	a.latest = names
	return (again || !connected) && !slices.Equal(names, list)
}

// Start begins to renew what the mechanism of SASL keeps fresh, if it does, to
// call the function for the list, if there is one, and to follow the config of
// the ensemble, if that is wanted. All end when the client begins to close.
func (s *Servers) Start() {
	s.startGuardians()
	if s.cfg.Source.List != nil {
		s.tasks.Go(s.follow)
	}
	if s.cfg.Source.Follow != nil {
		s.tasks.Go(s.track)
	}
	if s.cfg.SASL.Renew != nil {
		s.tasks.Go(func() { s.Renew(s.closing, s.list.Present) })
	}
}

// follow calls the function until the client begins to close, or the list is
// replaced in another way.
func (s *Servers) follow() {
	var seen returned
	var back backoff.BackOff
	tokens := supplied.NewTokens(1, s.cfg.Log)
	for {
		err := s.askForList(tokens, &seen)
		switch {
		case s.isClosing(), errors.Is(err, errReplaced):
			return
		case err != nil:
			s.cfg.Log.Warn("the function for the list of servers has failed", zap.Error(err))
		}
		if back == nil || s.isConnected() {
			back = retry.Exponential(s.cfg.Timeout/8, askEach, math.MaxInt)()
		}
		if !s.awaitAsking(back) {
			return
		}
	}
}

func (s *Servers) isConnected() bool { return s.cfg.Source.Present().Address != "" }

// awaitAsking waits until the function is called again, and reports false if it
// is not.
func (s *Servers) awaitAsking(back backoff.BackOff) bool {
	regular := time.After(random.About(askEach))
	var pause <-chan time.Time
	for {
		select {
		case <-s.closing:
			return false
		case <-s.replacements.given:
			return false
		case <-regular:
			return true
		case <-pause:
			return true
		case <-s.pace.rounds:
			if pause == nil && !s.isConnected() {
				pause = time.After(back.NextBackOff())
			}
		}
	}
}

// askForList calls the function once, and replaces the list if its answer
// counts. The error says why there is no answer.
func (s *Servers) askForList(tokens supplied.Tokens, seen *returned) error {
	names, err := supplied.Get(context.Background(), tokens, s.closing, s.cfg.Timeout, s.cfg.Source.List)
	if err != nil {
		return err
	}
	if names, err = normalized(names); err != nil {
		return err
	}
	present := s.cfg.Source.Present()
	use := seen.add(names, slices.Compact(slices.Sorted(slices.Values(s.Names()))), present.Address != "")
	if use {
		if err := s.replace(context.Background(), names, present, FromFunction); err != nil {
			return err
		}
		s.cfg.Source.Changed()
	}
	if seen.varied == mostVaried {
		return errVaries
	}
	return nil
}
