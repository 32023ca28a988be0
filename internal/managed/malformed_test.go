package managed_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/tamper"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// liar is a client whose first n answers of a kind are replaced.
func liar(t *testing.T, ens *testutil.Embedded, op wire.Op, n int32, lie func(frame []byte) tamper.Instead, opts ...framework.Option) (*framework.Client, *atomic.Int32) {
	t.Helper()
	var lies atomic.Int32
	network := ens.ClientNet(t.Name())
	opts = append(opts, framework.WithSessionTimeout(timeout),
		framework.WithDialer(tamper.Wrap(network.Dial, func(a tamper.Answer) tamper.Instead {
			if a.Op != op || lies.Load() >= n {
				return tamper.Pass(a)
			}
			lies.Add(1)
			return lie(slices.Clone(a.Frame))
		})))
	c, err := framework.New(ens.Servers(), opts...)
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c, &lies
}

// resized is a frame that says how long it is.
func resized(frame []byte) tamper.Instead {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return tamper.Instead{Frame: frame}
}

const answerHead = 20 // length, xid, zxid, error

// The wire client decodes answers without checking their lengths. A list of -1
// names made it allocate 64 GiB. A multi that ended too early made it panic. A
// length beyond the end of its frame made it read what the previous frame had
// left. Now an answer that cannot be decoded closes its connection, and the
// request is handled as after any loss. A known failure elsewhere:
// go-zookeeper.
func TestAnswersThatCannotBeDecoded(t *testing.T) {
	asks := map[wire.Op]func(t *testing.T, c *framework.Client) error{
		wire.OpCreate: func(t *testing.T, c *framework.Client) error {
			_, err := c.Create(t.Context(), "/made", nil, 0)
			return err
		},
		wire.OpCreateContainer: func(t *testing.T, c *framework.Client) error { return c.MakeContainerPath(t.Context(), "/container") },
		wire.OpExists: func(t *testing.T, c *framework.Client) error {
			_, _, err := c.Exists(t.Context(), "/there")
			return err
		},
		wire.OpGetData: func(t *testing.T, c *framework.Client) error {
			data, _, err := c.Get(t.Context(), "/there")
			if err == nil && string(data) != "data" {
				t.Errorf("data %q", data)
			}
			return err
		},
		wire.OpSetData: func(t *testing.T, c *framework.Client) error {
			_, err := c.Set(t.Context(), "/there", []byte("data"), -1)
			return err
		},
		wire.OpGetChildren2: func(t *testing.T, c *framework.Client) error {
			names, _, err := c.Children(t.Context(), "/there")
			if slices.Sort(names); err == nil && !slices.Equal(names, []string{"a", "b"}) {
				t.Errorf("children %q", names)
			}
			return err
		},
		wire.OpGetACL: func(t *testing.T, c *framework.Client) error {
			acl, _, err := c.GetACL(t.Context(), "/there")
			if err == nil && !slices.Equal(acl, zk.WorldACL(zk.PermAll)) {
				t.Errorf("ACL %v", acl)
			}
			return err
		},
		wire.OpSetACL: func(t *testing.T, c *framework.Client) error {
			_, err := c.SetACL(t.Context(), "/there", zk.WorldACL(zk.PermAll), -1)
			return err
		},
		wire.OpSync: func(t *testing.T, c *framework.Client) error { return c.Sync(t.Context(), "/there") },
		wire.OpMultiRead: func(t *testing.T, c *framework.Client) error {
			found, err := c.ReadAll(t.Context(), framework.Read{Path: "/there", Children: true}, framework.Read{Path: "/there"}, framework.Read{Path: "/none"})
			if err != nil {
				return err
			}
			if slices.Sort(found[0].Children); !slices.Equal(found[0].Children, []string{"a", "b"}) || string(found[1].Data) != "data" || !errors.Is(found[2].Err, zk.ErrNoNode) {
				t.Errorf("found %+v", found)
			}
			return nil
		},
		wire.OpMulti: func(t *testing.T, c *framework.Client) error {
			_, err := c.Multi(t.Context(), &zk.SetDataRequest{Path: "/there", Data: []byte("data"), Version: -1},
				&zk.CreateRequest{Path: "/there/c", Flags: zk.FlagEphemeral}, &zk.DeleteRequest{Path: "/there/c", Version: -1})
			return err
		},
	}
	// These can be: the end of a multi without results, and a path, behind
	// which stands a stat that nobody looks at.
	harmless := map[string]bool{"multi/a length of -1": true, "multiRead/a length of -1": true, "createContainer/half of it": true, "createContainer/a byte short": true}
	for op, ask := range asks {
		for name, lie := range map[string]func(frame []byte) tamper.Instead{
			"half of it":           func(f []byte) tamper.Instead { return resized(f[:answerHead+(len(f)-answerHead)/2]) },
			"a byte short":         func(f []byte) tamper.Instead { return resized(f[:len(f)-1]) },
			"nothing but its head": func(f []byte) tamper.Instead { return resized(f[:answerHead]) },
			"less than its head":   func(f []byte) tamper.Instead { return resized(f[:answerHead-1]) },
			"no bytes":             func(f []byte) tamper.Instead { return resized(f[:4]) },
			"four bytes of a body": func(f []byte) tamper.Instead { return resized(f[:answerHead+4]) },
			"a length of -1": func(f []byte) tamper.Instead {
				return resized(append(f[:answerHead:answerHead], bytes.Repeat([]byte{0xff}, 14)...))
			},
			"a length of 2 GiB": func(f []byte) tamper.Instead {
				return resized(append(f[:answerHead:answerHead], 0x7f, 0xff, 0xff, 0xff, 0, 0))
			},
			"a length of a megabyte": func(f []byte) tamper.Instead { return resized(append(f[:answerHead:answerHead], 0, 0x10, 0, 0, 'x')) },
			"to nobody": func(f []byte) tamper.Instead {
				binary.BigEndian.PutUint32(f[4:], 0x7ffffff0)
				return tamper.Instead{Frame: f}
			},
			"twice":            func(f []byte) tamper.Instead { return tamper.Instead{Frame: slices.Concat(f, f)} },
			"a frame too long": func(f []byte) tamper.Instead { binary.BigEndian.PutUint32(f, 1<<30); return tamper.Instead{Frame: f} },
			"a frame of half":  func(f []byte) tamper.Instead { return tamper.Instead{Frame: f[:len(f)/2], HangUp: true} },
			"a frame that does not end": func(f []byte) tamper.Instead {
				binary.BigEndian.PutUint32(f, 1<<20)
				return tamper.Instead{Frame: f}
			},
		} {
			t.Run(op.String()+"/"+name, func(t *testing.T) {
				inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
					other, _ := connect(t, ens)
					for _, path := range []string{"/there", "/there/a", "/there/b"} {
						_, err := other.Create(t.Context(), path, []byte("data"), 0)
						must(t, err)
					}
					c, lies := liar(t, ens, op, 1, lie)
					must(t, c.WaitConnected(t.Context()))
					s, states := session(t, c), record(c)
					began := time.Now()
					err := ask(t, c)
					if took := time.Since(began); took > 2*timeout {
						t.Errorf("it took %v", took)
					}
					switch {
					case lies.Load() != 1:
						t.Errorf("%d answers were replaced", lies.Load())
					case err == nil:
					case op == wire.OpCreate && errors.Is(err, zk.ErrNodeExists) && framework.MaybeApplied(err):
					case op == wire.OpMulti && framework.MaybeApplied(err):
					default:
						t.Error(err)
					}
					if _, _, err := c.Get(t.Context(), "/there"); err != nil {
						t.Errorf("afterwards: %v", err)
					}
					if session(t, c).ID() != s.ID() {
						t.Error("it cost the session")
					}
					want := "CONNECTED SUSPENDED CONNECTED "
					if harmless[op.String()+"/"+name] {
						want = "CONNECTED "
					}
					if got := states.states(); got != want {
						t.Errorf("states %s, want %s", got, want)
					}
				})
			})
		}
	}
}

