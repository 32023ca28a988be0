package doctor_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/doctor"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/hidden"
	"github.com/zkrecipes/zkrecipes/internal/test/tamper"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/sasl/digestmd5"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// examined is what a doctor has found.
type examined struct {
	doctor.Result
	answers []doctor.Answer
}

// examine asks all questions.
func examine(t *testing.T, servers string, slow bool, opts ...framework.Option) (x examined) {
	t.Helper()
	d, err := doctor.New(servers, slow, opts...)
	if err != nil {
		t.Fatal(err)
	}
	x.Result = d.Examine(t.Context(), func(a doctor.Answer) { x.answers = append(x.answers, a) })
	return x
}

// unwell returns the questions with another verdict than ok.
func (x examined) unwell() (all []string) {
	found := map[string]bool{}
	for _, a := range x.answers {
		if a.Verdict != doctor.OK {
			found[fmt.Sprintf("%s %s", a.Question, a.Verdict)] = true
		}
		if a.Verdict != doctor.OK && a.Do == "" || a.Promise == "" || a.Seen == "" {
			found[fmt.Sprintf("incomplete: %+v", a)] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func (x examined) String() string {
	var b strings.Builder
	for _, a := range x.answers {
		fmt.Fprintf(&b, "%-5s %s %s: %s\n", a.Verdict, a.Address, a.Question, a.Seen)
	}
	return b.String()
}

// clean checks that the doctor has left nothing at an ensemble.
func clean(t *testing.T, e *testutil.Embedded, x examined) {
	t.Helper()
	if x.Left != nil {
		t.Errorf("left: %v", x.Left)
	}
	if left := e.Sessions(); len(left) > 0 {
		t.Errorf("sessions are left: %v", left)
	}
	if left := e.Children("/"); !slices.Equal(left, []string{"zookeeper"}) {
		t.Errorf("znodes are left: %q", left)
	}
}

// TestHealthy: all answers of the embedded ensemble are good, and nothing is
// left. The quick questions take no time to speak of.
func TestHealthy(t *testing.T) {
	for _, members := range []int{1, 3} {
		for _, slow := range []bool{false, true} {
			t.Run(fmt.Sprint(members, slow), func(t *testing.T) {
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					began := time.Now()
					x := examine(t, w.Servers(), slow, framework.WithDialer(w.Dial))
					if bad := x.unwell(); bad != nil {
						t.Errorf("%q\n%s", bad, x)
					}
					if x.Addresses != members || x.Reached != members || len(x.answers) < 14*members {
						t.Errorf("%+v\n%s", x.Result, x)
					}
					if took := time.Since(began); !slow && took > time.Second {
						t.Errorf("it took %v", took)
					}
					clean(t, w.Embedded, x)
				}, testutil.WithMembers(members))
			})
		}
	}
}

// variant is an ensemble in which one promise does not hold.
type variant struct {
	name    string
	options []testutil.Option
	client  []framework.Option
	slow    bool
	dial    func(e *testutil.Embedded) tamper.Dial               // nil: the ensemble's
	control func(testutil.Request) testutil.Action               // may be nil
	servers func(t *testing.T, e *testutil.Embedded) string      // nil: the ensemble's
	want    []string                                             // questions and verdicts
	says    string                                               // part of what was seen, or is to be done
	left    func(t *testing.T, e *testutil.Embedded, x examined) // nil: nothing
}

var variants = []variant{
	{
		name:    "a session of less than two ticks",
		options: []testutil.Option{testutil.WithTick(4 * time.Second), testutil.WithSessionTimeouts(time.Second, time.Minute)},
		client:  []framework.Option{framework.WithSessionTimeout(6 * time.Second)},
		want:    []string{"session FAILS"}, says: "WithServerTick",
	},
	{
		name:    "minSessionTimeout of less than two ticks",
		options: []testutil.Option{testutil.WithSessionTimeouts(time.Second, time.Minute)},
		want:    []string{"session note"}, says: "minSessionTimeout 1s",
	},
	{
		name:    "a longer timeout than was asked for",
		options: []testutil.Option{testutil.WithSessionTimeouts(20*time.Second, time.Minute)},
		want:    []string{"session note"}, says: "20s granted of 10s",
	},
	{
		name: "an observer", want: []string{"session note"}, says: "observer master",
		dial: saying("Mode: standalone", "Mode: observer"),
	},
	{
		name: "no quorum, read-only", want: []string{"session FAILS"}, says: "has no quorum",
		dial: saying("Mode: standalone", "Mode: read-only"),
	},
	{
		name: "it closes each connection", want: []string{"session FAILS"}, says: "maxClientCnxns",
		control: func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpCreateSession {
				return testutil.DropBefore()
			}
			return testutil.Pass()
		},
	},
	{
		name: "it resets each connection", want: []string{"session FAILS"}, says: "maxClientCnxns",
		dial: func(*testutil.Embedded) tamper.Dial {
			return func(string, string, time.Duration) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Err: syscall.ECONNRESET}
			}
		},
	},
	{
		name: "no right to create", want: []string{"session FAILS"}, says: "give credentials",
		control: func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpCreate {
				return testutil.Fail(testutil.CodeNoAuth)
			}
			return testutil.Pass()
		},
	},
	{
		name: "no session is resumed", want: []string{"resume FAILS"}, says: "has ended",
		dial: func(e *testutil.Embedded) tamper.Dial {
			return asking(e.Dial, func(c *wire.ConnectRequest) {
				if c.SessionID != 0 && c.Timeout > 1 {
					c.SessionID++
				}
			})
		},
	},
	{
		name: "no session is resumed at another address", options: []testutil.Option{testutil.WithMembers(2)},
		want: []string{"resume FAILS"}, says: "ended at member1:2181",
		dial: func(e *testutil.Embedded) tamper.Dial {
			var of sync.Map // the sessions of member0
			noting := tamper.Wrap(e.Dial, func(a tamper.Answer) tamper.Instead {
				var r wire.ConnectResponse
				if a.Op == wire.OpCreateSession && wire.Unmarshal(a.Frame[4:], &r) == nil && r.SessionID != 0 {
					of.Store(r.SessionID, true)
				}
				return tamper.Pass(a)
			})
			elsewhere := asking(e.Dial, func(c *wire.ConnectRequest) {
				if _, known := of.Load(c.SessionID); known && c.Timeout > 1 {
					c.SessionID++
				}
			})
			return func(network, address string, timeout time.Duration) (net.Conn, error) {
				if address == "member0:2181" {
					return noting(network, address, timeout)
				}
				return elsewhere(network, address, timeout)
			}
		},
	},
	{
		name: "another session is given", want: []string{"resume FAILS"}, says: "another session",
		dial: func(e *testutil.Embedded) tamper.Dial {
			return asking(e.Dial, func(c *wire.ConnectRequest) {
				if c.SessionID != 0 && c.Timeout > 1 {
					c.SessionID = 0
				}
			})
		},
	},
	{
		name: "any password is right", want: []string{"resume FAILS"}, says: "wrong password",
		dial: func(e *testutil.Embedded) tamper.Dial {
			passwords := map[int64][]byte{}
			learning := tamper.Wrap(e.Dial, func(a tamper.Answer) tamper.Instead {
				var r wire.ConnectResponse
				if a.Op == wire.OpCreateSession && wire.Unmarshal(a.Frame[4:], &r) == nil {
					passwords[r.SessionID] = r.Password
				}
				return tamper.Pass(a)
			})
			return asking(learning, func(c *wire.ConnectRequest) {
				if c.SessionID != 0 {
					c.Password = passwords[c.SessionID]
				}
			})
		},
	},
	{
		name: "no sync of the root, as zetcd", want: []string{"proof FAILS"}, says: "ProofWrite",
		control: refuse(testutil.OpSync, "/", testutil.CodeNoNode),
	},
	{
		name: "no check of the root", want: []string{"proof FAILS"}, says: "multi of one check",
		control: refuse(testutil.OpMulti, "/", testutil.CodeUnimplemented),
	},
	{
		name: "a slow leader", want: []string{"proof note"}, says: "slow disk",
		control: func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpSync && r.Path == "/" {
				return testutil.Delay(2 * time.Second)
			}
			return testutil.Pass()
		},
	},
	{
		name: "a close is not answered", want: []string{"close FAILS"}, says: "not answered",
		control: func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpCloseSession {
				return testutil.DropAfter()
			}
			return testutil.Pass()
		},
	},
	{
		name: "a close is answered, and not made", want: []string{"close FAILS"}, says: "is answered, and its ephemeral znode stays",
		dial: func(e *testutil.Embedded) tamper.Dial {
			return behind(e.Dial, "-close0", func(_ net.Conn, frame []byte) []byte {
				if head := (wire.RequestHeader{}); wire.Unmarshal(frame[4:], &head) == nil && head.Op == wire.OpCloseSession {
					return wire.AppendFrame(nil, &wire.RequestHeader{Xid: head.Xid, Op: wire.OpExists}, &wire.WatchRequest{Path: "/"})
				}
				return frame
			})
		},
		left: untilItsTimeout,
	},
	{
		name: "no close in one write with the connect", want: []string{"close FAILS"}, says: "a close over another connection",
		dial: func(e *testutil.Embedded) tamper.Dial {
			return writing(e.Dial, func(c net.Conn, frames []byte, first bool) []byte {
				if first && len(frames) > 8 && len(frames) > 4+int(binary.BigEndian.Uint32(frames)) {
					c.Close()
				}
				return frames
			})
		},
		left: untilItsTimeout,
	},
	{
		name: "answers in another order", want: []string{"order FAILS"}, says: "in place of",
		dial: func(e *testutil.Embedded) tamper.Dial { return late(e.Dial, wire.OpSetData) },
	},
	{
		name: "a list is old", want: []string{"order FAILS"}, says: "a list behind a create",
		dial: replacing(wire.OpGetChildren, "/zkr-doctor-", func(frame []byte) { spoil(frame, "-order") }),
	},
	{
		name: "a read is old", want: []string{"order FAILS"}, says: "a read behind a write",
		dial: replacing(wire.OpGetData, "-order", func(frame []byte) { spoil(frame, "set") }),
	},
	{
		name: "a deleted znode is shown", want: []string{"order FAILS"}, says: "a read behind a delete",
		dial: replacing(wire.OpExists, "-order", func(frame []byte) { binary.BigEndian.PutUint32(frame[16:], 0) }),
	},
	{
		name: "an event comes late", want: []string{"events FAILS"}, says: "has not come before",
		dial: func(e *testutil.Embedded) tamper.Dial { return late(e.Dial, wire.OpNotify) },
	},
	{
		name: "an event of another znode", want: []string{"events FAILS"}, says: "-evonts",
		dial: replacing(wire.OpNotify, "", func(frame []byte) { copy(frame[len(frame)-3:], "nts"); frame[len(frame)-4] = 'o' }),
	},
	{
		name: "the same number again", want: []string{"numbers FAILS"}, says: "was deleted",
		dial: func(e *testutil.Embedded) tamper.Dial {
			return writing(e.Dial, func(_ net.Conn, frame []byte, _ bool) []byte {
				var head wire.RequestHeader
				var body wire.CreateRequest
				if wire.Unmarshal(frame[4:], &head) != nil || head.Op != wire.OpCreate || wire.Unmarshal(frame[12:], &body) != nil || body.Mode != wire.ModeSequential {
					return frame
				}
				body.Path, body.Mode = body.Path+"0000000007", wire.ModePersistent
				return wire.AppendFrame(nil, &head, &body)
			})
		},
	},
	{
		name: "czxid stands still", want: []string{"numbers FAILS"}, says: "czxid",
		dial: replacing(wire.OpExists, "/n-", func(frame []byte) { binary.BigEndian.PutUint64(frame[4+16:], 1) }),
	},
	{
		name: "a directory is older than the one before", want: []string{"numbers FAILS"}, says: "that was made again",
		dial: func(e *testutil.Embedded) tamper.Dial {
			return tamper.Wrap(e.Dial, func(a tamper.Answer) tamper.Instead {
				if a.Op == wire.OpExists && strings.HasSuffix(a.Path, "-numbers") {
					binary.BigEndian.PutUint64(a.Frame[4+16:], 1)
				}
				return tamper.Pass(a)
			})
		},
	},
	{
		name: "an answer does not name its transaction", want: []string{"numbers note"}, says: "does not name its transaction",
		dial: replacing(wire.OpCreate, "/n-", func(frame []byte) { binary.BigEndian.PutUint64(frame[8:], 1) }),
	},
	{
		name: "pzxid stands still", want: []string{"numbers note"}, says: "pzxid",
		dial: replacing(wire.OpExists, "-numbers", func(frame []byte) { binary.BigEndian.PutUint64(frame[len(frame)-8:], 1<<60) }),
	},
	{
		name: "no recursive watches", want: []string{"watches note"}, says: "no recursive watches: marshalling error",
		options: []testutil.Option{hidden.WithoutLastingWatches()},
	},
	{
		name: "before 3.6", want: []string{"watches note"}, says: "no request for many reads: unimplemented",
		options: []testutil.Option{testutil.WithoutNewOperations()},
	},
	{
		name: "no containers", want: []string{"containers note"}, says: "--no-containers",
		control: func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpCreateContainer {
				return testutil.DropBefore()
			}
			return testutil.Pass()
		},
	},
	{
		name: "local sessions", want: []string{"ephemerals FAILS"}, says: "localSessionsUpgradingEnabled",
		control: func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpCreate && strings.HasSuffix(r.Path, "-ephemerals") {
				return testutil.Fail(-120)
			}
			return testutil.Pass()
		},
	},
	{
		name: "local sessions that are upgraded", want: []string{"local FAILS"}, says: "lease.Multi",
		dial: saying("SessionTracker dump:\nSession Sets", "SessionTracker dump:\nLocal Sets"),
	},
	{
		name: "an ephemeral znode of another session", want: []string{"ephemerals FAILS"}, says: "belongs to 0x7",
		dial: replacing(wire.OpExists, "-ephemerals", func(frame []byte) { binary.BigEndian.PutUint64(frame[4+16+44:], 7) }),
	},
	{
		name: "no ACL for oneself", want: []string{"identity FAILS"}, says: "with the ACL auth",
		control: func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpCreate && strings.HasSuffix(r.Path, "-identity") {
				return testutil.Fail(testutil.CodeNoAuth)
			}
			return testutil.Pass()
		},
	},
	{
		name:   "credentials that are not taken",
		client: []framework.Option{framework.WithAuth("digest", []byte("ops:secret"))},
		want:   []string{"identity FAILS"}, says: "scheme digest",
		dial: replacing(wire.OpGetACL, "-identity", func(frame []byte) { copy(frame[4+16+4+4+4:], "sasl12") }),
	},
	{
		name: "large requests are refused", want: []string{"size note"}, says: "is taken, one of",
		dial: func(e *testutil.Embedded) tamper.Dial {
			return writing(e.Dial, func(c net.Conn, frame []byte, _ bool) []byte {
				if len(frame) > 300_000 {
					c.Close()
				}
				return frame
			})
		},
	},
	{
		name: "no request of 4 KiB is taken", want: []string{"size FAILS"}, says: "jute.maxbuffer",
		dial: func(e *testutil.Embedded) tamper.Dial {
			return writing(e.Dial, func(c net.Conn, frame []byte, _ bool) []byte {
				if len(frame) > 4096 {
					c.Close()
				}
				return frame
			})
		},
	},
	{
		name: "a quota", want: []string{"quota note"}, says: "count=5",
		servers: func(t *testing.T, e *testutil.Embedded) string {
			c, err := framework.New(e.Servers(), framework.WithDialer(e.Dial))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for _, path := range []string{"/app", "/app/team", "/zookeeper/quota/app", "/zookeeper/quota/app/zookeeper_limits"} {
				if _, err := c.Create(t.Context(), path, []byte("count=5,bytes=-1"), 0); err != nil {
					t.Fatal(err)
				}
			}
			return e.Servers() + "/app/team"
		},
		left: func(t *testing.T, e *testutil.Embedded, _ examined) {
			if left := e.Children("/app/team"); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		},
	},
	{
		name: "the leader's clock is ahead", want: []string{"clock note"}, says: "1h0m0s ahead",
		dial: replacing(wire.OpExists, "-clock", func(frame []byte) {
			at := frame[4+16+16:]
			binary.BigEndian.PutUint64(at, binary.BigEndian.Uint64(at)+3_600_000)
		}),
	},
	{
		name: "the leader's clock is behind", want: []string{"clock note"}, says: "1h0m0s behind",
		dial: replacing(wire.OpExists, "-clock", func(frame []byte) {
			at := frame[4+16+16:]
			binary.BigEndian.PutUint64(at, binary.BigEndian.Uint64(at)-3_600_000)
		}),
	},
	{
		name: "times in nanoseconds, as with zetcd", want: []string{"clock note"}, says: "more than 100 years ahead",
		dial: replacing(wire.OpExists, "-clock", func(frame []byte) {
			at := frame[4+16+16:]
			binary.BigEndian.PutUint64(at, binary.BigEndian.Uint64(at)*1_000_000)
		}),
	},
	{
		name: "sessions end early", slow: true, want: []string{"expiry FAILS"}, says: "has ended after",
		options: []testutil.Option{hidden.WithClockRates(func(int64) float64 { return 2 })},
	},
	{
		name: "silent sessions never end, as with zetcd", slow: true, want: []string{"expiry FAILS"}, says: "still stands",
		options: []testutil.Option{hidden.WithClockRates(func(int64) float64 { return 0.1 })},
		left:    func(*testing.T, *testutil.Embedded, examined) {},
	},
	{
		name: "containers stay", slow: true, want: []string{"sweep note"}, says: "still stands",
		options: []testutil.Option{testutil.WithContainerInterval(time.Hour)},
	},
	{
		name: "idle connections end", slow: true, want: []string{"idle note"}, says: "idle timeout",
		control: func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpPing {
				return testutil.DropBefore()
			}
			return testutil.Pass()
		},
	},
}

