package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/talk"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/test/script"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Servers that accept and drop connections must not be called in a tight loop,
// and the pause must never overflow, however long the outage.
func TestPaceGrowsAfterOneRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := of(Config{Names: make([]string, 3), Timeout: time.Minute})
		p := &c.pace
		never := make(chan struct{})
		began := time.Now()
		for range 3 {
			c.AwaitTurn(never)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the first round took %v: each server is tried at once", took)
		}
		for range 1000 {
			before := time.Now()
			if c.AwaitTurn(never); time.Since(before) > time.Second {
				t.Fatalf("a pause of %v, want at most 1s", time.Since(before))
			}
		}
		if took := time.Since(began); took < 100*time.Second {
			t.Errorf("1000 attempts in %v: that is hammering", took)
		}
		p.reset()
		before := time.Now()
		if c.AwaitTurn(never); time.Since(before) != 0 {
			t.Error("a proof must make the next attempt immediate")
		}
		longest := make([]time.Duration, 5) // of each further round
		for range 300 {
			p.reset()
			p.tries = p.round
			for i := range longest {
				before := time.Now()
				c.AwaitTurn(never)
				longest[i] = max(longest[i], time.Since(before))
				p.tries = p.round
			}
		}
		for i, got := range longest {
			if want := min(125*time.Millisecond<<i, time.Second); got > want || got < want*9/10 {
				t.Errorf("pause %d is up to %v, want %v", i+1, got, want)
			}
		}
		for timeout, want := range map[time.Duration]time.Duration{5 * time.Second: 500 * time.Millisecond, time.Minute: time.Second} {
			if got := of(Config{Timeout: timeout}).pace.longest; got != want {
				t.Errorf("for T = %v the longest pause is %v, want %v", timeout, got, want)
			}
		}
		for range 2 { // refused, accepted, refused again
			for i := range 4 { // the last one changes nothing
				p.noteAttempt(3)
				if refused := p.noteRefusal(); refused != (i >= 2) || p.isRefused() != refused {
					t.Errorf("after %d refusals of 3 servers: refused %t", i+1, refused)
				}
			}
			for i := range 50 {
				bound := min(time.Second<<min(i, 10), time.Minute)
				if got, rare := p.next(); got < bound/2 || got > bound || !rare {
					t.Errorf("a client that is refused: pause %d is %v, want up to %v", i+1, got, bound)
				}
			}
			p.accepted()
			p.reset()
			if got, rare := p.next(); got != 0 || rare {
				t.Errorf("a pause of %v after the client was accepted", got)
			}
		}
		stopped := make(chan struct{})
		close(stopped)
		p.tries = 999
		for range 100 {
			if !c.AwaitTurn(stopped) {
				return
			}
		}
		t.Error("a stopped session goes on dialing")
	})
}

// The servers refuse a client when each was tried since the first refusal.
// Refusals that a round without one lies between do not belong together.
func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		round    int
		attempts []int // that are refused
		want     int   // at which each server was tried; 0: at none
	}{
		{1, []int{1}, 1},
		{1, []int{9}, 9},
		{3, []int{1, 2, 3}, 3},
		{3, []int{7}, 0},
		{3, []int{7, 8, 9}, 9},
		{3, []int{1, 4}, 4},           // the others do not answer
		{3, []int{1, 5}, 0},           // there was an outage
		{3, []int{1, 5, 6, 7}, 7},     //
		{3, []int{1, 20, 40, 60}, 0},  //
		{3, []int{10, 11, 15, 16}, 0}, //
	} {
		var r refusals
		got := 0
		for _, attempt := range tt.attempts {
			if r.add(attempt, tt.round) && got == 0 {
				got = attempt
			}
		}
		if got != tt.want {
			t.Errorf("%d servers, refused at %v: all at %d, want %d", tt.round, tt.attempts, got, tt.want)
		}
	}
}

// late is a mechanism that takes its time to begin.
type late time.Duration

func (d late) Begin(context.Context, Server) (talk.Exchange, error) {
	time.Sleep(time.Duration(d))
	return &script.Talker{}, nil
}

// A dial has what the mechanism has left of the time. Each has a millisecond at
// least. A connection beside that of the session has as much time for each.
func TestTheTimeToDialAfterAMechanism(t *testing.T) {
	const limit = 4 * time.Second
	for took, toDial := range map[time.Duration]time.Duration{0: limit, limit / 4: limit * 3 / 4, limit - 1: time.Millisecond, limit + 1: 0} {
		synctest.Test(t, func(t *testing.T) {
			var within time.Duration
			c := of(Config{Names: []string{"a:1"}, Timeout: 3 * limit, SASL: talk.Mechanism{Begin: late(took).Begin}, Dial: func(_, _ string, limit time.Duration) (net.Conn, error) {
				within = limit
				return nil, io.ErrNoProgress
			}})
			began := time.Now()
			if _, _, _, err := c.Dial("tcp", nil, limit); err == nil || within != toDial || time.Since(began) != min(took, limit) {
				t.Errorf("after %v dialed within %v, want %v; %v after %v", took, within, toDial, err, time.Since(began))
			}
			began = time.Now()
			if _, _, _, err := c.Dial("tcp", nil, 0); err == nil || time.Since(began) != min(took, time.Millisecond) {
				t.Errorf("without any time: %v after %v", err, time.Since(began))
			}
			time.Sleep(5 * time.Second) // the mechanism
			began, within = time.Now(), 0
			_, _, err := c.Connect(t.Context(), Server{Name: "a:1", Address: "a:1"}, limit, talk.Ask(&wire.ConnectRequest{}), true, nil)
			if want := map[bool]time.Duration{true: limit}[took < limit]; err == nil || within != want || time.Since(began) != min(took, limit) {
				t.Errorf("after %v dialed within %v, want %v; %v after %v", took, within, want, err, time.Since(began))
			}
			time.Sleep(time.Second) // the mechanism
		})
	}
}

