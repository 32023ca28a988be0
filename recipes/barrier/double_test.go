package barrier_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Members begin together and end together, in one round after the other, from
// every view and in any order, and leave nothing, also no watch. A known
// failure elsewhere: CURATOR-654.
func TestRounds(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		a, b, x := double(t, c, 3), double(t, c, 3), double(t, w.ConnectNext(), 3)
		for range 3 {
			round(t, a, b, x)
			round(t, x, a, a)
		}
		one := double(t, c, 1)
		round(t, one)
		nothingLeft(t, w)
	})
}

// The barrier can be used again at once, by members that are quick and slow.
func TestAtOnceAgain(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		const n, rounds = 5, 20
		results := make(chan error, n)
		at := make([]int, n) // each member's round; nobody is ahead of another by more than one
		for i := range n {
			d := double(t, w.Connect(fmt.Sprint(i)), n)
			w.ClientNet(fmt.Sprint(i)).Latency(time.Duration(i*i)*time.Millisecond, time.Duration(i)*time.Millisecond)
			go func() {
				results <- func() error {
					for round := range rounds {
						in, err := d.Enter(t.Context())
						if err != nil {
							return err
						}
						at[i] = round
						time.Sleep(time.Duration((i*7+round*3)%11) * time.Millisecond)
						if err := in.Leave(t.Context()); err != nil {
							return err
						}
						for k := range n {
							if at[k] < round {
								return fmt.Errorf("member %d has left round %d, and %d is in round %d", i, round, k, at[k])
							}
						}
					}
					return nil
				}()
			}()
		}
		for range n {
			must(t, bubble.Await(t, "a member", results))
		}
		nothingLeft(t, w)
	})
}

// What a round costs: see Enter and Leave.
func TestCosts(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead, or recursive watches
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		const n = 4
		var all []*barrier.Double
		for range n {
			all = append(all, double(t, w.ConnectNext(), n))
		}
		round(t, all...) // makes the directory
		w.ResetRequests()
		inside := enterTogether(t, all...)
		time.Sleep(time.Millisecond) // the watches are removed in the background
		got := fmt.Sprint(w.Cost())
		want := fmt.Sprint(map[testutil.Op]int{
			testutil.OpAddWatch: n, testutil.OpExists: n, testutil.OpCreate: n, testutil.OpGetChildren2: n, testutil.OpMulti: 1, testutil.OpRemoveWatches: n,
		})
		if got != want {
			t.Errorf("to enter: %v, want %v", got, want)
		}
		w.ResetRequests()
		leaveTogether(t, inside...)
		// One stays: it looks at the beginning and after each other. Each other
		// looks at the beginning and at the end.
		lists, watches := n+2*(n-1), 2*(n-1)
		if cost := w.Cost(); cost[testutil.OpMulti] != n || cost[testutil.OpGetChildren2] > lists || cost[testutil.OpGetData] > watches {
			t.Errorf("to leave: %v", cost)
		}
		nothingLeft(t, w)
	})
}

// A ready without members is what a crash has left: nobody passes alone,
// whatever was done to it before.
func TestReadyThatWasLeftBehind(t *testing.T) {
	for versions := range 3 {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			c, other := w.ConnectNext(), w.ConnectNext()
			must(t, c.MakeContainerPath(t.Context(), path))
			_, err := c.Create(t.Context(), ready, nil, zk.FlagPersistent)
			must(t, err)
			for range versions {
				_, err = c.Set(t.Context(), ready, nil, -1)
				must(t, err)
			}
			w.ResetRequests()
			round(t, double(t, c, 2), double(t, other, 2))
			if got := w.Cost()[testutil.OpSetData]; got != 1 {
				t.Errorf("marked %d times", got)
			}
			nothingLeft(t, w)
		})
	}
}

// Of a ready and a member that nobody of ours has made, ready counts if the
// member is not younger. A neighbor that came after a crash has passed alone,
// and makes nobody else pass.
func TestReadyAndANeighbor(t *testing.T) {
	const neighbor = path + "/neighbor"
	for name, each := range map[string]struct {
		order []string // in transactions
		open  bool
	}{
		"older":               {[]string{neighbor, ready}, true},
		"younger":             {[]string{ready, neighbor}, false},
		"in one transaction":  {[]string{neighbor + " " + ready}, true},
		"made the other way":  {[]string{ready + " " + neighbor}, true},
		"without a neighbor":  {[]string{ready}, false},
		"older, in late form": {[]string{path + "/_c_2f1b6a5e-9c0d-4e4f-8a39-0f4f6f2c1d77-late", ready}, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c := w.ConnectNext()
				must(t, c.MakeContainerPath(t.Context(), path))
				for _, paths := range each.order {
					var ops []any
					for _, made := range strings.Fields(paths) {
						create := &zk.CreateRequest{Path: made}
						if made != ready {
							create.Flags = zk.FlagEphemeral
						}
						ops = append(ops, create)
					}
					_, err := c.Multi(t.Context(), ops...)
					must(t, err)
				}
				first := entering(t.Context(), double(t, w.ConnectNext(), 3))
				if each.open {
					enter(t, first)
					return
				}
				pending(t, first)
			})
		})
	}
}