// TestVariants: where one promise does not hold, the doctor finds that one and
// no other, says what to do, and leaves nothing.
func TestVariants(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				servers, dial := w.Servers(), w.Dial
				if v.servers != nil {
					servers = v.servers(t, w.Embedded)
				}
				if v.dial != nil {
					dial = v.dial(w.Embedded)
				}
				stop := w.Embedded.Control(v.control)
				x := examine(t, servers, v.slow, append(v.client, framework.WithDialer(dial))...)
				stop()
				if bad := x.unwell(); !slices.Equal(bad, v.want) {
					t.Errorf("found %q, want %q\n%s", bad, v.want, x)
				}
				for _, a := range x.answers {
					if a.Verdict != doctor.OK && !strings.Contains(a.Seen+a.Do, v.says) {
						t.Errorf("%+v, want %q in it", a, v.says)
					}
					if strings.Contains(fmt.Sprint(a), "secret") {
						t.Errorf("a secret is told: %+v", a)
					}
				}
				if v.left != nil {
					v.left(t, w.Embedded, x)
					return
				}
				clean(t, w.Embedded, x)
			}, v.options...)
		})
	}
}

// untilItsTimeout checks that nothing is left but a session that the server has
// not closed.
func untilItsTimeout(t *testing.T, e *testutil.Embedded, x examined) {
	t.Helper()
	time.Sleep(20 * time.Second)
	clean(t, e, x)
}

