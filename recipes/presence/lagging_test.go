package presence_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A request deletes a znode, and its answer is lost. Another session makes its
// own znode of that name, and the client connects to a member that lags: it
// shows the old one, which has the same version. The other session's stays. The
// simulator found it for Close.
func TestALostDeleteAndAMemberThatLags(t *testing.T) {
	for name, tt := range map[string]struct {
		op testutil.Op
		// begin makes the client send op, and returns what has to end.
		begin func(t *testing.T, w *bubble.World, c *framework.Client) (end func() error)
	}{
		"Close": {testutil.OpDelete, func(t *testing.T, _ *bubble.World, c *framework.Client) func() error {
			n := announce(t, c, path, "ours")
			closed := make(chan error, 1)
			go func() { closed <- n.Close(t.Context()) }()
			return func() error { return bubble.Await(t, "Close", closed) }
		}},
		"a create that comes after Close": {testutil.OpDelete, func(t *testing.T, w *bubble.World, c *framework.Client) func() error {
			must(t, c.MakeContainerPath(t.Context(), "/services/billing"))
			lost := testutil.NewFault(testutil.Match{Op: testutil.OpCreate, Path: path}, testutil.Hold(nil))
			defer w.ClientNet("ours").Control(lost.Control)()
			n, err := presence.New(c, path, nil)
			must(t, err)
			must(t, n.Start())
			bubble.Await(t, "the create", lost.Hit())
			w.ClientNet("ours").Drop()
			must(t, n.Close(t.Context()))
			go func() { _, _ = w.Session(c).Create(t.Context(), path, nil, zk.FlagEphemeral) }() // as the late one does
			return func() error { return nil }
		}},
		"a takeover": {testutil.OpMulti, func(t *testing.T, w *bubble.World, c *framework.Client) func() error {
			old := w.ConnectNext()
			must(t, old.MakeContainerPath(t.Context(), "/services/billing"))
			_, err := w.Session(old).Create(t.Context(), path, []byte("old"), zk.FlagEphemeral)
			must(t, err)
			n, err := presence.New(c, path, nil, presence.WithTakeover(func(data []byte) bool { return string(data) == "old" }))
			must(t, err)
			must(t, n.Start())
			return func() error { awaitState(t, n, presence.Taken); return nil }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				leader := w.Leader()
				other := w.ConnectTo("other", w.Address(leader))
				c, net := w.ConnectTo("ours", w.Address((leader+1)%3)+","+w.Address((leader+2)%3)), w.ClientNet("ours")
				now := w.MemberOf(w.SessionID(c))
				then := 3 - leader - now // the other follower
				lost := testutil.NewFault(testutil.Match{Op: tt.op}, testutil.DropAfter())
				defer net.Control(func(r testutil.Request) testutil.Action {
					action := lost.Control(r)
					if action != testutil.Pass() {
						net.Cut()
						w.Lag(then)
					}
					return action
				})()
				end := tt.begin(t, w, c)
				bubble.Await(t, tt.op.String(), lost.Hit())
				synctest.Wait() // it is executed
				if err := other.Delete(t.Context(), path, -1); tt.op == testutil.OpMulti {
					must(t, err)
				}
				theirs := announce(t, other, path, "theirs")
				stat, _ := w.Stat(path)
				must(t, w.Stop(now))
				net.Heal()
				bubble.AwaitTrue(t, "the member that lags", func() bool { return c.State() == framework.Connected && w.MemberOf(w.SessionID(c)) == then })
				time.Sleep(2 * bubble.Timeout)
				w.Unlag(then)
				must(t, end())
				time.Sleep(10 * time.Minute)
				if after, _ := w.Stat(path); after != stat {
					t.Errorf("%+v became %+v", stat, after)
				}
				standing(t, w, other, theirs, "theirs")
			}, testutil.WithMembers(3))
		})
	}
}

// A member lags: it still shows the Node's znode, which somebody has deleted,
// and another session has made one of the same version. That one stays.
func TestAForeignZnodeThatAMemberDoesNotShow(t *testing.T) {
	for name, act := range map[string]func(n *presence.Node) error{
		"set":   func(n *presence.Node) error { return n.Set(context.Background(), []byte("mine")) },
		"close": func(n *presence.Node) error { return n.Close(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				leader := w.Leader()
				lags := (leader + 1) % 3
				other, c := w.ConnectTo("other", w.Address(leader)), w.ConnectTo("ours", w.Address(lags))
				n := announce(t, c, path, "ours")
				standing(t, w, c, n, "ours")
				w.Lag(lags)
				must(t, other.Delete(t.Context(), path, -1))
				theirs := announce(t, other, path, "theirs")
				stat, _ := w.Stat(path)
				result := make(chan error, 1)
				go func() { result <- act(n) }()
				time.Sleep(time.Second)
				w.Unlag(lags)
				time.Sleep(time.Minute)
				if after, _ := w.Stat(path); after != stat {
					t.Errorf("%+v became %+v", stat, after)
				}
				standing(t, w, other, theirs, "theirs")
				must(t, theirs.Close(t.Context()))
				must(t, bubble.Await(t, name, result))
			}, testutil.WithMembers(3))
		})
	}
}

// While the user is asked whether a znode may be taken over, its session
// deletes it, and makes another one of the same version. The Node does not hear
// of that, and does not take over the other one.
func TestATakeoverOfAZnodeThatIsGone(t *testing.T) {
	for name, deaf := range map[string]func(w *bubble.World, member int){
		"the event is lost": func(w *bubble.World, _ int) { w.ClientNet("ours").LoseEvents(true) },
		"a member lags":     func(w *bubble.World, member int) { w.Lag(member) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				leader := w.Leader()
				lags := (leader + 1) % 3
				other, ours := w.ConnectTo("other", w.Address(leader)), w.ConnectTo("ours", w.Address(lags))
				old := announce(t, other, path, "old")
				asked, answer := make(chan struct{}, 1), make(chan struct{})
				n, err := presence.New(ours, path, []byte("new"), presence.WithTakeover(func(data []byte) bool {
					if string(data) != "old" {
						return false
					}
					asked <- struct{}{}
					<-answer
					return true
				}))
				must(t, err)
				must(t, n.Start())
				bubble.Await(t, "the question", asked)
				deaf(w, lags)
				must(t, old.Close(t.Context()))
				next := announce(t, other, path, "theirs")
				stat, _ := w.Stat(path)
				close(answer)
				time.Sleep(time.Second)
				w.Unlag(lags)
				w.ClientNet("ours").LoseEvents(false)
				time.Sleep(time.Minute)
				if after, _ := w.Stat(path); after != stat {
					t.Errorf("%+v became %+v", stat, after)
				}
				standing(t, w, other, next, "theirs")
				must(t, next.Close(t.Context()))
				standing(t, w, ours, n, "new")
			}, testutil.WithMembers(3))
		})
	}
}