// A round whose members have all died does not let anybody pass, even if one
// that came late is still inside.
func TestARoundDies(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b, x, y := w.ConnectNext(), w.ConnectNext(), w.ConnectNext(), w.ConnectNext()
		enterTogether(t, double(t, a, 2), double(t, b, 2))
		late := enter(t, entering(t.Context(), double(t, x, 2)))
		w.Expire(a)
		later := enter(t, entering(t.Context(), double(t, y, 2))) // b holds the round
		w.Expire(b)
		first := entering(t.Context(), double(t, a, 2))
		pending(t, first)
		second := enter(t, entering(t.Context(), double(t, b, 2)))
		left := leaving(t.Context(), late)
		pending(t, left)
		leave(t, leaving(t.Context(), enter(t, first)), leaving(t.Context(), second), leaving(t.Context(), later), left)
		nothingLeft(t, w)
	})
}

// One that came late to a round keeps no later one open.
func TestLateForAnEarlierRound(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b, x := w.ConnectNext(), w.ConnectNext(), w.ConnectNext()
		da, db := double(t, a, 2), double(t, b, 2)
		enterTogether(t, da, db)
		late := enter(t, entering(t.Context(), double(t, x, 2)))
		w.Expire(a)
		w.Expire(b)
		enterTogether(t, da, db)
		w.Expire(a)
		w.Expire(b)
		first := entering(t.Context(), da)
		time.Sleep(time.Minute) // in a new session
		pending(t, first)
		left := leaving(t.Context(), late)
		second := enter(t, entering(t.Context(), db))
		leaveTogether(t, enter(t, first), second)
		leave(t, left)
		nothingLeft(t, w)
	})
}

// The create of a member is executed late, when it has been repeated: the
// member does not count twice.
func TestACreateThatIsRepeated(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries, bubble.ShortTimeout) // outlasts an outage; has times of its own
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		const n = 3
		c := w.Connect("ours")
		must(t, c.MakeContainerPath(t.Context(), path))
		release := make(chan struct{})
		held := testutil.NewFault(testutil.Match{Op: testutil.OpCreate}, testutil.Hold(release))
		defer w.Control(held.Control)()
		first := entering(t.Context(), double(t, c, n))
		bubble.Await(t, "the request", held.Hit())
		w.ClientNet("ours").Drop()
		pending(t, first)
		close(release)
		pending(t, first)
		if names := w.Children(path); len(names) != 2 {
			t.Errorf("%q, want two of one member", names)
		}
		second := entering(t.Context(), double(t, w.ConnectNext(), n))
		pending(t, first, second)
		third := enter(t, entering(t.Context(), double(t, w.ConnectNext(), n)))
		leaveTogether(t, enter(t, first), enter(t, second), third)
		nothingLeft(t, w)
	})
}

// The answer to a create is lost, and the connection ends again after the znode
// was found. Meanwhile the round has begun, with that znode. The member used to
// give it up and to create another one: it missed its round, and the others
// left without it. Found by the simulator.
func TestReconnectsWhileItsRoundBegins(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		ours, other := w.Connect("ours"), w.ConnectNext()
		must(t, ours.MakeContainerPath(t.Context(), path))
		net := w.ClientNet("ours")
		lost := testutil.NewFault(testutil.Match{Op: testutil.OpCreate}, testutil.DropAfter())
		defer net.Control(lost.Control)()
		found := testutil.NewFault(testutil.Match{Op: testutil.OpExists, Path: path + "/", Skip: 1}, testutil.HoldReply(nil)) // after ready
		defer net.Control(found.Control)()
		first := entering(t.Context(), double(t, ours, 2))
		bubble.Await(t, "the look at the znode", found.Hit())
		second := leaving(t.Context(), enter(t, entering(t.Context(), double(t, other, 2))))
		pending(t, second)
		net.Drop()
		leave(t, leaving(t.Context(), enter(t, first)), second)
		nothingLeft(t, w)
	})
}