// spoil changes a text in a frame.
func spoil(frame []byte, text string) {
	if at := bytes.Index(frame, []byte(text)); at > 0 {
		frame[at] = '~'
	}
}

func refuse(op testutil.Op, path string, code testutil.Code) func(testutil.Request) testutil.Action {
	return func(r testutil.Request) testutil.Action {
		if r.Op == op && r.Path == path {
			return testutil.Fail(code)
		}
		return testutil.Pass()
	}
}

// saying replaces a text in the answers to four-letter words by a shorter one.
func saying(before, after string) func(*testutil.Embedded) tamper.Dial {
	return func(e *testutil.Embedded) tamper.Dial {
		return func(network, address string, timeout time.Duration) (net.Conn, error) {
			c, err := e.Dial(network, address, timeout)
			return &reader{c, before, after}, err
		}
	}
}

type reader struct {
	net.Conn
	before, after string
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	return copy(p, strings.ReplaceAll(string(p[:n]), r.before, r.after)), err
}

// replacing changes the answers to op on paths that have part in them.
func replacing(op wire.Op, part string, change func(frame []byte)) func(*testutil.Embedded) tamper.Dial {
	return func(e *testutil.Embedded) tamper.Dial {
		return tamper.Wrap(e.Dial, func(a tamper.Answer) tamper.Instead {
			if a.Op == op && strings.Contains(a.Path, part) {
				change(a.Frame)
			}
			return tamper.Pass(a)
		})
	}
}