// FuzzAnswers sends a client any bytes as the body of an answer. The client
// returns an error or takes them as they are. The process must go on.
func FuzzAnswers(f *testing.F) {
	ens, err := testutil.New(testutil.InMemory(), testutil.WithLogger(func(string, ...any) {}))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = ens.Close() })
	asks := []struct {
		op  wire.Op
		ask func(ctx context.Context, c *framework.Client) error
	}{
		{wire.OpGetChildren2, func(ctx context.Context, c *framework.Client) error { _, _, err := c.Children(ctx, "/"); return err }},
		{wire.OpGetData, func(ctx context.Context, c *framework.Client) error { _, _, err := c.Get(ctx, "/"); return err }},
		{wire.OpGetACL, func(ctx context.Context, c *framework.Client) error { _, _, err := c.GetACL(ctx, "/"); return err }},
		{wire.OpExists, func(ctx context.Context, c *framework.Client) error { _, _, err := c.Exists(ctx, "/"); return err }},
		{wire.OpSync, func(ctx context.Context, c *framework.Client) error { return c.Sync(ctx, "/") }},
		{wire.OpMulti, func(ctx context.Context, c *framework.Client) error {
			_, err := c.Multi(ctx, &zk.CheckVersionRequest{Path: "/", Version: -1})
			return err
		}},
		{wire.OpCreate, func(ctx context.Context, c *framework.Client) error {
			_, err := c.Create(ctx, "/fuzz", nil, zk.FlagEphemeral|zk.FlagSequence)
			return err
		}},
	}
	for i := range asks {
		for _, body := range []string{
			"", "\xff\xff\xff\xff", "\x7f\xff\xff\xff", "\x00\x00\x00\x01", "\x00\x00\x00\x01\x00\x00\x00\x01x" + strings.Repeat("\x00", 68),
			"\x00\x00\x00\x0d\x00\xff\xff\xff\xff", "\xff\xff\xff\xff\x00\x00\x00\x00\x00", "\x00\x00\x00\x05\x00\x00\x00\x00\x00",
		} {
			f.Add(byte(i), []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, which byte, body []byte) {
		ask := asks[int(which)%len(asks)]
		c, err := framework.New(ens.Servers(), framework.WithRetry(retry.Never()),
			framework.WithDialer(tamper.Wrap(ens.Dial, func(a tamper.Answer) tamper.Instead {
				if a.Op != ask.op {
					return tamper.Pass(a)
				}
				return resized(append(a.Frame[:answerHead:answerHead], body...))
			})))
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		must(t, c.WaitConnected(ctx))
		if err := ask.ask(ctx, c); ctx.Err() != nil {
			t.Errorf("it does not end: %v", err)
		}
		must(t, c.Close())
	})
}

