package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const path = "/app/rw"

func newLock(t bubble.T, c *framework.Client, opts ...rwlock.Option) *rwlock.RWLock {
	t.Helper()
	rw, err := rwlock.New(c, path, append([]rwlock.Option{rwlock.WithHost("web-1")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return rw
}

// clients returns the locks of n clients.
func clients(w *bubble.World, n int, opts ...rwlock.Option) []*rwlock.RWLock {
	all := make([]*rwlock.RWLock, n)
	for i := range all {
		all[i] = newLock(w.T, w.Connect(fmt.Sprint("client ", i)), opts...)
	}
	return all
}

func TestReadersShareAndWritersExclude(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		rw := clients(w, 4)
		one, two := bubble.Acquire(t, t.Context(), rw[0].Reader()), bubble.Acquire(t, t.Context(), rw[1].Reader())
		writer := bubble.Acquiring(t.Context(), rw[2].Writer())
		w.InLine(path, 3)
		bubble.Release(t, one)
		bubble.Pending(t, writer)
		bubble.Release(t, two)
		writing := bubble.Granted(t, writer).Lease
		reader := bubble.Acquiring(t.Context(), rw[0].Reader())
		w.InLine(path, 2)
		other := bubble.Acquiring(t.Context(), rw[3].Writer())
		w.InLine(path, 3)
		bubble.Pending(t, reader, other)
		bubble.Release(t, writing)
		reading := bubble.Granted(t, reader).Lease
		bubble.Pending(t, other)
		bubble.Release(t, reading)
		bubble.Release(t, bubble.Granted(t, other).Lease)
		w.Empty(path)
	})
}

// Neither side starves the other: readers do not overtake a waiting writer.
func TestReadersQueueBehindAWaitingWriter(t *testing.T) {
	for _, where := range []string{"of another process", "of the same process"} {
		t.Run(where, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				rw := clients(w, 2)
				if where == "of the same process" {
					rw[1] = rw[0]
				}
				first := bubble.Acquire(t, t.Context(), rw[0].Reader())
				writer := bubble.Acquiring(t.Context(), rw[1].Writer())
				w.InLine(path, 2)
				later := bubble.Acquiring(t.Context(), rw[0].Reader())
				w.InLine(path, 3)
				bubble.Pending(t, writer, later)
				if _, err := rw[0].Reader().TryAcquire(t.Context()); !errors.Is(err, recipes.ErrBusy) {
					t.Errorf("TryAcquire behind a waiting writer: %v", err)
				}
				bubble.Release(t, first)
				writing := bubble.Granted(t, writer).Lease
				bubble.Pending(t, later)
				bubble.Release(t, writing)
				bubble.Release(t, bubble.Granted(t, later).Lease)
				w.Empty(path)
			})
		})
	}
}

// An endless stream of readers of one process does not starve a writer of the
// same process or of another. A known failure elsewhere: naive shared locks.
func TestReadersDoNotStarveAWriter(t *testing.T) {
	for _, local := range []bool{true, false} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			rw := clients(w, 2)
			if local {
				rw[1] = rw[0]
			}
			ctx, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for i := range 10 {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * 10 * time.Millisecond)
					for ctx.Err() == nil {
						l := bubble.Acquire(t, t.Context(), rw[0].Reader())
						time.Sleep(100 * time.Millisecond)
						bubble.Release(t, l)
					}
				})
			}
			time.Sleep(time.Second)
			for range 5 {
				start := time.Now()
				l := bubble.Acquire(t, t.Context(), rw[1].Writer())
				if took := time.Since(start); took > 100*time.Millisecond {
					t.Errorf("local %v: the writer waited for %v, longer than the readers ahead of it", local, took)
				}
				time.Sleep(50 * time.Millisecond)
				bubble.Release(t, l)
			}
			stop()
			wg.Wait()
			w.Empty(path)
		})
	}
}