// late lets answers to op arrive behind the next answer of the connection.
func late(dial tamper.Dial, op wire.Op) tamper.Dial {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		var held []byte
		return tamper.Wrap(dial, func(a tamper.Answer) tamper.Instead {
			if a.Op == op && held == nil {
				held = a.Frame
				return tamper.Instead{}
			}
			out := append(a.Frame, held...)
			held = nil
			return tamper.Instead{Frame: out}
		})(network, address, timeout)
	}
}

// asking changes the connect requests.
func asking(dial tamper.Dial, change func(*wire.ConnectRequest)) tamper.Dial {
	return writing(dial, func(_ net.Conn, frames []byte, first bool) []byte {
		if !first || len(frames) == len("srvr") {
			return frames
		}
		size := 4 + binary.BigEndian.Uint32(frames)
		var c wire.ConnectRequest
		if wire.Unmarshal(frames[4:size], &c) != nil {
			return frames
		}
		change(&c)
		return append(wire.AppendFrame(nil, &c), frames[size:]...)
	})
}

// writing changes what is written at once.
func writing(dial tamper.Dial, change func(c net.Conn, frames []byte, first bool) []byte) tamper.Dial {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		c, err := dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		return &writer{Conn: c, change: change, first: true}, nil
	}
}

// behind changes what is written on a connection after a path that has part in
// it was.
func behind(dial tamper.Dial, part string, change func(c net.Conn, frames []byte) []byte) tamper.Dial {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		seen := false
		return writing(dial, func(c net.Conn, frames []byte, _ bool) []byte {
			if seen {
				return change(c, frames)
			}
			seen = bytes.Contains(frames, []byte(part))
			return frames
		})(network, address, timeout)
	}
}

