package rwlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Readers of a process in which others already read share their znode, after
// one look at the line.
func TestLateReadersShare(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		rw := clients(w, 2)
		first, elsewhere := bubble.Acquire(t, t.Context(), rw[0].Reader()), bubble.Acquire(t, t.Context(), rw[1].Reader())
		w.ResetRequests()
		var late []*recipes.Lease
		for range 20 {
			late = append(late, bubble.Acquire(t, t.Context(), rw[0].Reader()))
		}
		if cost := w.Cost(); len(cost) != 1 || cost[testutil.OpGetChildren2] != 1 {
			t.Errorf("requests: %v, want one list", cost)
		}
		bubble.Release(t, first)
		bubble.Release(t, late[:10]...)
		late = append(late[10:], bubble.Acquire(t, t.Context(), rw[0].Reader()))
		for _, l := range late {
			if !l.Held() || l.Path() != first.Path() {
				t.Errorf("%s, %v", l.Path(), l.Err())
			}
		}
		bubble.Release(t, append(late, elsewhere)...)
		w.Empty(path)
	})
}

// Readers do not overtake a writer that waits in the same process or in
// another.
func TestWaitingWriterEndsSharing(t *testing.T) {
	for _, where := range []string{"same process", "elsewhere", "elsewhere, not yet seen"} {
		t.Run(where, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				rw := clients(w, 2)
				reading := []*recipes.Lease{bubble.Acquire(t, t.Context(), rw[0].Reader())}
				if where != "elsewhere, not yet seen" {
					reading = append(reading, bubble.Acquire(t, t.Context(), rw[0].Reader()))
				}
				rival := rw[1]
				if where == "same process" {
					rival = rw[0]
				}
				writer := bubble.Acquiring(t.Context(), rival.Writer())
				w.InLine(path, 2)
				late := bubble.Acquiring(t.Context(), rw[0].Reader())
				w.InLine(path, 3)
				bubble.Pending(t, writer, late)
				bubble.Release(t, reading...)
				writing := bubble.Granted(t, writer).Lease
				bubble.Pending(t, late)
				bubble.Release(t, writing)
				bubble.Release(t, bubble.Granted(t, late).Lease)
				w.Empty(path)
			})
		})
	}
}

// A downgraded read stands behind the write's znode, so this znode cannot be
// handed off to another writer, not even while the read's znode is being
// created.
func TestDowngradedWriteIsNotHandedOff(t *testing.T) {
	for _, early := range []bool{false, true} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			w.Latency(5 * time.Millisecond)
			rw := clients(w, 1)[0]
			writing := bubble.Acquire(t, t.Context(), rw.Writer())
			next := bubble.Acquiring(t.Context(), rw.Writer())
			time.Sleep(50 * time.Millisecond) // until it is known that nobody else is in line
			down := bubble.Acquiring(writing.Context(), rw.Reader())
			if early {
				synctest.Wait()
				go writing.Release(context.Background())
			} else {
				time.Sleep(50 * time.Millisecond)
				bubble.Release(t, writing)
			}
			g := <-down
			if g.Err == nil {
				time.Sleep(time.Second)
				bubble.Pending(t, next)
				if !g.Lease.Held() {
					t.Error("the read is not held")
				}
				bubble.Release(t, g.Lease)
			} else if !early {
				t.Error(g.Err)
			}
			bubble.Release(t, bubble.Granted(t, next).Lease)
			w.Empty(path)
		})
	}
}

