package managed_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/nameserver"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Connections that end on the creates of containers make a doubt each time, and
// an answer ends it. Each doubt is settled as soon as the first one. A
// connection that ends between two doubts makes none, and a container that is
// made takes back what has ended before.
func TestContainersAreDoubtedAgain(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		log, said := logged()
		c, network := connect(t, ens, log, framework.WithRetry(retry.Never()))
		ends := func(times, doubts int) {
			t.Helper()
			stop := network.Control(testutil.NewFault(testutil.Match{Op: testutil.OpCreateContainer, Path: "/a", Times: times}, testutil.DropBefore()).Control)
			for range times {
				if err := c.MakeContainerPath(t.Context(), "/a"); err == nil {
					t.Error("no error")
				}
				must(t, c.WaitConnected(t.Context()))
			}
			stop()
			time.Sleep(100 * time.Millisecond)
			if doubted, settled := said(saysDoubtful), said(saysSome); doubted != doubts || settled != doubts {
				t.Fatalf("doubted %d times, settled %d times, want %d", doubted, settled, doubts)
			}
		}
		makes := func(i int) {
			t.Helper()
			must(t, c.MakeContainerPath(t.Context(), fmt.Sprint("/made/", i)))
		}
		for i := range 3 {
			ends(1, i)
			makes(3 * i)
			ends(1, i)
			makes(3*i + 1)
			ends(2, i+1)
			ends(1, i+1)
			makes(3*i + 2)
		}
	})
}

// Servers that lose their containers and get them back, twice, are named each
// time.
func TestServersThatLoseContainersAgain(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		log, said := logged()
		c, network := connect(t, ens, log)
		for i := range 2 {
			stop := network.Control(testutil.NewFault(testutil.Match{Op: testutil.OpCreateContainer, Times: -1}, testutil.Fail(testutil.CodeUnimplemented)).Control)
			must(t, c.MakeContainerPath(t.Context(), fmt.Sprint("/a", i)))
			stop()
			time.Sleep(2 * time.Hour)
			if none, some := said(), said(saysSome); none != i+1 || some != i+1 {
				t.Errorf("said %d and %d times, want %d", none, some, i+1)
			}
		}
	})
}

// Two creates of one znode are open at a time. Once both are answered they say
// nothing of a later one: that is known by its znode if its answer is lost.
func TestACreateAfterTwoAtATime(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		for range 2 {
			stop := network.Control(func(r testutil.Request) testutil.Action {
				if r.Op == testutil.OpCreate {
					return testutil.Delay(time.Second)
				}
				return testutil.Pass()
			})
			results := make(chan error, 2)
			for range 2 {
				go func() {
					_, err := c.Create(t.Context(), "/n", nil, zk.FlagEphemeral)
					results <- err
				}()
			}
			first, second := bubble.Await(t, "Create", results), bubble.Await(t, "Create", results)
			if (first == nil) == (second == nil) {
				t.Errorf("errors %v and %v", first, second)
			}
			stop()
			must(t, c.Delete(t.Context(), "/n", -1))
			lost := testutil.NewFault(testutil.Match{Op: testutil.OpCreate}, testutil.DropAfter())
			stop = network.Control(lost.Control)
			_, err := c.Create(t.Context(), "/n", nil, zk.FlagEphemeral)
			stop()
			if err != nil || lost.Count() != 1 {
				t.Errorf("%d answers lost, %v", lost.Count(), err)
			}
			must(t, c.Delete(t.Context(), "/n", -1))
		}
	})
}

// Two follow a znode. While one of them is left it is looked at, whoever leaves
// first.
func TestAFollowerOutlivesAnother(t *testing.T) {
	for _, w := range watchings {
		for _, leaves := range []int{0, 1} {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				c, network := connect(t, ens)
				other, _ := connect(t, ens)
				_, err := other.Create(t.Context(), "/a", []byte("[]"), 0)
				must(t, err)
				var hear [2]<-chan value
				var leave [2]context.CancelFunc
				for i := range hear {
					var ctx context.Context
					ctx, leave[i] = context.WithCancel(t.Context())
					hear[i] = w.watch(t, ctx, c)
					hears(t, hear[i], atOnce)
				}
				leave[leaves]()
				time.Sleep(timeout)
				network.LoseEvents(true)
				must(t, w.change(other, "[b]"))
				if v := hears(t, hear[1-leaves], soon); v.text != "[b]" {
					t.Errorf("%s: %v", w.name, v)
				}
				network.LoseEvents(false)
				leave[1-leaves]()
			})
		}
	}
}

// A look counts from its beginning: what has changed since, while its answer
// was on its way, may be missing in it.
func TestALookCountsFromItsBeginning(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		_, err := c.Create(t.Context(), "/a", nil, 0)
		must(t, err)
		s := session(t, c)
		var looks atomic.Int32
		network.Control(func(r testutil.Request) testutil.Action {
			if r.Does(testutil.OpExists, "/a") {
				looks.Add(1)
				return testutil.DelayReply(timeout * 3 / 10)
			}
			return testutil.Pass()
		})
		watch := func() {
			_, err := s.Watch(t.Context(), "/a")
			must(t, err)
		}
		watch()
		time.Sleep(timeout * 6 / 10)
		for want := range int32(3) {
			watch() // for 3/10 of the timeout
			time.Sleep(timeout * 3 / 10)
			if n := looks.Load(); n != want+1 {
				t.Errorf("%d looks, want %d", n, want+1)
			}
		}
	})
}