// A member that has to begin again in the same session waits until its znode is
// gone, however long that takes: it does not count itself twice.
func TestBeginsAgainWhileItsZnodeStands(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		slow, a, b := w.Connect("slow", patient), w.ConnectNext(), w.ConnectNext()
		release := make(chan struct{})
		held := testutil.NewFault(testutil.Match{Op: testutil.OpCreate}, testutil.Hold(release))
		net := w.ClientNet("slow")
		stop := net.Control(held.Control)
		third := entering(t.Context(), double(t, slow, 2))
		bubble.Await(t, "the create", held.Hit())
		enterTogether(t, double(t, a, 2), double(t, b, 2)) // the third is younger than ready
		stop()
		stop = net.Control(testutil.NewFault(testutil.Match{Op: testutil.OpDelete, Times: 1 << 20}, testutil.Fail(testutil.CodeThrottled)).Control)
		close(release)
		time.Sleep(bubble.Timeout)
		w.Expire(a)
		w.Expire(b)
		time.Sleep(bubble.Timeout)
		if names := w.Children(path); len(names) != 2 {
			t.Errorf("there are %q, want ready and a member", names)
		}
		stop()
		time.Sleep(time.Minute)
		pending(t, third)
		in := enter(t, entering(t.Context(), double(t, a, 2)))
		leaveTogether(t, in, enter(t, third))
		nothingLeft(t, w)
	})
}

// If no server answers meanwhile, Enter fails once the retry budget is used up.
func TestBeginsNotAgainWithoutAServer(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		budget := 3 * bubble.Timeout
		slow := w.Connect("slow", framework.WithRetry(retry.NTimes(int(budget/time.Second), time.Second)))
		release := make(chan struct{})
		held := testutil.NewFault(testutil.Match{Op: testutil.OpCreate}, testutil.Hold(release))
		net := w.ClientNet("slow")
		stop := net.Control(held.Control)
		third := entering(t.Context(), double(t, slow, 2))
		bubble.Await(t, "the create", held.Hit())
		inside := enterTogether(t, double(t, w.ConnectNext(), 2), double(t, w.ConnectNext(), 2)) // the third is younger than ready
		stop()
		stop = net.Control(testutil.NewFault(testutil.Match{Op: testutil.OpDelete, Times: 1 << 20}, testutil.Fail(testutil.CodeThrottled)).Control)
		close(release)
		time.Sleep(time.Second)
		net.Cut()
		cut := time.Now()
		if err := bubble.Await(t, "the third", third).err; !errors.Is(err, zk.ErrNoServer) {
			t.Errorf("error %v, want %v", err, zk.ErrNoServer)
		}
		noticed := bubble.Timeout * 2 / 3 // at the latest
		if took, most := time.Since(cut), noticed+bubble.Timeout*5/2+budget+time.Second; took > most {
			t.Errorf("it failed after %v, want at most %v", took, most)
		}
		net.Heal()
		stop()
		leaveTogether(t, inside...)
		time.Sleep(time.Minute)
		nothingLeft(t, w)
	})
}

// The client gives its session up by its own clock, because it holds something.
// A new leader has given that session more time, so the member's znode still
// stands when it goes on in the next session. It waits until that is gone:
// neighbors would count it twice.
func TestItsEarlierSessionLivesOn(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		slow, other := w.Connect("slow", patient), w.ConnectNext(patient)
		release, err := w.Session(slow).Hold(nil) // as any lease of the client does
		must(t, err)
		defer release()
		first := entering(t.Context(), double(t, slow, 2))
		pending(t, first)
		net := w.ClientNet("slow")
		net.Cut()
		time.Sleep(bubble.Timeout * 9 / 10)
		leader := w.Leader()
		must(t, w.Stop(leader))
		time.Sleep(bubble.Timeout / 30)
		must(t, w.Restart(leader))
		time.Sleep(bubble.Timeout / 6)
		defer net.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpCloseSession {
				return testutil.Delay(bubble.Timeout / 6)
			}
			return testutil.Pass()
		})()
		net.Heal()
		for range 100 {
			time.Sleep(bubble.Timeout / 100)
			if names := w.Children(path); len(names) > 1 {
				t.Fatalf("it stands there twice: %v", names)
			}
		}
		pending(t, first)
		in := enter(t, entering(t.Context(), double(t, other, 2)))
		leaveTogether(t, in, enter(t, first))
		nothingLeft(t, w)
	}, testutil.WithMembers(3))
}

// One more than n enters, holds the round until it leaves, and counts for no
// other.
func TestOneMore(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		d, x := double(t, c, 2), double(t, w.ConnectNext(), 2)
		inside := enterTogether(t, d, d)
		late := enter(t, entering(t.Context(), x))
		again := enter(t, entering(t.Context(), x))
		first, second := leaving(t.Context(), inside[0]), leaving(t.Context(), inside[1])
		third := leaving(t.Context(), again)
		pending(t, first, second, third)
		leave(t, leaving(t.Context(), late), first, second, third)
		round(t, d, x)
		nothingLeft(t, w)
	})
}