// Readers of one process that wait together share a znode. It stays until the
// last of them has released.
func TestReadersOfOneProcessShareOneZnode(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		rw := clients(w, 2)
		writing := bubble.Acquire(t, t.Context(), rw[1].Writer())
		var waiting []<-chan bubble.Grant
		for range 5 {
			waiting = append(waiting, bubble.Acquiring(t.Context(), rw[0].Reader()))
		}
		w.InLine(path, 2)
		bubble.Pending(t, waiting...)
		w.ResetRequests()
		bubble.Release(t, writing)
		var reading []*recipes.Lease
		for _, granted := range waiting {
			reading = append(reading, bubble.Granted(t, granted).Lease)
		}
		if want := map[testutil.Op]int{testutil.OpDelete: 1}; !maps.Equal(w.Cost(), want) {
			t.Errorf("requests: %v, want %v", w.Cost(), want)
		}
		w.InLine(path, 1)
		w.ResetRequests()
		bubble.Release(t, reading[1:]...)
		if got := w.Cost(); len(got) != 0 {
			t.Errorf("requests of all releases before the last: %v", got)
		}
		if !reading[0].Held() || reading[1].Held() {
			t.Error("Held is wrong")
		}
		bubble.Release(t, reading[0])
		if got := w.Cost()[testutil.OpDelete]; got != 1 {
			t.Errorf("%d deletes", got)
		}
		w.Empty(path)
	})
}

// Readers with different maximum hold times do not share a znode.
func TestReadersWithDifferentMaxHoldsDoNotShare(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		long, short := newLock(t, c), newLock(t, c, recipes.WithMaxHold(time.Second))
		writing := bubble.Acquire(t, t.Context(), long.Writer())
		a, b := bubble.Acquiring(t.Context(), long.Reader()), bubble.Acquiring(t.Context(), short.Reader())
		bubble.Pending(t, a, b)
		bubble.Release(t, writing)
		forLong, forShort := bubble.Granted(t, a).Lease, bubble.Granted(t, b).Lease
		bubble.Lost(t, forShort)
		bubble.WantErr(t, forShort.Err(), recipes.ErrMaxHold)
		if !forLong.Held() {
			t.Error("lost after the other's maximum hold time")
		}
		bubble.WantErr(t, forShort.Release(t.Context()), recipes.ErrNotHeld)
		bubble.Release(t, forLong)
		w.Empty(path)
	})
}

// A release wakes exactly those that can be granted. Who had one writer ahead
// at its latest list does not list again. The writer behind readers lists once.
// There are 50 readers and 10 writers, each with a client, five readers ahead
// of each writer. A known failure elsewhere: naive shared locks.
func TestReleaseWakesThoseThatMayGoOn(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		const rounds, readers = 10, 5
		first := bubble.Acquire(t, t.Context(), newLock(t, w.Connect("first")).Writer())
		var waiting [rounds][readers + 1]<-chan bubble.Grant
		n := 1
		for i := range rounds {
			for j := range readers + 1 {
				rw := newLock(t, w.Connect(fmt.Sprint("client ", n)))
				side := rw.Reader()
				if j == readers {
					side = rw.Writer()
				}
				waiting[i][j] = bubble.Acquiring(t.Context(), side)
				n++
				w.InLine(path, n)
			}
		}
		watched := 0
		for _, watches := range w.Watches() {
			watched += watches
		}
		// Readers watch the writer ahead of them, writers one or two contenders
		// ahead of them, and all their own znode.
		if most := 2*(readers+1)*rounds + rounds; watched > most {
			t.Errorf("%d watches, want at most %d", watched, most)
		}
		writing := first
		for i := range rounds {
			w.ResetRequests()
			bubble.Release(t, writing)
			synctest.Wait()
			want := readers // whose latest list shows earlier writers as well
			if i == 0 {
				want = 0
			}
			if got := w.Cost()[testutil.OpGetChildren2]; got != want {
				t.Errorf("a writer's release had %d list, want %d", got, want)
			}
			var reading []*recipes.Lease
			for j := range readers {
				reading = append(reading, bubble.Granted(t, waiting[i][j]).Lease)
			}
			bubble.Pending(t, waiting[i][readers])
			w.ResetRequests()
			bubble.Release(t, reading...) // the writer watches the last one
			synctest.Wait()
			if got := w.Cost()[testutil.OpGetChildren2]; got != 1 {
				t.Errorf("the releases of %d readers woke %d, want one", readers, got)
			}
			writing = bubble.Granted(t, waiting[i][readers]).Lease
		}
		bubble.Release(t, writing)
		w.Empty(path)
	})
}