type writer struct {
	net.Conn
	change func(c net.Conn, frames []byte, first bool) []byte
	first  bool
}

func (w *writer) Write(p []byte) (int, error) {
	first := w.first
	w.first = false
	if _, err := w.Conn.Write(w.change(w.Conn, p, first)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// TestKeeper: of a server that resumes no session, the doctor says what does
// not hold there.
func TestKeeper(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		network := w.ClientNet("doctor")
		network.Imitate(testutil.ClickHouseKeeper)
		x := examine(t, w.Servers(), false, framework.WithDialer(network.Dial))
		if bad := x.unwell(); !slices.Equal(bad, []string{"close FAILS", "containers note", "numbers note", "resume FAILS"}) {
			t.Errorf("found %q\n%s", bad, x)
		}
		if left := w.Embedded.Children("/"); len(left) > 1 {
			t.Errorf("left: %q", left)
		}
		time.Sleep(20 * time.Second)
		clean(t, w.Embedded, x) // what cannot be closed ends by itself
	})
}

// TestTwoEnsembles: the doctor sees that the addresses lead to two ensembles,
// and leaves nothing at either.
func TestTwoEnsembles(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		other := bubble.New(t)
		dial := func(network, address string, timeout time.Duration) (net.Conn, error) {
			if address == "other:2181" {
				return other.Dial(network, other.Servers(), timeout)
			}
			return w.Dial(network, address, timeout)
		}
		x := examine(t, w.Servers()+",other:2181", false, framework.WithDialer(dial))
		if bad := x.unwell(); !slices.Equal(bad, []string{"ensemble FAILS"}) {
			t.Errorf("found %q\n%s", bad, x)
		}
		clean(t, w.Embedded, x)
		clean(t, other.Embedded, x)
	})
}

