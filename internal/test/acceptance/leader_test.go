package acceptance_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/testutil"
)

func TestElectionOnBoth(t *testing.T) {
	play(t, 1, []scenario{
		{"terms go round", termsGoRound},
		{"a leader that resigns goes to the end of the line", resign},
		{"an observer misses no last leader", observe},
		{"a leader that is lost is succeeded", leaderIsLost},
		{"a leader that is not well steps down", unhealthy},
		{"a candidate's requests are lost, or the answers", candidatesRequestsAreLost},
	})
}

// candidate campaigns until the scenario ends.
type candidate struct {
	*leader.Election
	peer *peer
	id   string
	stop func() // returns when Run has
}

// term is one term of a candidate. It ends by itself, or when over is closed.
type term struct {
	who   *candidate
	lease *recipes.Lease
	ended chan error    // the cause of its context, if that ended before over was closed
	over  chan struct{} // closed when the work is done
}

// campaign joins a candidate. Its terms are sent to terms, and last until they
// are ended.
func (s *stage) campaign(t *testing.T, id string, terms chan<- *term, opts ...leader.Option) *candidate {
	t.Helper()
	p := s.join(t)
	e, err := leader.New(p.Client, s.path, append([]leader.Option{leader.WithID(id)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	c := &candidate{Election: e, peer: p, id: id}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- e.Run(ctx, func(ctx context.Context, l *recipes.Lease) error {
			now := &term{c, l, make(chan error, 1), make(chan struct{})}
			terms <- now
			select {
			case <-ctx.Done():
				now.ended <- context.Cause(ctx)
			case <-now.over:
			}
			return nil
		})
	}()
	stopped := false
	c.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", id, err)
		}
	}
	t.Cleanup(c.stop)
	return c
}

func next(t *testing.T, terms <-chan *term) *term {
	t.Helper()
	select {
	case now := <-terms:
		return now
	case <-time.After(load.Patience):
		t.Fatalf("no leader in %v", load.Patience)
		return nil
	}
}

func (now *term) endsWith(t *testing.T, want error) {
	t.Helper()
	select {
	case err := <-now.ended:
		if !errors.Is(err, want) {
			t.Errorf("the term of %s ended with %v, want %v", now.who.id, err, want)
		}
	case <-time.After(load.Patience):
		t.Fatalf("the term of %s has not ended", now.who.id)
	}
}

// WithMaxTerm ends a term only when there is another candidate.
func termsGoRound(t *testing.T, s *stage) {
	const longest = 100 * time.Millisecond
	terms := make(chan *term, 10)
	a := s.campaign(t, "a", terms, leader.WithMaxTerm(longest))
	alone := next(t, terms)
	select {
	case err := <-alone.ended:
		t.Fatalf("a term without another candidate ended: %v", err)
	case <-time.After(2 * longest):
	}
	b := s.campaign(t, "b", terms, leader.WithMaxTerm(longest))
	alone.endsWith(t, leader.ErrTermOver)
	last := alone
	for range 4 {
		now := next(t, terms)
		if now.who == last.who {
			t.Errorf("%s leads twice", now.who.id)
		}
		if now.lease.Token().Compare(last.lease.Token()) <= 0 {
			judge.Errorf(t, "token %v after %v", now.lease.Token(), last.lease.Token())
		}
		now.endsWith(t, leader.ErrTermOver)
		last = now
	}
	a.stop()
	b.stop()
	s.inLine(t, "", 0)
}

func resign(t *testing.T, s *stage) {
	terms := make(chan *term, 10)
	var all []*candidate
	for i := range 3 {
		all = append(all, s.campaign(t, fmt.Sprint("candidate ", i), terms))
		s.inLine(t, "", i+1)
	}
	for i := range 6 {
		now := next(t, terms)
		if now.who != all[i%3] {
			t.Fatalf("term %d is led by %s", i, now.who.id)
		}
		who, err := all[0].Leader(t.Context())
		if err != nil || string(who.Data) != now.who.id {
			t.Errorf("Leader returned %s, %v", who.Data, err)
		}
		s.inLine(t, "", 3)
		now.who.Resign()
		now.endsWith(t, leader.ErrResigned)
	}
	for _, c := range all {
		c.stop()
	}
	s.inLine(t, "", 0)
	if _, err := all[0].Leader(t.Context()); !errors.Is(err, leader.ErrNoLeader) {
		t.Errorf("no leader: %v", err)
	}
}