// While the lock lingers, repeated reads send no request, and a writer is
// granted at once.
func TestReadLingers(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		rw := clients(w, 2, recipes.WithLinger(time.Minute))
		bubble.Release(t, bubble.Acquire(t, t.Context(), rw[0].Reader()))
		w.ResetRequests()
		for range 100 {
			one, two := bubble.Acquire(t, t.Context(), rw[0].Reader()), bubble.Acquire(t, t.Context(), rw[0].Reader())
			bubble.Release(t, two, one)
		}
		if cost := w.Cost(); len(cost) > 0 {
			t.Errorf("requests: %v", cost)
		}
		began := time.Now()
		for _, side := range []recipes.Acquirer{rw[0].Writer(), rw[1].Reader(), rw[0].Writer(), rw[1].Writer()} {
			bubble.Release(t, bubble.Acquire(t, t.Context(), side))
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("granted after %v", took)
		}
		time.Sleep(2 * time.Minute)
		w.Empty(path)
	})
}

// A read that has given out a guard is not shared with later readers.
func TestGuardedReadIsNotShared(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		rw := clients(w, 1)[0]
		first := bubble.Acquire(t, t.Context(), rw.Reader())
		first.Guard()
		second := bubble.Acquire(t, t.Context(), rw.Reader())
		if first.Path() == second.Path() {
			t.Error("the znode was shared")
		}
		bubble.Release(t, first, second)
		w.Empty(path)
	})
}

// Later readers with different maximum hold times are all granted.
func TestLateReadersWithDifferentMaxHolds(t *testing.T) {
	for _, first := range []string{"reading", "released meanwhile"} {
		t.Run(first, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				w.Latency(5 * time.Millisecond)
				c := w.Connect("a")
				short, long := newLock(t, c, recipes.WithMaxHold(time.Second)), newLock(t, c)
				l := bubble.Acquire(t, t.Context(), long.Reader())
				late := []<-chan bubble.Grant{
					bubble.Acquiring(t.Context(), long.Reader()), bubble.Acquiring(t.Context(), short.Reader()), bubble.Acquiring(t.Context(), long.Reader()),
				}
				synctest.Wait() // a look whether a writer waits is under way
				if first == "released meanwhile" {
					bubble.Release(t, l)
				}
				for _, granted := range late {
					select {
					case g := <-granted:
						if g.Err != nil {
							t.Fatal(g.Err)
						}
						defer bubble.Release(t, g.Lease)
					case <-time.After(500 * time.Millisecond):
						t.Fatal("a reader waits, although there is no writer")
					}
				}
			})
		})
	}
}

// Readers of other processes that join and leave do not wake a herd: a process
// whose readers share a znode looks at the line when another of its own readers
// comes.
func TestReadersElsewhereWakeNobody(t *testing.T) {
	for _, linger := range []time.Duration{0, time.Minute} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			w.Latency(time.Millisecond)
			rw := clients(w, 5, recipes.WithLinger(linger))
			elsewhere := newLock(t, w.Connect("elsewhere"))
			for _, rw := range rw {
				held, late := bubble.Acquire(t, t.Context(), rw.Reader()), bubble.Acquire(t, t.Context(), rw.Reader())
				if linger > 0 {
					bubble.Release(t, held, late)
				}
			}
			time.Sleep(time.Second)
			w.ResetRequests()
			began := time.Now()
			for range 200 {
				bubble.Release(t, bubble.Acquire(t, t.Context(), elsewhere.Reader()))
			}
			took := time.Since(began)
			if got, most := w.Cost()[testutil.OpGetChildren2], 200+5*30; got > most {
				t.Errorf("%d lists in %v, want at most %d", got, took, most)
			}
		})
	}
}

// A znode shared under WithMaxHold has one time limit, so later readers do not
// share it, and it does not linger.
func TestReadWithMaxHoldIsNotShared(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		limited := newLock(t, c, recipes.WithMaxHold(10*time.Second), recipes.WithLinger(time.Minute))
		unlimited := newLock(t, c)
		first := bubble.Acquire(t, t.Context(), limited.Reader())
		time.Sleep(9 * time.Second)
		late := []*recipes.Lease{bubble.Acquire(t, t.Context(), unlimited.Reader()), bubble.Acquire(t, t.Context(), limited.Reader())}
		bubble.Lost(t, first)
		for _, l := range late {
			if !l.Held() || l.Path() == first.Path() {
				t.Errorf("%s, after %s: %v", l.Path(), first.Path(), l.Err())
			}
		}
		bubble.Release(t, late...)
		bubble.WantErr(t, first.Release(t.Context()), recipes.ErrMaxHold)
		w.InLine(path, 0)
		w.Empty(path)
	})
}

