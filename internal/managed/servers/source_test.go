package servers

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// Which answers of the function become the list.
func TestWhichAnswersBecomeTheList(t *testing.T) {
	a, b := []string{"a:1"}, []string{"b:1"}
	type answer struct {
		names     []string
		connected bool
		use       bool
	}
	for name, story := range map[string][]answer{
		"the same as the list":            {{a, true, false}, {a, true, false}, {a, false, false}},
		"twice in a row":                  {{b, true, false}, {b, true, true}},
		"twice, but not in a row":         {{b, true, false}, {a, true, false}, {b, true, false}},
		"without a connection":            {{b, false, true}},
		"the second without a connection": {{b, true, false}, {b, false, true}},
	} {
		var r returned
		for i, step := range story {
			if use := r.add(step.names, a, step.connected); use != step.use {
				t.Errorf("%s: answer %d is used: %t", name, i, use)
			}
		}
	}
	var r returned
	for i := range 2 * mostVaried {
		if r.add([]string{fmt.Sprint(i)}, a, true); r.varied != i {
			t.Errorf("after %d answers, each another one: %d", i+1, r.varied)
		}
	}
	if r.add([]string{fmt.Sprint(2*mostVaried - 1)}, a, true); r.varied != 0 {
		t.Errorf("after the same again: %d", r.varied)
	}
}

// sourced are servers with a function for the list, which runs.
type sourced struct {
	*Servers
	logged *observer.ObservedLogs

	mu      sync.Mutex // guards what follows
	list    func(context.Context) ([]string, error)
	asked   []time.Duration // when, since the beginning
	changed int
	present Server
}

// returns sets the function.
func (s *sourced) returns(list func(context.Context) ([]string, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = list
}

// disconnects lets the client have no connection from now on.
func (s *sourced) disconnects() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.present = Server{}
}

// counts returns when the function was called, and how often the list was
// replaced.
func (s *sourced) counts() (asked []time.Duration, changed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked), s.changed
}

func startSourced(t *testing.T, list func(context.Context) ([]string, error)) *sourced {
	t.Helper()
	began := time.Now()
	core, logged := observer.New(zapcore.InfoLevel)
	s := &sourced{list: list, logged: logged, present: Server{Name: "a:1", Address: "a:1"}}
	closing := make(chan struct{})
	s.Servers = New(Config{
		Names: []string{"a:1"}, Root: "/", Timeout: 8 * time.Second, Dial: (&answering{}).dial, Log: zap.New(core),
		Source: Source{
			List: func(ctx context.Context) ([]string, error) {
				s.mu.Lock()
				s.asked = append(s.asked, time.Since(began))
				list := s.list
				s.mu.Unlock()
				return list(ctx)
			},
			Present: func() Server {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.present
			},
			Changed: func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.changed++
			},
		},
	}, nil, closing, closing)
	s.Start()
	t.Cleanup(func() {
		close(closing)
		s.Wait()
		s.Servers.Close()
	})
	synctest.Wait()
	return s
}

// warnings returns the errors that were logged.
func (s *sourced) warnings() (texts []string) {
	for _, line := range s.logged.FilterMessage("the function for the list of servers has failed").All() {
		texts = append(texts, fmt.Sprint(line.ContextMap()["error"]))
	}
	return texts
}

func returning(names ...string) func(context.Context) ([]string, error) {
	return func(context.Context) ([]string, error) { return names, nil }
}

// While the client is connected the function is asked once a minute, and an
// answer counts when it comes the second time.
func TestAnAnswerThatComesTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startSourced(t, returning("b:1", "a:1", "b:1"))
		if got := s.Names(); len(got) != 1 {
			t.Errorf("after one answer: %v", got)
		}
		time.Sleep(10 * time.Minute)
		asked, changed := s.counts()
		if n := len(asked); n < 9 || n > 14 {
			t.Errorf("asked at %v", asked)
		}
		if got := slices.Sorted(slices.Values(s.Names())); !slices.Equal(got, []string{"a:1", "b:1"}) || changed != 1 {
			t.Errorf("%v, replaced %d times", got, changed)
		}
		if _, from := s.Status(); from != FromFunction || len(s.warnings()) > 0 {
			t.Errorf("from %v; %v", from, s.warnings())
		}
	})
}