// One that comes while the last member leaves is inside, and is not counted by
// the next round.
func TestOneMoreAtTheEnd(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("slow")
		d, x := double(t, c, 1), double(t, w.ConnectNext(), 2)
		in := enter(t, entering(t.Context(), d))
		release := make(chan struct{})
		held := testutil.NewFault(testutil.Match{Op: testutil.OpMulti}, testutil.Hold(release))
		w.ClientNet("slow").Control(held.Control)
		left := leaving(t.Context(), in) // it has seen nobody else
		bubble.Await(t, "the last request", held.Hit())
		late := enter(t, entering(t.Context(), x))
		close(release)
		leave(t, left)
		next := entering(t.Context(), x)
		pending(t, next)
		leave(t, leaving(t.Context(), late)) // it does not wait for the next round
		inside := enterTogether(t, x)
		leaveTogether(t, append(inside, enter(t, next))...)
		nothingLeft(t, w)
	})
}

// One has looked before the round is open, and creates its znode afterwards. So
// it is younger than ready without being late, until it knows. It never is the
// last one, for which all others wait.
func TestOneMoreAsTheRoundOpens(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		slow, other := w.Connect("slow"), w.ConnectNext()
		d, x := double(t, other, 2), double(t, slow, 2)
		for range 30 { // its name is sometimes lower, and sometimes higher
			release, answer := make(chan struct{}), make(chan struct{})
			held := testutil.NewFault(testutil.Match{Op: testutil.OpCreate}, testutil.Hold(release))
			unanswered := testutil.NewFault(testutil.Match{Op: testutil.OpGetChildren2}, testutil.HoldReply(answer))
			net := w.ClientNet("slow")
			stopHolding, stop := net.Control(held.Control), net.Control(unanswered.Control)
			young := entering(t.Context(), x)
			bubble.Await(t, "the create", held.Hit())
			inside := enterTogether(t, d, d)
			first := leaving(t.Context(), inside[1])
			pending(t, first)
			stopHolding()
			close(release)
			time.Sleep(time.Second)
			second := leaving(t.Context(), inside[0])
			pending(t, first, second)
			stop()
			close(answer)
			time.Sleep(time.Second)
			select {
			case e := <-young: // it is late
				must(t, e.err)
				leave(t, leaving(t.Context(), e.in))
			default: // it waits for the next round
				next := entering(t.Context(), d)
				in := enter(t, young)
				leaveTogether(t, in, enter(t, next))
			}
			leave(t, first, second)
		}
		nothingLeft(t, w)
	})
}

// An Enter that ends leaves nothing, so the next one waits. A known failure
// elsewhere: CURATOR-318.
func TestEnterThatEnds(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		d, other := double(t, c, 2), double(t, w.ConnectNext(), 2)
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := d.Enter(ctx)
			wantErr(t, err, context.DeadlineExceeded)
			next := entering(t.Context(), other) // at once
			pending(t, next)
			in := enter(t, entering(t.Context(), d))
			leaveTogether(t, in, enter(t, next))
		}
		cause := errors.New("not today")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		_, err := d.Enter(ctx)
		wantErr(t, err, context.Canceled, cause)
		nothingLeft(t, w)
	})
}

// An Enter ends while its create is on its way, which may also remove a ready
// that was left behind. When it returns the znode is gone, or if that takes
// long, soon after the create: nobody counts it.
func TestEnterThatEndsWhileItJoins(t *testing.T) {
	for _, joins := range []testutil.Op{testutil.OpCreate, testutil.OpMulti} {
		for _, takes := range []time.Duration{bubble.Timeout / 50, bubble.Timeout / 4} {
			bubble.Run(t, func(t *testing.T, w *bubble.World) { endsWhileItJoins(t, w, joins, takes) })
		}
	}
}

func endsWhileItJoins(t *testing.T, w *bubble.World, joins testutil.Op, takes time.Duration) {
	slow, other := w.Connect("slow"), w.ConnectNext()
	must(t, other.MakeContainerPath(t.Context(), path))
	if joins == testutil.OpMulti {
		_, err := other.Create(t.Context(), ready, nil, zk.FlagPersistent)
		must(t, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sent := testutil.NewFault(testutil.Match{Op: joins}, testutil.DelayReply(takes))
	w.ClientNet("slow").Control(sent.Control)
	first := entering(ctx, double(t, slow, 2))
	bubble.Await(t, "the create", sent.Hit())
	cancel()
	began := time.Now()
	wantErr(t, bubble.Await(t, "Enter", first).err, context.Canceled)
	if took := time.Since(began); took > bubble.Timeout/5 {
		t.Errorf("it took %v to end", took)
	}
	if takes > bubble.Timeout/10 {
		time.Sleep(takes)
	}
	if names := w.Children(path); len(names) > 0 {
		t.Errorf("left: %v", names)
	}
	second := entering(t.Context(), double(t, other, 2))
	pending(t, second)
	in := enter(t, entering(t.Context(), double(t, slow, 2)))
	leaveTogether(t, in, enter(t, second))
	nothingLeft(t, w)
}

// The connection ends at each of the first requests to watch ready. Each
// try ends by itself.
func TestTheWatchOfReadyFailsAgainAndAgain(t *testing.T) {
	for name, drop := range map[string]testutil.Action{"before it": testutil.DropBefore(), "after it": testutil.DropAfter()} {
		for times := range 5 {
			t.Run(fmt.Sprint(times, " times ", name), func(t *testing.T) {
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					d, other := double(t, w.ConnectNext(patient), 2), double(t, w.ConnectNext(patient), 2)
					defer w.Control(testutil.NewFault(testutil.Match{Op: testutil.OpAddWatch, Times: times + 1}, drop).Control)()
					first, second := entering(t.Context(), d), entering(t.Context(), other)
					leaveTogether(t, enter(t, first), enter(t, second))
					nothingLeft(t, w)
				})
			})
		}
	}
}