func observe(t *testing.T, s *stage) {
	observer, err := leader.New(s.join(t).Client, s.path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	leaders := observer.Observe(ctx)
	sees := func(id string) {
		t.Helper()
		for began := time.Now(); time.Since(began) < load.Patience; {
			select {
			case who := <-leaders:
				if string(who.Data) == id {
					return
				}
			case <-time.After(load.Patience):
			}
		}
		t.Fatalf("the observer does not see %q", id)
	}
	sees("")
	terms := make(chan *term, 10)
	a := s.campaign(t, "a", terms)
	next(t, terms)
	sees("a")
	b := s.campaign(t, "b", terms)
	s.inLine(t, "", 2)
	a.stop()
	sees("b")
	s.expire(t, next(t, terms).who.peer)
	next(t, terms) // again, in another session
	sees("b")
	b.stop()
	sees("")
	cancel()
	for range leaders { // closed once its goroutine is gone
	}
}

func leaderIsLost(t *testing.T, s *stage) {
	terms := make(chan *term, 10)
	s.campaign(t, "a", terms)
	now := next(t, terms)
	s.campaign(t, "b", terms)
	s.inLine(t, "", 2)
	for range 3 {
		s.expire(t, now.who.peer)
		then := next(t, terms)
		if then.who == now.who {
			t.Errorf("the term of %s has not ended", now.who.id)
		}
		if then.lease.Token().Compare(now.lease.Token()) <= 0 {
			judge.Errorf(t, "token %v after %v", then.lease.Token(), now.lease.Token())
		}
		now.endsWith(t, recipes.ErrNotHeld)
		s.inLine(t, "", 2) // it campaigns again
		now = then
	}
}

func unhealthy(t *testing.T, s *stage) {
	terms := make(chan *term, 10)
	sick := make(chan struct{})
	// A check that takes longer than the time between two fails, but not so
	// soon that a pause of the machine looks like bad health.
	s.campaign(t, "a", terms, leader.WithHealthCheck(2*time.Second, func(context.Context) error {
		select {
		case <-sick:
			return errors.New("a cough")
		default:
			return nil
		}
	}))
	now := next(t, terms)
	s.campaign(t, "b", terms)
	s.inLine(t, "", 2)
	close(sick)
	now.endsWith(t, leader.ErrUnhealthy)
	if then := next(t, terms); then.who.id != "b" {
		t.Errorf("%s leads", then.who.id)
	}
	s.inLine(t, "", 1) // an unhealthy candidate does not stand in line
}

func candidatesRequestsAreLost(t *testing.T, s *stage) {
	terms := make(chan *term, 10)
	a, b := s.campaign(t, "a", terms), (*candidate)(nil)
	now := next(t, terms)
	b = s.campaign(t, "b", terms)
	s.inLine(t, "", 2)
	for _, op := range []testutil.Op{testutil.OpDelete, testutil.OpCreate, testutil.OpGetChildren2, testutil.OpGetData} {
		for _, loss := range losses {
			if !t.Run(fmt.Sprint(op, " ", loss.name), func(t *testing.T) {
				m := testutil.Match{Op: op, Path: s.path + "/"}
				if op == testutil.OpGetChildren2 {
					m.Path = s.path
				}
				fault := now.who.peer.upon(t, m, loss.action) // as it leaves, joins again, and looks at the one ahead
				close(now.over)
				then := next(t, terms)
				if then.who == now.who {
					t.Errorf("%s leads twice", now.who.id)
				}
				s.inLine(t, "", 2)
				struck(t, fault)
				now = then
			}) {
				return // the leader is not known any more
			}
		}
	}
	a.stop()
	b.stop()
	s.inLine(t, "", 0)
}
