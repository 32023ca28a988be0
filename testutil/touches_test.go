package testutil_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/hidden"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The leader hears from a session at the half tick, or with a delay, or,
// through another member, half a tick after that member.
func TestWhenTheLeaderHears(t *testing.T) {
	for _, c := range []struct {
		name   string
		opts   []testutil.Option
		member int
		want   time.Duration // after the start, for a request sent at 2.5 s
	}{
		{name: "at the leader", member: 2, want: 2500 * time.Millisecond},
		{name: "at a follower", want: 3 * time.Second},
		{name: "late", opts: []testutil.Option{hidden.WithTouchDelays(func(member int) time.Duration {
			return time.Duration(member+1) * 250 * time.Millisecond
		})}, want: 3250 * time.Millisecond},
		{name: "late and slow", opts: []testutil.Option{
			hidden.WithTouchDelays(func(int) time.Duration { return 250 * time.Millisecond }),
			hidden.WithReportDelays(func(int) time.Duration { return 100 * time.Millisecond }),
		}, want: 3350 * time.Millisecond},
		{name: "second hop", opts: []testutil.Option{hidden.WithSecondHop(0, 1)}, want: 4 * time.Second},
		{name: "the member between", member: 1, opts: []testutil.Option{hidden.WithSecondHop(0, 1)}, want: 3 * time.Second},
		{name: "second hop by the leader", opts: []testutil.Option{hidden.WithSecondHop(0, 2)}, want: 3 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := testutil.Start(t, append(c.opts, testutil.InMemory(), testutil.WithMembers(3))...)
				if l := e.Leader(); l != 2 {
					t.Fatalf("member %d leads", l)
				}
				clock := newClock(t)
				p := single(t, e, c.member, 20*time.Second)
				clock.at(2500 * time.Millisecond)
				p.ok(wire.OpPing, nil)
				if c.want > 2500*time.Millisecond {
					clock.at(c.want - 1)
					if heard := e.Sessions()[0].LastTouch.Sub(clock.start); heard != 0 {
						t.Errorf("the leader has heard of it at %v, before %v", heard, c.want)
					}
				}
				clock.at(c.want)
				if heard := e.Sessions()[0].LastTouch.Sub(clock.start); heard != c.want {
					t.Errorf("the leader has heard of it at %v, not at %v", heard, c.want)
				}
			})
		})
	}
}

// Between two members everything stays in order, as on the real server's
// connections. The answer to a sync, or to a write, does not overtake a
// question of the leader that was sent before it. A sync does not overtake a
// report.
func TestWhatMembersSendEachOtherStaysInOrder(t *testing.T) {
	for _, c := range []struct {
		name   string
		member int
		opts   []testutil.Option
		sync   time.Duration // after the start, for a request sent at 3.1 s
	}{
		{name: "question", sync: 3400 * time.Millisecond, opts: []testutil.Option{
			hidden.WithTouchDelays(func(int) time.Duration { return 400 * time.Millisecond }),
		}},
		{name: "report", sync: 3400 * time.Millisecond, opts: []testutil.Option{
			hidden.WithReportDelays(func(int) time.Duration { return 400 * time.Millisecond }),
		}},
		{name: "question to the member between", sync: 3400 * time.Millisecond, opts: []testutil.Option{
			hidden.WithSecondHop(0, 1),
			hidden.WithTouchDelays(func(member int) time.Duration { return time.Duration(member) * 400 * time.Millisecond }),
		}},
		{name: "question to the member behind", sync: 3400 * time.Millisecond, opts: []testutil.Option{
			hidden.WithSecondHop(0, 1),
			hidden.WithTouchDelays(func(member int) time.Duration { return time.Duration(1-member) * 400 * time.Millisecond }),
		}},
	} {
		for _, op := range []wire.Op{wire.OpSync, wire.OpCreate} {
			t.Run(c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e := testutil.Start(t, append(c.opts, testutil.InMemory(), testutil.WithMembers(3))...)
					clock := newClock(t)
					p := single(t, e, 0, 20*time.Second)
					clock.at(2500 * time.Millisecond)
					p.ok(wire.OpPing, nil)
					clock.at(3100 * time.Millisecond)
					if op == wire.OpSync {
						p.send(op, &wire.PathRequest{Path: "/"})
					} else {
						p.send(op, &wire.CreateRequest{Path: "/a", ACL: anyone})
					}
					if code, answered := p.answer(10 * time.Second); !answered || code != wire.OK {
						t.Fatalf("%v, %t", code, answered)
					}
					if took := time.Since(clock.start); took != c.sync {
						t.Errorf("answered at %v, not at %v", took, c.sync)
					}
				})
			})
		}
	}
}

// A member behind another one is cut off with it, and its requests take the
// same way.
func TestSecondHopIsCutOffWithTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := testutil.Start(t, testutil.InMemory(), testutil.WithMembers(5), hidden.WithSecondHop(0, 1))
		p := single(t, e, 0, 20*time.Second)
		for _, fault := range []struct {
			name       string
			begin, end func() error
		}{
			{"pause", func() error { return e.Pause(1) }, func() error { return e.Resume(1) }},
			{"isolate", func() error { e.Isolate(1); return nil }, func() error { e.Heal(); return nil }},
			{"partition behind", func() error { e.Partition(0, 1); return nil }, func() error { e.Heal(); return nil }},
			{"partition before", func() error { e.Partition(1, 4); return nil }, func() error { e.Heal(); return nil }},
		} {
			p.ok(wire.OpSync, &wire.PathRequest{Path: "/"})
			must(t, fault.begin())
			p.send(wire.OpSync, &wire.PathRequest{Path: "/"})
			if _, answered := p.answer(time.Second); answered {
				t.Errorf("%s: a sync is answered", fault.name)
			}
			must(t, fault.end())
			if code, answered := p.answer(time.Second); !answered || code != wire.OK {
				t.Errorf("%s: after it: %v, %t", fault.name, code, answered)
			}
		}
		must(t, e.Stop(1))
		time.Sleep(5 * time.Second)
		if got := e.Leader(); got != 4 {
			t.Errorf("member %d leads", got)
		}
		must(t, e.Restart(1))
		must(t, e.WaitServing(t.Context()))
		for _, leader := range []int{4, 3} {
			must(t, e.Stop(leader))
			must(t, e.WaitServing(t.Context()))
			if got := e.Leader(); got == 0 {
				t.Error("the member behind another leads")
			}
			must(t, e.Restart(leader))
			must(t, e.WaitServing(t.Context()))
		}
	})
}

// A write through a member that is behind another one is answered at once.
func TestWritesThroughASecondHop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := testutil.Start(t, testutil.InMemory(), testutil.WithMembers(3), hidden.WithSecondHop(0, 1))
		clock := newClock(t)
		p := single(t, e, 0, 20*time.Second)
		clock.at(2300 * time.Millisecond)
		p.ok(wire.OpCreate, create("/a", "", 0))
		clock.at(2300 * time.Millisecond)
	})
}
