package managed_test

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/tamper"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A server's notification cannot report what only the wire client knows: that
// the connection or the session has ended. Its connection is closed, and the
// session goes on.
func TestNotificationsOfSessionStates(t *testing.T) {
	for name, state := range map[string]zk.State{
		"disconnected": zk.StateDisconnected, "expired": zk.StateExpired, "has session": zk.StateHasSession,
		"auth failed": zk.StateAuthFailed, "unknown": 77,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				c, lies := liar(t, ens, wire.OpGetData, 1, func(f []byte) tamper.Instead {
					event := wire.AppendFrame(nil, &wire.ReplyHeader{Xid: wire.XidNotification, Zxid: -1},
						&wire.WatcherEvent{Type: -1, State: int32(state), Path: ""})
					return tamper.Instead{Frame: append(event, f...)}
				}, framework.WithAuth("digest", []byte("me:secret")))
				must(t, c.WaitConnected(t.Context()))
				s, states := session(t, c), record(c)
				if _, _, err := c.Get(within(t, timeout), "/"); err != nil {
					t.Error(err)
				}
				time.Sleep(2 * timeout)
				if lies.Load() != 1 {
					t.Errorf("%d lies", lies.Load())
				}
				if got, want := states.states(), "CONNECTED SUSPENDED CONNECTED "; got != want || session(t, c).ID() != s.ID() {
					t.Errorf("states %s, want %s", got, want)
				}
			})
		})
	}
}

// The answer to a connect must come to its end in time. The wire client waits
// for the rest of a frame that it has begun to read, however long.
func TestConnectAnswersThatDoNotEnd(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, lies := liar(t, ens, wire.OpCreateSession, 1, func(f []byte) tamper.Instead {
			binary.BigEndian.PutUint32(f, uint32(len(f)-4+100)) // a hundred bytes more than come
			binary.BigEndian.PutUint32(f[8:], 1<<30)            // a timeout of twelve days
			return tamper.Instead{Frame: f}
		})
		began := time.Now()
		must(t, c.WaitConnected(t.Context()))
		if took := time.Since(began); took > timeout || lies.Load() != 1 {
			t.Errorf("connected after %v and %d lies", took, lies.Load())
		}
	})
}

// A create is answered with the path of another znode. Nothing is ever believed
// of that znode, nor done to it, and what was created is found or removed.
func TestCreatesThatAreAnsweredWithAnotherPath(t *testing.T) {
	const other = "/dir/other"
	for name, path := range map[string]func(made string) string{
		"of another znode":   func(string) string { return other },
		"none":               func(string) string { return "" },
		"without a number":   func(made string) string { return made[:len(made)-10] },
		"with a long number": func(made string) string { return made + "0" },
		"below it":           func(made string) string { return made[:len(made)-10] + "/000000001" },
		"relative":           func(made string) string { return made[1:] },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				watcher, _ := connect(t, ens)
				for _, path := range []string{"/dir", other} {
					_, err := watcher.Create(t.Context(), path, nil, 0)
					must(t, err)
				}
				c, lies := liar(t, ens, wire.OpCreate, 1, func(f []byte) tamper.Instead {
					var made wire.PathResponse
					must(t, wire.Unmarshal(f[answerHead:], &made))
					return resized((&wire.PathResponse{Path: path(made.Path)}).Append(slices.Clip(f[:answerHead])))
				})
				must(t, c.WaitConnected(t.Context()))
				s := session(t, c)
				made, err := s.CreateProtected(t.Context(), "/dir", "lock-", nil, zk.FlagEphemeral|zk.FlagSequence)
				must(t, err)
				if lies.Load() != 1 {
					t.Errorf("%d lies", lies.Load())
				}
				if !strings.HasPrefix(made.Path, "/dir/_c_") || !strings.Contains(made.Path, "-lock-000000000") {
					t.Errorf("created %s", made.Path)
				}
				if found, _, err := watcher.Exists(t.Context(), made.Path); err != nil || !found {
					t.Errorf("%s: found %t, %v", made.Path, found, err)
				}
				must(t, s.Delete(t.Context(), made.Path, -1))
				time.Sleep(time.Second)
				if left := ens.Children("/dir"); !slices.Equal(left, []string{"other"}) {
					t.Errorf("left: %q", left)
				}
			})
		})
	}
}

