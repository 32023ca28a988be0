package managed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// losing does an action to the first request for op of a client, and runs
// meanwhile before the client has a connection again.
func losing(net *testutil.ClientNet, op testutil.Op, action testutil.Action, meanwhile func()) (stop func()) {
	release := make(chan struct{})
	lost := testutil.NewFault(testutil.Match{Op: op}, action)
	connect := testutil.NewFault(testutil.Match{Op: testutil.OpCreateSession}, testutil.Hold(release))
	go func() {
		<-lost.Hit()
		synctest.Wait()
		meanwhile()
		close(release)
	}()
	return net.Control(func(r testutil.Request) testutil.Action {
		if a := lost.Control(r); a != testutil.Pass() {
			return a
		}
		return connect.Control(r)
	})
}

// deed is what a client does in a test.
type deed func(t *testing.T, c *framework.Client)

func nobody(*testing.T, *framework.Client) {}

// inOrder does all deeds.
func inOrder(all ...deed) deed {
	return func(t *testing.T, c *framework.Client) {
		for _, do := range all {
			do(t, c)
		}
	}
}

func setting(data string) deed {
	return func(t *testing.T, c *framework.Client) {
		_, err := c.Set(t.Context(), "/n", []byte(data), -1)
		must(t, err)
	}
}

func creating(path, data string, flags int32) deed {
	return func(t *testing.T, c *framework.Client) {
		_, err := c.Create(t.Context(), path, []byte(data), flags)
		must(t, err)
	}
}

func deleting(path string) deed {
	return func(t *testing.T, c *framework.Client) { must(t, c.Delete(t.Context(), path, -1)) }
}

// lostWrite runs a write whose first request meets an action, and meanwhile by
// another client before there is a connection again. There is a znode /n.
func lostWrite(t *testing.T, op testutil.Op, action testutil.Action, meanwhile deed, write func(t *testing.T, c *framework.Client) error, check func(t *testing.T, c *framework.Client, err error)) {
	t.Helper()
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, net := connect(t, ens)
		other, _ := connect(t, ens)
		creating("/n", "old", 0)(t, c)
		must(t, other.Sync(t.Context(), "/n"))
		stop := losing(net, op, action, func() { meanwhile(t, other) })
		err := write(t, c)
		stop()
		must(t, c.Sync(t.Context(), "/n"))
		check(t, c, err)
	}, testutil.WithExtendedTypes())
}

// unknown fails the test unless err says that the write may have been applied,
// and what exists.
func unknown(t *testing.T, err error, exists string) {
	t.Helper()
	if !framework.MaybeApplied(err) || !strings.Contains(err.Error(), exists) {
		t.Errorf("%v, may have been applied %v, want %q", err, framework.MaybeApplied(err), exists)
	}
}

func TestSetAtAnyVersionIsSentOnce(t *testing.T) {
	for name, c := range map[string]struct {
		action    testutil.Action
		meanwhile deed
		data      string // then; "": no znode
		version   int32
		want      string // "": success
	}{
		"executed":                     {testutil.DropAfter(), nobody, "a", 1, ""},
		"executed and overwritten":     {testutil.DropAfter(), setting("b"), "b", 2, "the znode has other data"},
		"executed, overwritten, again": {testutil.DropAfter(), inOrder(setting("b"), setting("a")), "a", 3, ""},
		"not executed":                 {testutil.DropBefore(), nobody, "old", 0, "the znode has other data"},
		"not executed, another is":     {testutil.DropBefore(), setting("b"), "b", 1, "the znode has other data"},
		"deleted":                      {testutil.DropAfter(), deleting("/n"), "", 0, "zk: node does not exist"},
		"made anew":                    {testutil.DropAfter(), inOrder(deleting("/n"), creating("/n", "a", 0)), "a", 0, ""},
		"said to be lost":              {testutil.Fail(testutil.CodeConnectionLoss), nobody, "old", 0, "the znode has other data"},
	} {
		t.Run(name, func(t *testing.T) {
			lostWrite(t, testutil.OpSetData, c.action, c.meanwhile, func(t *testing.T, client *framework.Client) error {
				stat, err := client.Set(t.Context(), "/n", []byte("a"), -1)
				if err == nil && (stat == nil || stat.Version != c.version) {
					t.Errorf("%+v", stat)
				}
				return err
			}, func(t *testing.T, client *framework.Client, err error) {
				if c.want == "" {
					must(t, err)
				} else {
					unknown(t, err, c.want)
				}
				data, stat, err := client.Get(t.Context(), "/n")
				if c.data == "" && errors.Is(err, zk.ErrNoNode) {
					return
				}
				must(t, err)
				if string(data) != c.data || stat.Version != c.version {
					t.Errorf("%s at %d, want %s at %d", data, stat.Version, c.data, c.version)
				}
			})
		})
	}
}