// TestUnlistedMembers: members that are not in the list are a note, and a
// member that does not run is a failure.
func TestUnlistedMembers(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		x := examine(t, "member1:2181", false, framework.WithDialer(w.Dial))
		if bad := x.unwell(); !slices.Equal(bad, []string{"ensemble note"}) || !strings.Contains(x.String(), "member0:2181, member2:2181") {
			t.Errorf("found %q\n%s", bad, x)
		}
		x = examine(t, w.Servers()+",old:2181", false, framework.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
			if address == "old:2181" {
				address = "member0:2181"
			}
			return w.Dial(network, address, limit)
		}))
		if !strings.Contains(x.String(), "--servers has what is no member in /zookeeper/config: old:2181") {
			t.Errorf("found %q\n%s", x.unwell(), x)
		}
		x = examine(t, "proxy:2181", false, framework.WithDialer(func(network, _ string, limit time.Duration) (net.Conn, error) {
			return w.Dial(network, "member0:2181", limit)
		}))
		if strings.Contains(x.String(), "is no member") { // it stands for all of them
			t.Errorf("found %q\n%s", x.unwell(), x)
		}
		if err := w.Stop((w.Leader() + 1) % 3); err != nil {
			t.Fatal(err)
		}
		x = examine(t, w.Servers(), false, framework.WithDialer(w.Dial))
		if bad := x.unwell(); !slices.Equal(bad, []string{"session FAILS"}) || x.Reached != 2 {
			t.Errorf("found %q\n%s", bad, x)
		}
		clean(t, w.Embedded, x)
	}, testutil.WithMembers(3))
}