// A multi with fewer results than operations has failed.
func TestAMultiOfTooFewResults(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := liar(t, ens, wire.OpMulti, 1, func(f []byte) tamper.Instead {
			return resized(append(f[:answerHead:answerHead], 0xff, 0xff, 0xff, 0xff, 1, 0xff, 0xff, 0xff, 0xff))
		})
		responses, err := c.Multi(t.Context(), &zk.CreateRequest{Path: "/made"})
		if err == nil || !framework.MaybeApplied(err) {
			t.Errorf("responses %v, error %v: want one that it may have been applied", responses, err)
		}
	})
}

// Codes that the wire client has no error for have a text in the results as
// well.
func TestAMultiThatIsRefusedForAnUnknownReason(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := liar(t, ens, wire.OpMulti, 1, func(f []byte) tamper.Instead {
			return tamper.Instead{Frame: bytes.ReplaceAll(f, binary.BigEndian.AppendUint32(nil, -101&0xffffffff), binary.BigEndian.AppendUint32(nil, -125&0xffffffff))}
		})
		const want = "quota exceeded (code -125)"
		responses, err := c.Multi(t.Context(), &zk.CheckVersionRequest{Path: "/none"})
		if err == nil || err.Error() != "multi: check /none: "+want || len(responses) != 1 || responses[0].Error == nil || responses[0].Error.Error() != want {
			t.Errorf("%v, %v", responses, err)
		}
	})
}

// A notification that cannot be decoded closes the connection, and all watchers
// look again.
func TestNotificationsThatCannotBeDecoded(t *testing.T) {
	for name, lie := range map[string]func(frame []byte) tamper.Instead{
		"half of it": func(f []byte) tamper.Instead { return resized(f[:len(f)/2]) },
		"its head":   func(f []byte) tamper.Instead { return resized(f[:answerHead]) },
		"a path of 2 GiB": func(f []byte) tamper.Instead {
			binary.BigEndian.PutUint32(f[answerHead+8:], 0x7fffffff)
			return tamper.Instead{Frame: f}
		},
		"a path of -1 byte": func(f []byte) tamper.Instead {
			binary.BigEndian.PutUint32(f[answerHead+8:], 0xffffffff)
			return tamper.Instead{Frame: f}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				c, lies := liar(t, ens, 0, 1, lie)
				values, err := c.WatchData(t.Context(), "/watched")
				must(t, err)
				if first := <-values; first.Exists {
					t.Fatalf("it is there: %v", first)
				}
				other, _ := connect(t, ens)
				_, err = other.Create(t.Context(), "/watched", []byte("new"), 0)
				must(t, err)
				if v := <-values; string(v.Data) != "new" || lies.Load() != 1 {
					t.Errorf("%q after %d replaced notifications", v.Data, lies.Load())
				}
			})
		})
	}
}