// Without a connection the first answer counts. The function is asked when a
// round of the list has failed, with pauses that grow.
func TestAnAnswerWithoutAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startSourced(t, returning("a:1"))
		s.disconnects()
		before, _ := s.counts()
		stop := make(chan struct{})
		ended := make(chan struct{})
		go func() { // an outage
			defer close(ended)
			for s.AwaitTurn(stop) {
				_, _, _, _ = s.Dial("tcp", stop, time.Second)
			}
		}()
		time.Sleep(30 * time.Second)
		if asked, _ := s.counts(); len(asked)-len(before) < 3 || len(asked)-len(before) > 12 {
			t.Errorf("asked at %v", asked)
		}
		s.returns(returning("b:1"))
		time.Sleep(2 * time.Minute)
		asked, changed := s.counts()
		if got := s.Names(); !slices.Equal(got, []string{"b:1"}) || changed != 1 {
			t.Errorf("%v, replaced %d times", got, changed)
		}
		time.Sleep(time.Hour)
		if later, _ := s.counts(); len(later)-len(asked) > 180 {
			t.Errorf("asked %d times in an hour", len(later)-len(asked))
		}
		close(stop)
		<-ended
	})
}

// Whatever is wrong with the function, the last list stays, and a line names
// it.
func TestAFunctionThatFails(t *testing.T) {
	many := make([]string, MostNames+1)
	for i := range many {
		many[i] = fmt.Sprintf("h%d:1", i)
	}
	calls := 0
	for name, tt := range map[string]struct {
		list func(context.Context) ([]string, error)
		want string
	}{
		"an error":   {func(context.Context) ([]string, error) { return nil, errors.New("no such file") }, "no such file"},
		"a panic":    {func(context.Context) ([]string, error) { panic("oops") }, "panic"},
		"an end":     {func(context.Context) ([]string, error) { runtime.Goexit(); return nil, nil }, ""},
		"a late one": {func(ctx context.Context) ([]string, error) { <-ctx.Done(); return []string{"b:1"}, nil }, "no result within 8s"},
		"too many":   {returning(many...), "1001 servers"},
		"another each time": {func(context.Context) ([]string, error) {
			calls++
			return []string{fmt.Sprintf("h%d:1", calls)}, nil
		}, "another list each time"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startSourced(t, tt.list)
				time.Sleep(20 * time.Minute)
				if _, changed := s.counts(); !slices.Equal(s.Names(), []string{"a:1"}) || changed > 0 {
					t.Errorf("%v, replaced %d times", s.Names(), changed)
				}
				if got := s.warnings(); len(got) == 0 || !strings.Contains(got[0], tt.want) || len(got) > 30 {
					t.Errorf("%d lines: %.100q", len(got), got)
				}
				s.returns(returning("b:1"))
				time.Sleep(5 * time.Minute)
				if got := s.Names(); !slices.Equal(got, []string{"b:1"}) {
					t.Errorf("it does not recover: %v", got)
				}
			})
		})
	}
}

// A list may be another one four times in a row, as while an ensemble grows.
// The fifth is logged.
func TestAFunctionThatVaries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		s := startSourced(t, func(context.Context) ([]string, error) {
			calls++
			return []string{fmt.Sprintf("h%d:1", calls)}, nil
		})
		for len(s.warnings()) == 0 {
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if asked, _ := s.counts(); len(asked) != 6 { // the first is not another one
			t.Errorf("logged at answer %d", len(asked))
		}
	})
}

// A call that does not return costs one goroutine, and ends with the client for
// everybody but itself.
func TestAFunctionThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		s := startSourced(t, func(context.Context) ([]string, error) { <-hang; return []string{"b:1"}, nil })
		time.Sleep(20 * time.Minute)
		if asked, _ := s.counts(); len(asked) != 1 {
			t.Errorf("%d calls are under way", len(asked))
		}
		if got := s.warnings(); len(got) < 10 || len(got) > 30 {
			t.Errorf("%q", got)
		}
		close(hang)
	})
}

// A list that is given ends the calls, also while one is under way.
func TestAListThatIsGivenEndsTheFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		s := startSourced(t, func(context.Context) ([]string, error) { <-answer; return []string{"b:1"}, nil })
		s.disconnects()
		if err := s.Replace(t.Context(), []string{"c:1"}, Server{}); err != nil {
			t.Fatal(err)
		}
		close(answer)
		time.Sleep(time.Hour)
		asked, changed := s.counts()
		if got := s.Names(); !slices.Equal(got, []string{"c:1"}) || len(asked) != 1 || changed > 0 {
			t.Errorf("%v, asked %d times, replaced %d times", got, len(asked), changed)
		}
		if _, from := s.Status(); from != Given || len(s.warnings()) > 0 {
			t.Errorf("from %v; %v", from, s.warnings())
		}
	})
}