// Nobody who watches sees a value again that another client has replaced.
func TestWatcherSeesNoSetTwice(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, net := connect(t, ens)
		other, _ := connect(t, ens)
		creating("/n", "old", 0)(t, c)
		values, err := other.WatchData(t.Context(), "/n")
		must(t, err)
		var seen []string
		see := func() {
			synctest.Wait()
			seen = append(seen, string((<-values).Data))
		}
		see()
		stop := losing(net, testutil.OpSetData, testutil.DropAfter(), func() {
			see()
			setting("b")(t, other)
			see()
		})
		defer stop()
		_, err = c.Set(t.Context(), "/n", []byte("a"), -1)
		unknown(t, err, "the znode has other data")
		time.Sleep(2 * timeout)
		select {
		case v := <-values:
			seen = append(seen, string(v.Data))
		default:
		}
		if want := []string{"old", "a", "b"}; !slices.Equal(seen, want) {
			t.Errorf("seen %q, want %q", seen, want)
		}
	})
}

// Equal data that the session had seen when the write was sent are not its own:
// its first try is refused for the moment, and they are seen before the next.
func TestSetIsDatedWhenItIsSent(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, net := connect(t, ens)
		other, _ := connect(t, ens)
		creating("/n", "old", 0)(t, c)
		must(t, other.Sync(t.Context(), "/n"))
		tries := 0
		stop := net.Control(func(r testutil.Request) testutil.Action {
			if r.Op != testutil.OpSetData {
				return testutil.Pass()
			}
			if tries++; tries == 1 {
				go func() {
					setting("a")(t, other)
					must(t, c.Sync(t.Context(), "/n"))
				}()
				return testutil.Fail(testutil.CodeThrottled)
			}
			return testutil.DropBefore()
		})
		defer stop()
		_, err := c.Set(t.Context(), "/n", []byte("a"), -1)
		unknown(t, err, "the znode has had these data before")
		if tries != 2 {
			t.Errorf("%d tries, want 2: the first was not executed", tries)
		}
	})
}

func TestSetACLAtAnyVersionIsSentOnce(t *testing.T) {
	readOnly, all := zk.WorldACL(zk.PermRead|zk.PermAdmin), zk.WorldACL(zk.PermAll)
	settingACL := func(acl []zk.ACL) deed {
		return func(t *testing.T, c *framework.Client) {
			_, err := c.SetACL(t.Context(), "/n", acl, -1)
			must(t, err)
		}
	}
	for name, c := range map[string]struct {
		action    testutil.Action
		meanwhile deed
		version   int32 // then; -1: no znode
		want      string
	}{
		"executed":                 {testutil.DropAfter(), nobody, 1, ""},
		"executed and overwritten": {testutil.DropAfter(), settingACL(all), 2, "the znode has another ACL"},
		"not executed":             {testutil.DropBefore(), nobody, 0, "the znode has another ACL"},
		"deleted":                  {testutil.DropAfter(), deleting("/n"), -1, "zk: node does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			lostWrite(t, testutil.OpSetACL, c.action, c.meanwhile, func(t *testing.T, client *framework.Client) error {
				stat, err := client.SetACL(t.Context(), "/n", readOnly, -1)
				if err == nil && (stat == nil || stat.Aversion != c.version) {
					t.Errorf("%+v", stat)
				}
				return err
			}, func(t *testing.T, client *framework.Client, err error) {
				if c.want == "" {
					must(t, err)
				} else {
					unknown(t, err, c.want)
				}
				if _, stat, err := client.GetACL(t.Context(), "/n"); err == nil && stat.Aversion != c.version || err != nil && c.version >= 0 {
					t.Errorf("%+v, %v", stat, err)
				}
			})
		})
	}
}