// A server that cannot arm the watch of ready at the moment is tried three
// times. Then a watch of another kind serves.
func TestTheWatchOfReadyIsRefused(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead, or recursive watches
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := double(t, w.ConnectNext(), 2), double(t, w.ConnectNext(), 2)
		w.Latency(time.Millisecond)
		var asked atomic.Int32
		defer w.Control(func(r testutil.Request) testutil.Action {
			if r.Op != testutil.OpAddWatch {
				return testutil.Pass()
			}
			asked.Add(1)
			return testutil.Fail(testutil.CodeSystemError)
		})()
		first := entering(t.Context(), a)
		time.Sleep(time.Second)
		if n := asked.Load(); n != 6 { // two a try
			t.Errorf("%d requests", n)
		}
		second := entering(t.Context(), b)
		leaveTogether(t, enter(t, first), enter(t, second))
		nothingLeft(t, w)
	})
}

// Whatever wakes a member that waits, only ready lets it pass. A known failure
// elsewhere: GH-1290 of Curator.
func TestWokenByAnythingElse(t *testing.T) {
	for name, wake := range map[string]func(t *testing.T, w *bubble.World, c, other *framework.Client){
		"a reconnect": func(_ *testing.T, w *bubble.World, _, _ *framework.Client) { w.ClientNet("waits").Drop() },
		"a new session": func(_ *testing.T, w *bubble.World, c, _ *framework.Client) {
			w.Expire(c)
		},
		"an outage": func(_ *testing.T, w *bubble.World, _, _ *framework.Client) {
			w.ClientNet("waits").Cut()
			time.Sleep(time.Minute)
			w.ClientNet("waits").Heal()
		},
		"its znode is deleted": func(t *testing.T, w *bubble.World, _, other *framework.Client) {
			must(t, other.Delete(t.Context(), path+"/"+w.Children(path)[0], -1))
		},
		"its znode is written": func(t *testing.T, w *bubble.World, _, other *framework.Client) {
			_, err := other.Set(t.Context(), path+"/"+w.Children(path)[0], nil, -1)
			must(t, err)
		},
		"others come and go": func(t *testing.T, _ *bubble.World, _, other *framework.Client) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := double(t, other, 3).Enter(ctx)
			wantErr(t, err, context.DeadlineExceeded)
		},
		"nothing, for long": func(*testing.T, *bubble.World, *framework.Client, *framework.Client) { time.Sleep(10 * time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, other := w.Connect("waits", patient), w.ConnectNext()
				first := entering(t.Context(), double(t, c, 2))
				pending(t, first)
				wake(t, w, c, other)
				time.Sleep(time.Minute)
				pending(t, first)
				in := enter(t, entering(t.Context(), double(t, other, 2)))
				leaveTogether(t, in, enter(t, first))
				nothingLeft(t, w)
			})
		})
	}
}

// ready is created before a member that waits hears of it again, after a
// reconnect. It does not wait for its next look.
func TestReadyBeforeTheWatchIsBack(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead, or recursive watches
	for arms, opts := range map[testutil.Op][]testutil.Option{testutil.OpAddWatch: nil, testutil.OpExists: {testutil.WithoutNewOperations()}} {
		t.Run(fmt.Sprint(arms), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				slow, other := w.Connect("slow", patient), w.ConnectNext()
				first := entering(t.Context(), double(t, slow, 2))
				pending(t, first)
				release := make(chan struct{})
				held := testutil.NewFault(testutil.Match{Op: arms}, testutil.Hold(release))
				net := w.ClientNet("slow")
				stop := net.Control(held.Control)
				net.Drop()
				bubble.Await(t, "the watch", held.Hit())
				second := enter(t, entering(t.Context(), double(t, other, 2)))
				stop()
				close(release)
				began := time.Now()
				leaveTogether(t, enter(t, first), second)
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("it took %v", took)
				}
				nothingLeft(t, w)
			}, opts...)
		})
	}
}