// A session that has asked what ephemeral znodes it has does not keep the next
// one from asking.
func TestTheNextSessionCountsForItself(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens, framework.WithMaxEphemerals(16384))
		other, _ := connect(t, ens)
		must(t, other.MakePersistentPath(t.Context(), "/e"))
		for range 3 {
			s := session(t, c)
			paths, err := fill(t, s)
			if !errors.Is(err, framework.ErrTooLarge) {
				t.Fatal(err)
			}
			must(t, other.Delete(t.Context(), paths[0], -1)) // of which the client does not hear
			time.Sleep(timeout / 2)
			_, err = s.Create(t.Context(), paths[0], nil, zk.FlagEphemeral)
			must(t, err)
			must(t, ens.ExpireSession(s.ID()))
			bubble.Await(t, "the end of the session", s.Done())
			must(t, c.WaitConnected(t.Context()))
			s = session(t, c)
			for _, path := range paths {
				_, err := s.Create(t.Context(), path, nil, zk.FlagEphemeral)
				must(t, err)
			}
			must(t, other.Delete(t.Context(), paths[0], -1))
			_, err = s.Create(t.Context(), paths[0], nil, zk.FlagEphemeral)
			if err != nil {
				t.Errorf("%v after the count of an earlier session", err)
			}
			must(t, ens.ExpireSession(s.ID()))
			bubble.Await(t, "the end of the session", s.Done())
			must(t, c.WaitConnected(t.Context()))
		}
	})
}

// Creates of unknown outcome do not add up, however often there are many, and
// whatever the client's retry policy is.
func TestManyUnknownOutcomesAgain(t *testing.T) {
	for _, opts := range [][]framework.Option{nil, {framework.WithRetry(retry.Never())}} {
		manyUnknownOutcomes(t, opts...)
	}
}

func manyUnknownOutcomes(t *testing.T, opts ...framework.Option) {
	t.Helper()
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens, opts...)
		for range 3 {
			for i := range 12 {
				stop := network.Control(testutil.NewFault(testutil.Match{Op: testutil.OpCreate}, testutil.DropBefore()).Control)
				if _, err := c.Create(t.Context(), fmt.Sprint("/lost", i), nil, zk.FlagEphemeral); !framework.MaybeApplied(err) {
					t.Fatal(err)
				}
				stop()
				must(t, c.WaitConnected(t.Context()))
			}
			time.Sleep(timeout)
			synctest.Wait()
			if n, most := insideOf(c).EphemeralBytes(), 8*len("/lost00")+8*8; n > most {
				t.Errorf("%d bytes are counted, and no znode exists", n)
			}
		}
	})
}

// Two keep room for one path, one after the other. The room of the second
// outlives the first.
func TestRoomThatTwoKeep(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		_, dropFirst, err := inside(s).KeepRoom("/n", false)
		must(t, err)
		_, drop, err := inside(s).KeepRoom("/n", false)
		must(t, err)
		dropFirst()
		before := insideOf(c).EphemeralBytes()
		_, err = s.Create(t.Context(), "/n", nil, zk.FlagEphemeral)
		must(t, err)
		if n := insideOf(c).EphemeralBytes(); n != before || n == 0 {
			t.Errorf("%d bytes with the znode, %d before", n, before)
		}
		drop()
	})
}

// What the client has seen until its session was over says which ensemble may
// have a new one, not what it had seen at its latest connect.
func TestTheEnsembleIsKnownByTheLatestTransaction(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		provision(t, ens, ours)
		time.Sleep(time.Second)
		home := ens.ClientNet("home")
		var at atomic.Pointer[testutil.ClientNet]
		at.Store(home)
		n := startNamed(t, ens, "zk0.example.:2181", framework.WithDialer(func(network, _ string, limit time.Duration) (net.Conn, error) {
			return at.Load().Dial(network, ens.Servers(), limit)
		}))
		s := n.connected(t, timeout)
		for range 2 * more {
			_, err := n.Set(t.Context(), "/", nil, -1)
			must(t, err)
		}
		must(t, s.Prove(t.Context()))
		lost := lossOf(t, s)
		n.names.Answer("", nameserver.Silence, 0)
		home.Cut()
		bubble.Await(t, "the loss", lost)
		bubble.Await(t, "the end of the session", s.Done())
		at.Store(other(t, more).ClientNet("taken"))
		time.Sleep(timeout)
		if now, err := n.Session(); err == nil && now.Connected() {
			t.Errorf("connected to another ensemble, which has fewer transactions than session %x has seen", s.ID())
		}
		home.Heal()
		at.Store(home)
		n.names.Answer("", nameserver.Addresses, 0)
		n.connected(t, 2*timeout)
	})
}

// An ensemble that was restored from a backup is known by its transactions of
// now: the client is connected again while the name server fails.
func TestARestoredEnsembleIsKnown(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		n := startNamed(t, ens, "zk0.example.:2181")
		s := n.connected(t, timeout)
		backup := ens.Snapshot()
		for range 50 {
			_, err := n.Set(t.Context(), "/", nil, -1)
			must(t, err)
		}
		ens.Restore(backup)
		bubble.AwaitTrue(t, "the end of the session", func() bool { return s.Err() != nil })
		s = n.connected(t, 3*timeout)
		n.names.Answer("", nameserver.Silence, 0)
		must(t, ens.ExpireSession(s.ID()))
		n.network.Drop()
		time.Sleep(timeout)
		if now, err := n.Session(); err != nil || !now.Connected() || now.ID() == s.ID() {
			t.Errorf("no new session: %v", err)
		}
	})
}

// Two keep a session. One that releases twice does not release the other.
func TestAKeeperReleasesOnce(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		must(t, s.Prove(t.Context()))
		first, second := s.Keep(), s.Keep()
		first()
		first()
		time.Sleep(10 * timeout)
		if !s.Proven() {
			t.Error("the second does not keep it")
		}
		second()
	})
}