// The same for a create by a path, of which the client cannot say whether it
// was executed, and for those of a batch.
func TestPlainCreatesThatAreAnsweredWithAnotherPath(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		lie := func(f []byte) tamper.Instead {
			return resized((&wire.PathResponse{Path: "/zookeeper"}).Append(slices.Clip(f[:answerHead])))
		}
		c, _ := liar(t, ens, wire.OpCreate, 1, lie)
		path, err := c.Create(t.Context(), "/made", nil, zk.FlagSequence)
		if err == nil || !framework.MaybeApplied(err) || !strings.Contains(err.Error(), "malformed answer") {
			t.Errorf("created %q, %v: want an error that says what is wrong", path, err)
		}
		c, _ = liar(t, ens, wire.OpCreateTTL, 1, lie)
		path, err = c.CreateTTL(t.Context(), "/ttl-", nil, zk.FlagPersistentSequentialWithTTL, time.Hour)
		if err == nil || !framework.MaybeApplied(err) || !strings.Contains(err.Error(), "malformed answer") {
			t.Errorf("created %q, %v, with a time to live", path, err)
		}
		c, _ = liar(t, ens, wire.OpCreateContainer, 1, lie)
		must(t, c.MakeContainerPath(t.Context(), "/a/b"))
		c, _ = liar(t, ens, wire.OpMulti, 1, func(f []byte) tamper.Instead {
			return resized((&wire.MultiResponse{Results: []wire.MultiResult{{Op: wire.OpCreate, Path: "/zookeeper"}}}).Append(slices.Clip(f[:answerHead])))
		})
		must(t, c.WaitConnected(t.Context()))
		paths, _, err := session(t, c).CreateAllProtected(t.Context(), framework.ProtectedBatch{Dir: "/a/b", Name: "lease-", N: 1, Flags: zk.FlagEphemeral | zk.FlagSequence})
		if err != nil || len(paths) != 1 || !strings.HasPrefix(paths[0], "/a/b/_c_") {
			t.Errorf("created %q, %v", paths, err)
		}
		c, _ = liar(t, ens, wire.OpMulti, 1, func(f []byte) tamper.Instead {
			return resized((&wire.MultiResponse{Results: []wire.MultiResult{{Op: wire.OpCreate, Path: "/zookeeper"}}}).Append(slices.Clip(f[:answerHead])))
		})
		_, err = c.Multi(t.Context(), &zk.CreateRequest{Path: "/by-multi"})
		if err == nil || !framework.MaybeApplied(err) || !strings.Contains(err.Error(), "malformed answer") {
			t.Errorf("Multi: %v", err)
		}
	}, testutil.WithExtendedTypes())
}

// A server that grants a session timeout that makes no sense is not used. The
// error says so, few requests are sent, and the next honest answer is taken.
func TestSessionTimeoutsThatMakeNoSense(t *testing.T) {
	for name, granted := range map[string]uint32{
		"a millisecond": 1, "99 milliseconds": 99, "more than an hour": 3600001, "24 days": 1<<31 - 1, "0": 0, "negative": 1 << 31,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				var lying atomic.Bool
				lying.Store(true)
				c, lies := liar(t, ens, wire.OpCreateSession, 1<<30, func(f []byte) tamper.Instead {
					if lying.Load() {
						binary.BigEndian.PutUint32(f[8:], granted)
					}
					return tamper.Instead{Frame: f}
				})
				err := c.WaitConnected(within(t, 10*time.Second))
				if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "malformed answer: a session timeout of ") {
					t.Errorf("connected: %v", err)
				}
				if n := lies.Load(); n < 5 || n > 100 {
					t.Errorf("%d attempts to connect in ten seconds", n)
				}
				lying.Store(false)
				if _, _, err := c.Get(within(t, time.Minute), "/"); err != nil {
					t.Errorf("with an honest server: %v", err)
				}
			})
		})
	}
}

// A server that grants what was requested is used, whatever that is.
func TestOddSessionTimeouts(t *testing.T) {
	for _, timeout := range []time.Duration{20 * time.Millisecond, 99*time.Millisecond + 999*time.Microsecond, 2*time.Hour + time.Microsecond} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			c, _ := start(t, w.Embedded, framework.WithSessionTimeout(timeout))
			must(t, c.WaitConnected(within(t, 10*time.Second)))
			if got := session(t, c).Timeout(); got != timeout.Truncate(time.Millisecond) {
				t.Errorf("%v was granted", got)
			}
		}, testutil.WithTick(10*time.Millisecond), testutil.WithSessionTimeouts(time.Millisecond, 3*time.Hour))
	}
}

// A server's numbers make the client ask for more than any honest server has,
// which then refuses the session. That ends in time, and another one begins.
func TestTransactionNumbersOfTheFuture(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, lies := liar(t, ens, wire.OpGetData, 1, func(f []byte) tamper.Instead {
			binary.BigEndian.PutUint64(f[8:], 1<<62)
			return tamper.Instead{Frame: f}
		})
		must(t, c.WaitConnected(within(t, timeout)))
		s, states := session(t, c), record(c)
		_, _, err := c.Get(within(t, timeout), "/")
		must(t, err)
		must(t, ens.DropConnections(s.ID()))
		must(t, c.Sync(within(t, 2*timeout), "/"))
		if got := states.states(); got != "CONNECTED SUSPENDED LOST CONNECTED " || lies.Load() != 1 {
			t.Errorf("states %s after %d lies", got, lies.Load())
		}
	})
}