// The create is repeated after a reconnect. A round that has ended meanwhile
// does not let the member pass.
func TestRoundThatEndsDuringAnOutage(t *testing.T) {
	bubble.Usual(t, bubble.ShortTimeout) // has times of its own
	for _, opts := range [][]testutil.Option{nil, {testutil.WithoutNewOperations()}} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			slow, other := w.Connect("slow", patient), w.ConnectNext()
			d := double(t, other, 2)
			held := testutil.NewFault(testutil.Match{Op: testutil.OpCreate}, testutil.Hold(nil))
			net := w.ClientNet("slow")
			stop := net.Control(held.Control)
			third := entering(t.Context(), double(t, slow, 2))
			bubble.Await(t, "the create", held.Hit())
			inside := enterTogether(t, d, d) // the third hears of it
			pending(t, third)
			net.Cut()
			net.Drop()
			leaveTogether(t, inside...)
			stop()
			net.Heal()
			time.Sleep(time.Minute)
			pending(t, third)
			in := enter(t, entering(t.Context(), d))
			leaveTogether(t, in, enter(t, third))
			nothingLeft(t, w)
		}, opts...)
	}
}

// Kazoo's members delete ready as soon as they leave: its creation alone lets a
// member pass, on old servers too.
func TestReadyIsGoneAtOnce(t *testing.T) {
	for _, opts := range [][]testutil.Option{nil, {testutil.WithoutNewOperations()}} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			c, other := w.ConnectNext(), w.ConnectNext()
			first := entering(t.Context(), double(t, c, 2))
			pending(t, first)
			_, err := other.Multi(t.Context(), &zk.CreateRequest{Path: ready}, &zk.DeleteRequest{Path: ready})
			must(t, err)
			leave(t, leaving(t.Context(), enter(t, first)))
			nothingLeft(t, w)
		}, opts...)
	}
}

// A member that dies inside, or before, keeps nobody. The oldest one stays in
// the barrier until all others have left.
func TestAMemberDies(t *testing.T) {
	for _, who := range []string{"the oldest", "the others"} {
		t.Run(who, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				a, b, x := w.ConnectNext(), w.ConnectNext(), w.ConnectNext()
				first := entering(t.Context(), double(t, x, 3))
				dies := entering(t.Context(), double(t, b, 3))
				pending(t, first, dies)
				must(t, b.Close())
				wantErr(t, bubble.Await(t, "Enter", dies).err, framework.ErrClosed)
				second := entering(t.Context(), double(t, a, 3))
				pending(t, first, second)
				third := entering(t.Context(), double(t, a, 3))
				oldest := enter(t, first)
				others := []*barrier.Inside{enter(t, second), enter(t, third)}
				members := func(want int) {
					t.Helper()
					if names := w.Children(path); len(names) != want+1 { // and ready
						t.Errorf("%v, want %d members", names, want)
					}
				}
				if who == "the oldest" {
					one, two := leaving(t.Context(), others[0]), leaving(t.Context(), others[1])
					pending(t, one, two)
					members(1)
					w.Expire(x)
					leave(t, one, two)
					wantErr(t, oldest.Leave(t.Context()), barrier.ErrGone, framework.ErrSessionLost)
				} else {
					left := leaving(t.Context(), oldest)
					pending(t, left)
					members(3)
					w.Expire(a)
					leave(t, left)
					for _, in := range others {
						wantErr(t, in.Leave(t.Context()), barrier.ErrGone, framework.ErrSessionLost)
					}
				}
				nothingLeft(t, w)
			})
		})
	}
}

// Leave says that its member was not in the round until its end, and says the
// same again.
func TestAMemberWasDeleted(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := w.ConnectNext(), w.ConnectNext()
		d := double(t, a, 2)
		inside := enterTogether(t, d, double(t, b, 2))
		for _, name := range w.Children(path) {
			if stat, _ := w.Stat(path + "/" + name); stat.EphemeralOwner == w.SessionID(a) {
				must(t, b.Delete(t.Context(), path+"/"+name, -1))
			}
		}
		err := inside[0].Leave(t.Context())
		wantErr(t, err, barrier.ErrGone)
		ended, end := context.WithCancel(t.Context())
		end()
		for range 20 {
			wantErr(t, inside[0].Leave(ended), err)
		}
		leave(t, leaving(t.Context(), inside[1]))
		nothingLeft(t, w)
	})
}

// A Leave that ends early does not keep the others, and is not made again.
func TestLeaveThatEnds(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := w.ConnectNext(), w.ConnectNext()
		for range 4 { // each of them stays sometimes
			inside := enterTogether(t, double(t, a, 2), double(t, b, 2))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			first := leaving(ctx, inside[0])
			time.Sleep(time.Millisecond)
			again := leaving(t.Context(), inside[0])
			other, stop := context.WithCancel(t.Context())
			stop()
			wantErr(t, inside[0].Leave(other), context.Canceled)
			wantErr(t, bubble.Await(t, "Leave", first), context.DeadlineExceeded)
			wantErr(t, bubble.Await(t, "Leave again", again), context.DeadlineExceeded)
			leave(t, leaving(t.Context(), inside[1]))
		}
		nothingLeft(t, w)
	})
}