func TestUncontendedGrantCostsThreeRequests(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		rw := clients(w, 1)[0]
		bubble.Release(t, bubble.Acquire(t, t.Context(), rw.Reader())) // creates the path
		time.Sleep(time.Second)
		for _, side := range []recipes.Acquirer{rw.Reader(), rw.Writer()} {
			w.ResetRequests()
			bubble.Release(t, bubble.Acquire(t, t.Context(), side))
			time.Sleep(time.Second)
			want := map[testutil.Op]int{testutil.OpCreate: 1, testutil.OpGetChildren2: 1, testutil.OpDelete: 1}
			if got := w.Cost(); !maps.Equal(got, want) {
				t.Errorf("requests: %v, want %v", got, want)
			}
		}
		w.Empty(path)
	})
}

func TestParticipantsAreListedInOrder(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		rw := clients(w, 4, recipes.WithData([]byte("me")))
		writing := bubble.Acquire(t, t.Context(), rw[0].Writer())
		reading := bubble.Acquire(t, writing.Context(), rw[0].Reader())
		ctx, cancel := context.WithCancel(t.Context())
		var waiting []<-chan bubble.Grant
		for i, side := range []recipes.Acquirer{rw[1].Reader(), rw[2].Writer(), rw[3].Reader()} {
			waiting = append(waiting, bubble.Acquiring(ctx, side))
			w.InLine(path, 3+i)
		}
		look := func(want ...string) []recipes.Participant {
			t.Helper()
			all, err := rw[3].Participants(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range all {
				text := p.Mode.String() + " waits"
				if p.Holder {
					text = p.Mode.String() + " holds"
				}
				got = append(got, text)
				if string(p.Data) != "me" || p.Session == 0 || p.Since.IsZero() || !w.Exists(p.Path) {
					t.Errorf("participant %+v", p)
				}
			}
			if strings.Join(got, ", ") != strings.Join(want, ", ") {
				t.Errorf("participants: %v, want %v", got, want)
			}
			return all
		}
		look("exclusive holds", "shared holds", "shared waits", "exclusive waits", "shared waits")
		bubble.Release(t, writing)
		granted := bubble.Granted(t, waiting[0]).Lease
		all := look("shared holds", "shared holds", "exclusive waits", "shared waits")

		// Each of them can be revoked.
		revoked := granted.Revoked()
		if err := rw[3].Revoke(t.Context(), all[1]); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		select {
		case <-revoked:
		default:
			t.Error("the reader was not asked to release")
		}
		bubble.Release(t, granted)
		bubble.WantErr(t, rw[3].Revoke(t.Context(), all[1]), zk.ErrNoNode)
		if err := rw[3].Revoke(t.Context(), recipes.Participant{Path: "/app/other/x"}); err == nil {
			t.Error("Revoke accepted a znode that is not in this lock's line")
		}
		cancel()
		bubble.WantErr(t, (<-waiting[1]).Err, context.Canceled)
		bubble.WantErr(t, (<-waiting[2]).Err, context.Canceled)
		bubble.Release(t, reading)
		w.Empty(path)
	})
}