func TestCreateIsSentOnce(t *testing.T) {
	create := func(path string, flags int32) func(*testing.T, *framework.Client) error {
		return func(t *testing.T, c *framework.Client) error {
			_, err := c.Create(t.Context(), path, []byte("job"), flags)
			return err
		}
	}
	for name, c := range map[string]struct {
		op        testutil.Op
		action    testutil.Action
		meanwhile deed
		write     func(*testing.T, *framework.Client) error
		exists    bool
		want      string
	}{
		"executed": {testutil.OpCreate, testutil.DropAfter(), nobody, create("/j", 0), true, "node already exists: an equal one"},
		"executed, taken and deleted": {
			testutil.OpCreate, testutil.DropAfter(), deleting("/j"), create("/j", 0), false, "no znode exists",
		},
		"not executed": {testutil.OpCreate, testutil.DropBefore(), nobody, create("/j", 0), false, "no znode exists"},
		"not executed, another's is equal": {
			testutil.OpCreate, testutil.DropBefore(), creating("/j", "job", 0), create("/j", 0), true, "node already exists: an equal one",
		},
		"not executed, another's has other data": {
			testutil.OpCreate, testutil.DropBefore(), creating("/j", "?", 0), create("/j", 0), true, "node already exists: with other data",
		},
		"not executed, another's is ephemeral": {
			testutil.OpCreate, testutil.DropBefore(), creating("/j", "job", zk.FlagEphemeral), create("/j", 0), true, "node already exists: of session 0x",
		},
		"executed, of a container": {testutil.OpCreateContainer, testutil.DropAfter(), nobody, create("/j", zk.FlagContainer), true, "node already exists: an equal one"},
		"executed, with a time to live": {testutil.OpCreateTTL, testutil.DropAfter(), deleting("/j"), func(t *testing.T, c *framework.Client) error {
			_, err := c.CreateTTL(t.Context(), "/j", nil, zk.FlagTTL, time.Hour)
			return err
		}, false, "no znode exists"},
		"sequential": {testutil.OpCreate, testutil.DropAfter(), nobody, create("/j-", zk.FlagSequence), false, "zk: connection closed"},
	} {
		t.Run(name, func(t *testing.T) {
			lostWrite(t, c.op, c.action, c.meanwhile, c.write, func(t *testing.T, client *framework.Client, err error) {
				unknown(t, err, c.want)
				found, _, lookErr := client.Exists(t.Context(), "/j")
				must(t, lookErr)
				if found != c.exists || errors.Is(err, zk.ErrNodeExists) != c.exists {
					t.Errorf("exists %v, %v", found, err)
				}
			})
		})
	}
}

// An ephemeral znode of the session is the create's, unless another create of
// the session may have made it.
func TestCreateOfAnEphemeralIsFound(t *testing.T) {
	ephemeral := &zk.CreateRequest{Path: "/e", Flags: zk.FlagEphemeral}
	create := func(ctx context.Context, c *framework.Client) error {
		_, err := c.Create(ctx, "/e", []byte("e"), zk.FlagEphemeral)
		return err
	}
	// givenUp begins a write, and gives it up without an answer.
	givenUp := func(write func(ctx context.Context, c *framework.Client) error) func(*testing.T, *framework.Client, *testutil.ClientNet) {
		return func(t *testing.T, c *framework.Client, net *testutil.ClientNet) {
			stop := net.Control(func(r testutil.Request) testutil.Action {
				if r.Does(testutil.OpCreate, "/e") {
					return testutil.HoldReply(nil)
				}
				return testutil.Pass()
			})
			defer stop()
			if err := write(within(t, time.Millisecond), c); !framework.MaybeApplied(err) {
				t.Error(err)
			}
		}
	}
	for name, c := range map[string]struct {
		before    func(*testing.T, *framework.Client, *testutil.ClientNet)
		action    testutil.Action
		meanwhile deed
		want      string // "": success
	}{
		"executed":                     {nil, testutil.DropAfter(), nobody, ""},
		"not executed":                 {nil, testutil.DropBefore(), nobody, "no znode exists"},
		"executed, deleted, another's": {nil, testutil.DropAfter(), inOrder(deleting("/e"), creating("/e", "e", zk.FlagEphemeral)), "of session"},
		"not executed, another's":      {nil, testutil.DropBefore(), creating("/e", "e", zk.FlagEphemeral), "of session"},
		"refused, the session's own": {
			func(t *testing.T, c *framework.Client, _ *testutil.ClientNet) { must(t, create(t.Context(), c)) }, testutil.DropAfter(), nobody, "an equal one",
		},
		"another is unknown": {givenUp(create), testutil.DropBefore(), nobody, "an equal one"},
		"a multi is unknown": {givenUp(func(ctx context.Context, c *framework.Client) error {
			_, err := c.Multi(ctx, &zk.CheckVersionRequest{Path: "/n", Version: 0}, ephemeral)
			return err
		}), testutil.DropBefore(), nobody, "with other data"},
		"one with a marker is unknown": {givenUp(func(ctx context.Context, c *framework.Client) error {
			_, err := c.MultiOnce(ctx, "/m", nil, ephemeral)
			return err
		}), testutil.DropBefore(), nobody, "with other data"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				c1, net := connect(t, ens)
				other, _ := connect(t, ens)
				creating("/n", "old", 0)(t, c1)
				if c.before != nil {
					c.before(t, c1, net)
				}
				stop := losing(net, testutil.OpCreate, c.action, func() { c.meanwhile(t, other) })
				err := create(t.Context(), c1)
				stop()
				if c.want == "" {
					must(t, err)
				} else {
					unknown(t, err, c.want)
				}
			})
		})
	}
}