// lateContext lets no call go on between two moments.
type lateContext struct {
	context.Context
	from, until <-chan struct{}
}

func (c lateContext) Err() error {
	select {
	case <-c.from:
		<-c.until
	default:
	}
	return c.Context.Err()
}

// The answer to the last request of a Leave is lost with its connection, and
// the session ends before Leave looks at that. Its error told of the connection
// alone.
func TestTheSessionEndsAfterALostAnswer(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("ours")
		s := w.Session(c)
		in := enter(t, entering(t.Context(), double(t, c, 1)))
		lost := testutil.NewFault(testutil.Match{Op: testutil.OpMulti}, testutil.DropAfter())
		defer w.ClientNet("ours").Control(lost.Control)()
		left := leaving(lateContext{t.Context(), lost.Hit(), s.Done()}, in)
		bubble.AwaitTrue(t, "the request to be executed", func() bool { return !w.Exists(ready) })
		must(t, w.ExpireSession(s.ID()))
		wantErr(t, bubble.Await(t, "Leave", left), framework.ErrSessionLost)
		nothingLeft(t, w)
	})
}

// What is executed late harms no later round: the mark and the delete of a
// ready that was left behind, and the creation of ready.
func TestLateRequests(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead, or recursive watches
	for name, late := range map[string]struct {
		op     testutil.Op
		stale  bool
		first  int // how many wait before the slow one comes
		answer error
	}{
		"a mark":         {op: testutil.OpSetData, stale: true},
		"a delete":       {op: testutil.OpMulti, stale: true},
		"an opening":     {op: testutil.OpMulti, first: 1},
		"a create":       {op: testutil.OpCreate},
		"a late create":  {op: testutil.OpMulti, first: 2},
		"the list":       {op: testutil.OpGetChildren2},
		"a first look":   {op: testutil.OpExists, stale: true},
		"a watch":        {op: testutil.OpAddWatch},
		"all of a judge": {op: testutil.OpMultiRead, first: 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				slow, other := w.Connect("slow"), w.ConnectNext()
				d := double(t, other, 2)
				must(t, other.MakeContainerPath(t.Context(), path))
				if late.stale {
					_, err := other.Create(t.Context(), ready, nil, zk.FlagPersistent)
					must(t, err)
				}
				var before []<-chan entered
				for range late.first {
					before = append(before, entering(t.Context(), d))
				}
				time.Sleep(time.Second)
				release := make(chan struct{})
				held := testutil.NewFault(testutil.Match{Op: late.op}, testutil.Hold(release))
				w.ClientNet("slow").Control(held.Control)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				result := entering(ctx, double(t, slow, 2))
				bubble.Await(t, "the request", held.Hit())
				// Another round begins and ends meanwhile.
				if late.first == 0 {
					before = append(before, entering(t.Context(), d))
				}
				if late.first < 2 {
					before = append(before, entering(t.Context(), d))
				}
				inside := []*barrier.Inside{enter(t, before[0]), enter(t, before[1])}
				_, opened, err := other.Exists(t.Context(), ready)
				must(t, err)
				close(release)
				enter(t, result) // the round is open: it is late, or one of them
				must(t, other.Sync(t.Context(), ready))
				if _, now, err := other.Exists(t.Context(), ready); err != nil || now == nil || now.Czxid != opened.Czxid {
					t.Errorf("the ready %+v of the round has become %+v, %v", opened, now, err)
				}
				must(t, slow.Close())
				leaveTogether(t, inside...)
				nothingLeft(t, w)
			})
		})
	}
}

// A member of an earlier round, in the shape of a late request, is no trap for
// the next one: ready is created only while all n are there.
func TestOpeningThatIsLate(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		slow, other := w.Connect("slow"), w.ConnectNext()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		first := entering(ctx, double(t, other, 2))
		pending(t, first)
		release := make(chan struct{})
		held := testutil.NewFault(testutil.Match{Op: testutil.OpMulti}, testutil.Hold(release))
		w.ClientNet("slow").Control(held.Control)
		second := entering(t.Context(), double(t, slow, 2))
		bubble.Await(t, "the request", held.Hit())
		cancel() // the first leaves before the round is open
		wantErr(t, bubble.Await(t, "Enter", first).err, context.Canceled)
		time.Sleep(time.Second)
		close(release)
		pending(t, second)
		in := enter(t, entering(t.Context(), double(t, other, 2)))
		leaveTogether(t, in, enter(t, second))
		nothingLeft(t, w)
	})
}

