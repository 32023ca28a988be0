package line_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
	"github.com/zkrecipes/zkrecipes/retry"
)

var errLost = errors.New("lost")

// A removal has failed, and then the loss of the session is reported, which had
// begun before. A Release after that says that the lease was lost, and not that
// no server has answered.
func TestALossThatComesAfterAFailedRemoval(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		l := newLine(t, w.Connect("a", framework.WithRetry(retry.NTimes(2, 100*time.Millisecond))), exclusive)
		s := acquire(t, l)
		w.ClientNet("a").Cut()
		w.ClientNet("a").Drop()
		synctest.Wait()
		bubble.WantErr(t, release(t.Context(), s), zk.ErrNoServer)
		s.Lose(errLost)
		bubble.WantErr(t, release(t.Context(), s), line.ErrNotHeld, errLost)
		w.ClientNet("a").Heal()
		time.Sleep(2 * bubble.Timeout)
		empty(w, l)
	})
}

// A grant is handed off, and lost before the caller that was chosen goes on.
// That costs the caller its place in line, but not its call, and not its place
// before others of its process. The old znode is removed at once.
func TestAHandoffThatIsLostBeforeItIsTaken(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		l, err := line.New((*managed.Client)(w.ConnectNext()), "/line", exclusive, line.Config{Handoffs: 16})
		if err != nil {
			t.Fatal(err)
		}
		s := acquire(t, l)
		first, second := make(chan *line.Share, 1), make(chan *line.Share, 1)
		for _, granted := range []chan *line.Share{first, second} {
			go func() {
				granted <- acquire(t, l)
			}()
			synctest.Wait()
		}
		time.Sleep(100 * time.Millisecond) // until nobody is known to stand behind
		lost := time.Now()
		s.LeaveAndLose(errLost)
		next := bubble.Await(t, "the first waiter to be granted", first)
		if took := time.Since(lost); took > time.Second {
			t.Errorf("granted after %v", took)
		}
		if next.Path() == s.Path() {
			t.Error("a lost znode was granted")
		}
		if n := len(w.Children("/line")); n != 1 {
			t.Errorf("%d znodes in line", n)
		}
		leave(t, next)
		leave(t, bubble.Await(t, "the second to be granted", second))
		empty(w, l)
	})
}

// The only waiter leaves while its permits are being taken, or they are lost
// then. They are given back, and nothing counts as leaving any longer.
func TestPermitsThatAreTakenTooLate(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan struct{})
		rule := exclusive
		rule.Permits = &line.Permits{
			Dir: "/permits", Name: layout.LeaseName, Set: layout.Set{Family: layout.Lease}, N: 2,
			Look: func(context.Context, *managed.Session, line.Reader, bool) (line.Room, error) {
				return line.Room{Free: true, Taken: func() {
					cancel()
					<-gaveUp
				}}, nil
			},
		}
		l := newLine(t, c, rule)
		_, err := l.Acquire(ctx)
		bubble.WantErr(t, err, context.Canceled)
		close(gaveUp)
		synctest.Wait()
		if n := l.Leaving(); n != 0 {
			t.Errorf("%d znodes count as leaving", n)
		}
		w.NothingLeft("/line", "/permits")
		if n := l.Queues(); n != 0 {
			t.Errorf("%d queues kept", n)
		}
	})
}