// A malformed connect answer never ends the session, which goes on if the next
// answer comes in time. A known failure elsewhere: go-zookeeper.
func TestConnectAnswersThatAreNone(t *testing.T) {
	for name, lie := range map[string]func(frame []byte) tamper.Instead{
		"half of it": func(f []byte) tamper.Instead { return resized(f[:len(f)/2]) },
		"its head":   func(f []byte) tamper.Instead { return resized(f[:8]) },
		"a password of 2 GiB": func(f []byte) tamper.Instead {
			binary.BigEndian.PutUint32(f[20:], 0x7fffffff)
			return tamper.Instead{Frame: f}
		},
		"no password":    func(f []byte) tamper.Instead { binary.BigEndian.PutUint32(f[20:], 0); return tamper.Instead{Frame: f} },
		"a timeout of 0": func(f []byte) tamper.Instead { binary.BigEndian.PutUint32(f[8:], 0); return tamper.Instead{Frame: f} },
		"a timeout in the past": func(f []byte) tamper.Instead {
			binary.BigEndian.PutUint32(f[8:], 0x80000000)
			return tamper.Instead{Frame: f}
		},
	} {
		for _, again := range []bool{false, true} {
			what := "at first/"
			if again {
				what = "again/"
			}
			t.Run(what+name, func(t *testing.T) {
				inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
					var lying atomic.Bool
					lying.Store(!again)
					c, lies := liar(t, ens, wire.OpCreateSession, 1000, func(f []byte) tamper.Instead {
						if lying.CompareAndSwap(true, false) {
							return lie(f)
						}
						return tamper.Instead{Frame: f}
					})
					if again {
						must(t, c.WaitConnected(within(t, timeout))) // so that the first state is known
					}
					states := record(c)
					must(t, c.WaitConnected(within(t, timeout)))
					s := session(t, c)
					if again {
						lying.Store(true)
						must(t, ens.DropConnections(s.ID()))
						must(t, c.Sync(within(t, timeout), "/"))
					}
					if lying.Load() || lies.Load() < 2 {
						t.Error("nothing was replaced")
					}
					want := "CONNECTING CONNECTED "
					if again {
						want = "CONNECTED SUSPENDED CONNECTED "
					}
					if got := states.states(); got != want || session(t, c).ID() != s.ID() {
						t.Errorf("states %s, want %s", got, want)
					}
				})
			})
		}
	}
}

// If all answers to a request are malformed, the request fails in bounded time
// and says why. It uses bounded memory.
func TestNothingButMalformedAnswers(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, lies := liar(t, ens, wire.OpGetChildren2, 1<<30, func(f []byte) tamper.Instead {
			return resized(append(f[:answerHead:answerHead], 0x0f, 0xff, 0xff, 0xff, 0, 0))
		})
		must(t, c.WaitConnected(t.Context()))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		_, _, err := c.Children(t.Context(), "/")
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "malformed answer") {
			t.Errorf("error %v, want one that says why", err)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %v", took)
		}
		if took := int64(after.TotalAlloc-before.TotalAlloc) / int64(lies.Load()); took > 8<<20 {
			t.Errorf("%d bytes for each answer", took)
		}
		must(t, c.Sync(t.Context(), "/"))
	})
}

// A multi that does not fit into one request is refused before it is sent. The
// wire client panicked if its buffer ended within the head of an operation. A
// known failure elsewhere: go-zookeeper.
func TestMultisThatAreTooLarge(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		for size := 1536<<10 - 127; size < 1536<<10+10; size++ {
			_, err := c.Multi(t.Context(), &zk.SetDataRequest{Path: "/a", Data: make([]byte, size), Version: -1})
			if err == nil || framework.MaybeApplied(err) {
				t.Fatalf("%d bytes: %v", size, err)
			}
		}
		must(t, c.Sync(t.Context(), "/"))
		if session(t, c).ID() != s.ID() {
			t.Error("it cost the session")
		}
	})
}

// An answer that is too long ends in an error that says so, however often the
// request is retried, and whether the connection or the retries end first. A
// known failure elsewhere: go-zookeeper.
func TestAnAnswerThatIsTooLongIsNamed(t *testing.T) {
	for _, tries := range []int{1, 3, 10} {
		inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
			c, lies := liar(t, ens, wire.OpGetChildren2, 1<<30, func(frame []byte) tamper.Instead {
				binary.BigEndian.PutUint32(frame, 65<<20)
				return tamper.Instead{Frame: frame}
			}, framework.WithRetry(retry.NTimes(tries, time.Millisecond)))
			must(t, c.WaitConnected(t.Context()))
			for range 5 {
				_, _, err := c.Children(t.Context(), "/")
				if err == nil || !strings.Contains(err.Error(), "malformed answer: 68157440 bytes") {
					t.Errorf("%d tries: %v", tries, err)
				}
			}
			if lies.Load() == 0 {
				t.Error("nothing was asked for")
			}
		})
	}
}