// A server that ends a connection while it is dialed may have too many.
func TestADialThatTheServerEnds(t *testing.T) {
	for err, ended := range map[error]bool{
		syscall.EPIPE: true, syscall.ECONNRESET: true, io.EOF: true, syscall.ECONNREFUSED: false, os.ErrDeadlineExceeded: false,
	} {
		c := of(Config{Names: []string{"a:1"}, Dial: func(string, string, time.Duration) (net.Conn, error) { return nil, &net.OpError{Op: "dial", Err: err} }})
		_, _, _, got := c.Dial("tcp", nil, time.Second)
		if !errors.Is(got, err) || strings.Contains(got.Error(), "maxClientCnxns") != ended {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// told counts how often the client is rejected.
type told struct{ rejected int }

func (t *told) Rejected(error) { t.rejected++ }

// The client is told of each refusal once both servers were tried, until a
// connection is accepted. Other failures say nothing.
func TestTheClientIsToldOfRefusals(t *testing.T) {
	var who told
	refused := fmt.Errorf("begin: %w", zkerr.AuthFailed)
	fails := refused
	c := New(Config{
		Names: []string{"a:1", "b:2"}, Timeout: time.Minute, Log: zap.NewNop(),
		Dial: func(string, string, time.Duration) (net.Conn, error) { return nil, io.ErrNoProgress },
		SASL: talk.Mechanism{Begin: func(context.Context, Server) (talk.Exchange, error) { return nil, fails }},
	}, &who, make(chan struct{}), make(chan struct{}))
	for i, tt := range []struct {
		fails    error
		accepted bool // before the attempt
		told     int
	}{
		{io.ErrNoProgress, false, 0},
		{refused, false, 0},
		{refused, false, 1},
		{io.ErrNoProgress, false, 1},
		{refused, false, 2},
		{refused, true, 2},
		{refused, false, 3},
	} {
		if tt.accepted {
			c.NoteAccepted()
		}
		fails = tt.fails
		_, _, _, err := c.Dial("tcp", nil, time.Minute)
		if !errors.Is(err, tt.fails) || who.rejected != tt.told || c.IsRefused() != (tt.told > 0 && i != 5) {
			t.Errorf("attempt %d: %v, told %d times, refused %t", i+1, err, who.rejected, c.IsRefused())
		}
		if fault := c.Fault(); fault == nil || !strings.Contains(fault.Error(), tt.fails.Error()) {
			t.Errorf("attempt %d: the fault is %v", i+1, fault)
		}
	}
}

// While the client is refused the next attempt comes after half a minute to a
// minute, or within a second of a change, which begins a round.
func TestTheTurnOfAClientThatIsRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		refused     bool
		after       int // looks
		least, most time.Duration
		rare        bool // afterwards
		attempts    refusals
	}{
		"no change":     {true, 1000, 30 * time.Second, time.Minute, true, refusals{1, 2}},
		"a change":      {true, 0, time.Second, time.Second, false, refusals{}},
		"a later one":   {true, 4, 5 * time.Second, 5 * time.Second, false, refusals{}},
		"it is not one": {false, 0, 0, 0, false, refusals{1, 2}},
	} {
		synctest.Test(t, func(t *testing.T) {
			looks := 0
			changed := func() bool { looks++; return looks > tt.after } // after so many looks
			c := of(Config{Names: []string{"a", "b"}, SASL: talk.Mechanism{Changed: changed}})
			if c.pace.refusals = (refusals{1, 2}); tt.refused {
				c.pace.rare = longestRefused
			}
			began := time.Now()
			if !c.AwaitTurn(nil) {
				t.Errorf("%s: it is not its turn", name)
			}
			if took := time.Since(began); took < tt.least || took > tt.most {
				t.Errorf("%s: after %v", name, took)
			}
			if c.pace.isRefused() != tt.rare || c.pace.refusals != tt.attempts || c.pace.tries != 1 && !tt.rare {
				t.Errorf("%s: refused %t, %+v, %d tries", name, c.pace.isRefused(), c.pace.refusals, c.pace.tries)
			}
			stop := make(chan struct{})
			close(stop)
			if c.pace.rare = time.Hour; c.AwaitTurn(stop) {
				t.Errorf("%s: it goes on after the end", name)
			}
			synctest.Wait()
		})
	}
}