// Each fault happens to each request of a write, and another one to those of
// the look for it, while the session expires, the caller gives up or the client
// closes. The write is executed at most once, and what is returned is true.
func TestSentOnceUnderEachFault(t *testing.T) {
	faults := map[string]testutil.Action{
		"before":    testutil.DropBefore(),
		"after":     testutil.DropAfter(),
		"lost":      testutil.Fail(testutil.CodeConnectionLoss),
		"throttled": testutil.Fail(testutil.CodeThrottled),
		"moved":     testutil.Fail(testutil.CodeSessionMoved),
		"late":      testutil.DelayReply(2 * timeout),
		"slow":      testutil.Delay(2 * timeout),
	}
	type write struct {
		op   testutil.Op
		send func(ctx context.Context, c *framework.Client) error
		runs func(n, dir *zk.Stat) int32 // how often it was executed, by the stats of /n and /
	}
	create := func(flags int32) func(context.Context, *framework.Client) error {
		return func(ctx context.Context, c *framework.Client) error {
			_, err := c.Create(ctx, "/dir/j", []byte("job"), flags)
			return err
		}
	}
	creates := func(_, dir *zk.Stat) int32 { return dir.Cversion - (dir.Cversion-dir.NumChildren)/2 }
	for name, w := range map[string]write{
		"set": {testutil.OpSetData, func(ctx context.Context, c *framework.Client) error {
			_, err := c.Set(ctx, "/n", []byte("a"), -1)
			return err
		}, func(n, _ *zk.Stat) int32 { return n.Version }},
		"set ACL": {testutil.OpSetACL, func(ctx context.Context, c *framework.Client) error {
			_, err := c.SetACL(ctx, "/n", zk.WorldACL(zk.PermRead|zk.PermAdmin), -1)
			return err
		}, func(n, _ *zk.Stat) int32 { return n.Aversion }},
		"create":           {testutil.OpCreate, create(0), creates},
		"create ephemeral": {testutil.OpCreate, create(zk.FlagEphemeral), creates},
	} {
		for first, action := range faults {
			for _, second := range bubble.FewOf(2, []string{"", "before", "after", "lost"}) {
				for i, op := range bubble.FewOf(2, []testutil.Op{testutil.OpSync, testutil.OpGetData, testutil.OpGetACL, testutil.OpCreateSession}) {
					if second == "" && i > 0 {
						continue // op is that of the second fault
					}
					for _, end := range []string{"", "expire", "cancel", "close"} {
						t.Run(fmt.Sprint(name, first, second, op, end), func(t *testing.T) {
							inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
								c, net := connect(t, ens)
								other, _ := connect(t, ens)
								creating("/n", "old", 0)(t, c)
								must(t, c.MakePersistentPath(t.Context(), "/dir"))
								ctx, cancel := context.WithTimeout(t.Context(), 20*timeout)
								defer cancel()
								lost, next := testutil.NewFault(testutil.Match{Op: w.op}, action), testutil.NewFault(testutil.Match{Op: op, Times: 2}, faults[second])
								stop := net.Control(func(r testutil.Request) testutil.Action {
									if a := lost.Control(r); a != testutil.Pass() || lost.Count() == 0 {
										return a
									}
									return next.Control(r)
								})
								id := session(t, c).ID()
								go func() {
									<-lost.Hit()
									switch time.Sleep(time.Millisecond); end {
									case "expire":
										_ = ens.ExpireSession(id)
									case "cancel":
										cancel()
									case "close":
										_ = c.Close()
									}
									_ = other.Delete(t.Context(), "/dir/j", -1) // another client takes the job
								}()
								err := w.send(ctx, c)
								runs := func() int32 {
									must(t, other.Sync(t.Context(), "/n"))
									_, n, nErr := other.Exists(t.Context(), "/n")
									must(t, nErr)
									_, dir, dirErr := other.Exists(t.Context(), "/dir")
									must(t, dirErr)
									return w.runs(n, dir)
								}
								synctest.Wait()
								if n := runs(); err == nil && n != 1 || err != nil && !framework.MaybeApplied(err) && n != 0 {
									t.Errorf("%v, executed %d times", err, n)
								}
								stop()
								time.Sleep(5 * timeout) // what is late comes
								if n := runs(); n > 1 {
									t.Errorf("%v, executed %d times", err, n)
								}
							})
						})
					}
				}
			}
		}
	}
}