// A znode that is being removed is not shared.
func TestLeavingReadIsNotShared(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		w.Latency(5 * time.Millisecond)
		rw := clients(w, 1)[0]
		first, second := bubble.Acquire(t, t.Context(), rw.Reader()), bubble.Acquire(t, t.Context(), rw.Reader())
		bubble.Release(t, first)
		go second.Release(context.Background())
		time.Sleep(time.Millisecond)
		late := bubble.Acquire(t, t.Context(), rw.Reader())
		if late.Path() == first.Path() {
			t.Error("the znode was shared")
		}
		time.Sleep(time.Second)
		w.InLine(path, 1)
		later := bubble.Acquire(t, t.Context(), rw.Reader())
		bubble.Release(t, late, later)
		if last := bubble.Acquire(t, t.Context(), rw.Reader()); last.Path() == later.Path() {
			t.Error("a removed znode was shared")
		} else {
			bubble.Release(t, last)
		}
		w.Empty(path)
	})
}

// A reader with WithMaxHold does not share a znode without a limit, whether or
// not the line has been looked at before.
func TestReaderWithMaxHoldIsLimited(t *testing.T) {
	for _, known := range []bool{false, true} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			c := w.Connect("a")
			unlimited, limited := newLock(t, c), newLock(t, c, recipes.WithMaxHold(time.Second))
			reading := []*recipes.Lease{bubble.Acquire(t, t.Context(), unlimited.Reader())}
			if known {
				reading = append(reading, bubble.Acquire(t, t.Context(), unlimited.Reader()))
			}
			l := bubble.Acquire(t, t.Context(), limited.Reader())
			granted := time.Now()
			if held := bubble.Lost(t, l).Sub(granted); held != time.Second {
				t.Errorf("held for %v", held)
			}
			bubble.Release(t, reading...)
			bubble.WantErr(t, l.Release(t.Context()), recipes.ErrMaxHold)
			w.Empty(path)
		})
	}
}

// A reader that may share the znode of its process does not overtake one that
// came before, and has to stand in line.
func TestReadersOfOneProcessAreServedInOrder(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		unlimited, limited := newLock(t, c), newLock(t, c, recipes.WithMaxHold(time.Hour))
		reading := []*recipes.Lease{bubble.Acquire(t, t.Context(), unlimited.Reader()), bubble.Acquire(t, t.Context(), unlimited.Reader())}
		w.Latency(time.Millisecond)
		first := bubble.Acquiring(t.Context(), limited.Reader())
		synctest.Wait()
		second := bubble.Acquiring(t.Context(), unlimited.Reader())
		bubble.Pending(t, first, second)
		one, two := bubble.Granted(t, first), bubble.Granted(t, second)
		if two.At.Before(one.At) {
			t.Errorf("the second was granted %v before the first", one.At.Sub(two.At))
		}
		bubble.Release(t, append(reading, one.Lease, two.Lease)...)
		w.Empty(path)
	})
}

// Readers that waited behind a writer, and may not share, are granted together
// nevertheless.
func TestReadersWithDifferentMaxHoldsBehindAWriter(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		limited, unlimited := newLock(t, c, recipes.WithMaxHold(time.Hour)), newLock(t, c)
		writing := bubble.Acquire(t, t.Context(), newLock(t, w.Connect("b")).Writer())
		var waiting []<-chan bubble.Grant
		for _, rw := range []*rwlock.RWLock{limited, unlimited, limited} {
			waiting = append(waiting, bubble.Acquiring(t.Context(), rw.Reader()))
			synctest.Wait()
		}
		bubble.Release(t, writing)
		for _, granted := range waiting {
			defer bubble.Release(t, bubble.Granted(t, granted).Lease)
		}
	})
}