// TestIdentity: the doctor sees which SASL there is, what is required, and who
// it is, without the hash of a password.
func TestIdentity(t *testing.T) {
	for _, test := range []struct {
		name    string
		options []testutil.Option
		client  []framework.Option
		want    []string
		says    string
	}{
		{"nobody", nil, nil, nil, "no SASL; none are required; this client is nobody in particular"},
		{"digest", nil, []framework.Option{framework.WithAuth("digest", []byte("ops:secret"))}, nil, "this client is digest:ops"},
		{
			"SASL",
			[]testutil.Option{testutil.WithSASL(map[string]string{"app": "secret"}), testutil.WithEnforcedAuth("sasl")},
			[]framework.Option{framework.WithSASL(digestmd5.New("app", "secret"))},
			nil, "SASL DIGEST-MD5; credentials are required; this client is sasl:app",
		},
		{
			"wrong password",
			[]testutil.Option{testutil.WithSASL(map[string]string{"app": "secret"}), testutil.WithEnforcedAuth("sasl")},
			[]framework.Option{framework.WithSASL(digestmd5.New("app", "wrong"))},
			[]string{"session FAILS"},
			"does not accept the client",
		},
		{"no credentials where they are required", []testutil.Option{testutil.WithEnforcedAuth("digest")}, nil, []string{"session FAILS"}, "the servers require credentials"},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				x := examine(t, w.Servers(), false, append(test.client, framework.WithDialer(w.Dial))...)
				if bad := x.unwell(); !slices.Equal(bad, test.want) || !strings.Contains(fmt.Sprint(x.answers), test.says) {
					t.Errorf("found %q, want %q and %q\n%s", bad, test.want, test.says, x)
				}
				if strings.Contains(x.String(), "secret") || strings.Contains(x.String(), strings.TrimPrefix(testutil.Digest("ops:secret"), "ops:")) {
					t.Errorf("a secret is told:\n%s", x)
				}
				if test.want != nil { // who is refused cannot close its session either
					time.Sleep(10 * time.Second)
				}
				clean(t, w.Embedded, x)
			}, test.options...)
		})
	}
}