// A look that fails says why. It costs a sync and a read, in the next session
// if need be.
func TestLookForALostWrite(t *testing.T) {
	set := func(ctx context.Context, c *framework.Client) error {
		_, err := c.Set(ctx, "/n", []byte("a"), -1)
		return err
	}
	inSession := func(ctx context.Context, c *framework.Client) error {
		s, err := c.Session()
		if err == nil {
			_, err = s.Set(ctx, "/n", []byte("a"), -1)
		}
		return err
	}
	for name, c := range map[string]struct {
		acl       []zk.ACL
		meanwhile func(cancel func(), expire func(), c *framework.Client)
		send      func(ctx context.Context, c *framework.Client) error
		want      error // nil: success
	}{
		"answered":              {nil, nil, set, nil},
		"may not read":          {zk.WorldACL(zk.PermWrite), nil, set, zk.ErrNoAuth},
		"cancelled":             {nil, func(cancel, _ func(), _ *framework.Client) { cancel() }, set, context.Canceled},
		"closed":                {nil, func(_, _ func(), c *framework.Client) { _ = c.Close() }, set, framework.ErrClosed},
		"in the next session":   {nil, func(_, expire func(), _ *framework.Client) { expire() }, set, nil},
		"of a session":          {nil, nil, inSession, nil},
		"of a session, expired": {nil, func(_, expire func(), _ *framework.Client) { expire() }, inSession, framework.ErrSessionLost},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				client, net := connect(t, ens)
				_, err := client.Create(t.Context(), "/n", nil, 0, c.acl...)
				must(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				id := session(t, client).ID()
				defer losing(net, testutil.OpSetData, testutil.DropAfter(), func() {
					if c.meanwhile != nil {
						c.meanwhile(cancel, func() { _ = ens.ExpireSession(id) }, client)
					}
				})()
				ens.ResetRequests()
				err = c.send(ctx, client)
				if !errors.Is(err, c.want) || framework.MaybeApplied(err) != (c.want != nil) {
					t.Errorf("%v, may have been applied %v, want %v", err, framework.MaybeApplied(err), c.want)
				}
				if n := ens.Requests(); n[testutil.OpSetData] != 1 || c.want == nil && (n[testutil.OpSync] != 1 || n[testutil.OpGetData] != 1) {
					t.Errorf("requests: %v, want one set, sync and read", n)
				}
			})
		})
	}
}

// duringDone is a context that calls fn in the next call of Done.
type duringDone struct {
	context.Context
	fn func()
}

func (d *duringDone) Done() <-chan struct{} {
	if fn := d.fn; fn != nil {
		d.fn = nil
		fn()
	}
	return d.Context.Done()
}

// A create of an ephemeral znode that is made and answered while another create
// of its path is about to be sent is not taken for that one.
func TestTwoCreatesOfOneEphemeral(t *testing.T) {
	for name, data := range map[string]string{"other data": "first", "the same data": "second"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				c, _ := connect(t, ens)
				s := session(t, c)
				ctx := &duringDone{t.Context(), func() {
					_, err := s.Create(t.Context(), "/x", []byte(data), zk.FlagEphemeral)
					must(t, err)
					toTheNext(ens, testutil.OpCreate, testutil.DropBefore())
				}}
				if _, err := s.Create(ctx, "/x", []byte("second"), zk.FlagEphemeral); !framework.MaybeApplied(err) || !errors.Is(err, zk.ErrNodeExists) {
					t.Errorf("the second create: %v", err)
				}
			})
		})
	}
}