// A downgraded read has the token of its write, even if the write's znode was
// handed off before.
func TestDowngradeAfterAHandoff(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		rw := clients(w, 1)[0]
		first := bubble.Acquire(t, t.Context(), rw.Writer())
		waiting := bubble.Acquiring(t.Context(), rw.Writer())
		bubble.Pending(t, waiting)
		bubble.Release(t, first)
		writing := bubble.Granted(t, waiting).Lease
		reading := bubble.Acquire(t, writing.Context(), rw.Reader())
		if writing.Token().Compare(first.Token()) <= 0 || reading.Token() != writing.Token() {
			t.Errorf("tokens: first %v, second %v, read of the second %v", first.Token(), writing.Token(), reading.Token())
		}
		bubble.Release(t, writing, reading)
		w.Empty(path)
	})
}

// A try that comes while the process removes the lingering znode of the other
// side waits for the delete, although it has to be sent again: the lock is
// free.
func TestTryAsTheOtherSideStopsLingering(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		w.Latency(5 * time.Millisecond)
		rw := clients(w, 1, recipes.WithLinger(time.Second))[0]
		for _, sides := range [][2]recipes.Acquirer{{rw.Reader(), rw.Writer()}, {rw.Writer(), rw.Reader()}} {
			bubble.Release(t, bubble.Acquire(t, t.Context(), sides[0]))
			w.Once(testutil.OpDelete, path, testutil.Fail(testutil.CodeThrottled))
			time.Sleep(time.Second + time.Millisecond) // the delete is under way
			w.InLine(path, 1)
			l, err := sides[1].TryAcquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			bubble.Release(t, l)
			time.Sleep(2 * time.Second)
		}
		w.Empty(path)
	})
}

// Reader().TryAcquire is granted while a write of the same process lingers, and
// Writer().TryAcquire while a read lingers. What lingers in another process
// makes the lock busy.
func TestTryWhileOtherSideLingers(t *testing.T) {
	type side = func(*rwlock.RWLock) recipes.Acquirer
	reader, writer := (*rwlock.RWLock).Reader, (*rwlock.RWLock).Writer
	for name, test := range map[string]struct {
		lingers []side // each of another client
		at      int
		tries   side
		err     error
	}{
		"a reader after its own writer":           {[]side{writer}, 0, reader, nil},
		"a writer after its own reader":           {[]side{reader}, 0, writer, nil},
		"a reader after another's writer":         {[]side{writer}, 1, reader, recipes.ErrBusy},
		"a writer after another's reader":         {[]side{reader}, 1, writer, recipes.ErrBusy},
		"a writer after two readers, one its own": {[]side{reader, reader}, 0, writer, recipes.ErrBusy},
	} {
		for _, wait := range []time.Duration{0, time.Second} {
			t.Run(name, func(t *testing.T) {
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					w.Latency(2 * time.Millisecond)
					rw := clients(w, 3, recipes.WithLinger(time.Minute))
					var used []*recipes.Lease
					for i, side := range test.lingers {
						used = append(used, bubble.Acquire(t, t.Context(), side(rw[i])))
					}
					bubble.Release(t, used...)
					time.Sleep(wait)
					w.InLine(path, len(test.lingers))
					began := time.Now()
					l, err := test.tries(rw[test.at]).TryAcquire(t.Context())
					if !errors.Is(err, test.err) {
						t.Fatal(err)
					}
					if took := time.Since(began); took > 100*time.Millisecond {
						t.Errorf("TryAcquire took %v", took)
					}
					if err == nil {
						w.InLine(path, 1)
						bubble.Release(t, l)
					} else {
						w.InLine(path, len(test.lingers))
					}
					time.Sleep(2 * time.Minute)
					w.Empty(path)
				})
			})
		}
	}
}