// The znodes: the data are the identifier, the ACL is the member's, and the
// directories are containers.
func TestZnodes(t *testing.T) {
	bubble.Usual(t, bubble.NoContainers) // looks for containers

	named := regexp.MustCompile(`^_c_[0-9a-f-]{36}-member-[0-9a-f]{12}-[0-9]{10}$`) // clients of all releases have to read it
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		acl := zk.ACL{Perms: zk.PermRead | zk.PermDelete, Scheme: "world", ID: "anyone"}
		d := double(t, c, 1, recipes.WithData([]byte("worker-7")), recipes.WithACL(acl), recipes.WithLabel("workers"))
		in := enter(t, entering(t.Context(), d))
		for _, name := range w.Children(path) {
			data, _ := w.Data(path + "/" + name)
			got, _, err := c.GetACL(t.Context(), path+"/"+name)
			must(t, err)
			if name == "ready" {
				if len(data) > 0 || got[0].Perms != zk.PermAll {
					t.Errorf("ready: %q %v", data, got)
				}
			} else if string(data) != "worker-7" || got[0] != acl || !named.MatchString(name) {
				t.Errorf("%s: %q %v", name, data, got)
			}
		}
		leave(t, leaving(t.Context(), in))
		time.Sleep(5 * time.Minute)
		if w.Exists("/app") {
			t.Error("the directories are not containers")
		}
	})
}

// What makes no sense is an error that names it, and zero values fail.
func TestBadValues(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		for want, make := range map[string]func() error{
			"client is nil": func() error { _, err := barrier.NewDouble(nil, path, 2); return err },
			"client":        func() error { _, err := barrier.New(nil, path); return err },
			"path":          func() error { _, err := barrier.New(c, "barrier"); return err },
			"path /":        func() error { _, err := barrier.NewDouble(c, "/", 2); return err },
			"n is 0":        func() error { _, err := barrier.NewDouble(c, path, 0); return err },
			"n is -1":       func() error { _, err := barrier.NewDouble(c, path, -1); return err },
			"option <nil>":  func() error { _, err := barrier.New(c, path, nil); return err },
			"not one of":    func() error { _, err := barrier.NewDouble(c, path, 2, struct{ barrier.Option }{}); return err },
		} {
			if err := make(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		var b *barrier.Barrier
		var d *barrier.Double
		var in *barrier.Inside
		for range 2 {
			_, err := d.Enter(t.Context())
			for _, err := range []error{err, b.Set(t.Context()), b.Remove(t.Context()), b.Wait(t.Context()), in.Leave(t.Context())} {
				wantErr(t, err, framework.ErrClosed)
			}
			b, d, in = &barrier.Barrier{}, &barrier.Double{}, &barrier.Inside{}
		}
		must(t, c.Close())
		closed := double(t, c, 1)
		_, err := closed.Enter(t.Context())
		wantErr(t, err, framework.ErrClosed)
	})
}

// The transaction that opens a round checks as many members as it needs, each
// of them once, its own first.
func TestWhatOpensARound(t *testing.T) {
	for _, n := range []int{1, 2, 3} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			var checked []string
			w.Control(func(r testutil.Request) testutil.Action {
				if r.Does(testutil.OpCreate, ready) {
					for _, o := range r.Operations {
						checked = append(checked, o.Path)
					}
				}
				return testutil.Pass()
			})
			var all []*barrier.Double
			for range n {
				all = append(all, double(t, w.ConnectNext(), n))
			}
			enterTogether(t, all...)
			slices.Sort(checked)
			if len(checked) != n+1 || len(slices.Compact(checked)) != n+1 {
				t.Errorf("of %d: %q", n, checked)
			}
		})
	}
}

// A member leaves after one that comes has listed it, and before it is read.
func TestLeavesWhileAnotherComes(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead, or recursive watches
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, others := w.Connect("ours"), w.ConnectNext()
		must(t, others.MakeContainerPath(t.Context(), path))
		names := make([]string, 2) // in the order in which they are read
		for i := range names {
			names[i] = fmt.Sprintf("%s/_c_0000000%d-0000-4000-8000-000000000000-member-aaaaaaaaaaa%d-000000000%d", path, i, i, i)
			_, err := others.Create(t.Context(), names[i], nil, zk.FlagEphemeral)
			must(t, err)
		}
		_, err := others.Create(t.Context(), ready, nil, zk.FlagPersistent)
		must(t, err)
		late := testutil.NewFault(testutil.Match{Op: testutil.OpMultiRead}, testutil.Delay(time.Second))
		defer w.ClientNet("ours").Control(late.Control)()
		result := entering(t.Context(), double(t, c, 2))
		bubble.Await(t, "the reads", late.Hit())
		must(t, others.Delete(t.Context(), names[0], -1))
		enter(t, result)
	})
}