func TestTryAcquire(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		rw := clients(w, 2)
		try := func(a recipes.Acquirer, want error) {
			t.Helper()
			l, err := a.TryAcquire(t.Context())
			if !errors.Is(err, want) {
				t.Errorf("TryAcquire: %v, want %v", err, want)
			}
			if err == nil {
				bubble.Release(t, l)
			}
		}
		for _, other := range rw { // another process, and the same
			reading := bubble.Acquire(t, t.Context(), other.Reader())
			try(rw[0].Reader(), nil)
			try(rw[0].Writer(), recipes.ErrBusy)
			bubble.Release(t, reading)
			writing := bubble.Acquire(t, t.Context(), other.Writer())
			try(rw[0].Reader(), recipes.ErrBusy)
			try(rw[0].Writer(), recipes.ErrBusy)
			waiting := bubble.Acquiring(t.Context(), rw[0].Reader())
			w.InLine(path, 2)
			w.ResetRequests()
			try(rw[0].Reader(), recipes.ErrBusy) // behind a waiter of the local queue
			if n := w.Total(); n > 0 {
				t.Errorf("requests: %v", w.Requests())
			}
			bubble.Release(t, writing)
			bubble.Release(t, bubble.Granted(t, waiting).Lease)
			try(rw[0].Reader(), nil)
			try(rw[0].Writer(), nil)
		}
		w.Empty(path)
	})
}

func TestTokens(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		rw := clients(w, 2)
		var last recipes.Token
		for range 3 {
			writing := bubble.Acquire(t, t.Context(), rw[0].Writer())
			if writing.Token().Compare(last) <= 0 {
				t.Errorf("write token %v after %v", writing.Token(), last)
			}
			down := bubble.Acquire(t, writing.Context(), rw[0].Reader())
			if down.Token() != writing.Token() {
				t.Errorf("downgraded read has token %v, its write %v", down.Token(), writing.Token())
			}
			bubble.Release(t, writing, down)
			one := bubble.Acquire(t, t.Context(), rw[0].Reader())
			two := bubble.Acquire(t, t.Context(), rw[1].Reader())
			for _, reading := range []*recipes.Lease{one, two} {
				if reading.Token().Compare(writing.Token()) <= 0 {
					t.Errorf("read token %v after write token %v", reading.Token(), writing.Token())
				}
				if reading.Token().Compare(last) > 0 {
					last = reading.Token()
				}
			}
			bubble.Release(t, one, two)
		}
		w.Empty(path)
	})
}

func TestInvalidArguments(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		tests := []struct {
			c    *framework.Client
			path string
			opt  rwlock.Option
			text string
		}{
			{nil, path, rwlock.WithHost("x"), "no client"},
			{c, "rw", rwlock.WithHost("x"), "rw"},
			{c, "/", rwlock.WithHost("x"), `"/"`},
			{c, path, recipes.WithMaxHold(-time.Second), "-1s"},
			{c, path, recipes.WithACL(), "ACL"},
			{c, path, recipes.WithData([]byte("__REVOKE__")), "__REVOKE__"},
			{c, path, rwlock.WithLayout(7), "layout 7"},
			{c, path, nil, "option <nil>"},
		}
		for _, test := range tests {
			if _, err := rwlock.New(test.c, test.path, test.opt); err == nil || !strings.Contains(err.Error(), test.text) {
				t.Errorf("path %q: error %v, want one that contains %q", test.path, err, test.text)
			}
		}
	})
}

// WithData kept the caller's slice, so later writes to it changed the data of
// znodes.
func TestDataIsCopied(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		data := []byte("ours")
		a := newLock(t, w.Connect("a"), recipes.WithData(data)).Writer()
		copy(data, "else")
		l := bubble.Acquire(t, t.Context(), a)
		if got, _ := w.Data(l.Path()); string(got) != "ours" {
			t.Errorf("data %q", got)
		}
		bubble.Release(t, l)
	})
}
