package doctor_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/doctor"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/tamper"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/sasl/digestmd5"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// limit is how long the quick questions and the removal may take.
const limit = 30 * time.Second

// TestStalls: a server that does not answer one kind of request, or none at
// all, costs no more than the time that there is.
func TestStalls(t *testing.T) {
	for _, op := range []testutil.Op{
		0, testutil.OpCreateSession, testutil.OpCreate, testutil.OpSync, testutil.OpExists, testutil.OpGetData, testutil.OpDelete,
		testutil.OpGetChildren, testutil.OpMulti, testutil.OpCreateContainer, testutil.OpGetACL, testutil.OpCloseSession, 102,
	} {
		t.Run(op.String(), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				network := w.ClientNet("doctor")
				network.Control(func(r testutil.Request) testutil.Action {
					if r.Op == op || op == 0 && r.Op != testutil.OpCreateSession {
						return testutil.Hold(nil)
					}
					return testutil.Pass()
				})
				began := time.Now()
				x := examine(t, w.Servers(), false, framework.WithDialer(network.Dial), framework.WithAuth("digest", []byte("a:b")))
				if took := time.Since(began); took > limit || len(x.answers) == 0 {
					t.Errorf("it took %v\n%s", took, x)
				}
				if len(x.Fails) == 0 && op != testutil.OpCreateContainer && op != 102 {
					t.Errorf("no fault is found\n%s", x)
				}
				if op == testutil.OpCreateSession && x.Reached > 0 {
					t.Errorf("%+v", x.Result)
				}
			})
		})
	}
}

// TestAnAddressThatHangs: a call that is never answered takes its share of the
// time, and the other address is examined.
func TestAnAddressThatHangs(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		dial := func(network, address string, timeout time.Duration) (net.Conn, error) {
			if address == "hangs:2181" {
				time.Sleep(timeout)
				return nil, fmt.Errorf("dial: %w", timedOut{})
			}
			return w.Dial(network, address, timeout)
		}
		began := time.Now()
		x := examine(t, "hangs:2181,"+w.Servers(), false, framework.WithDialer(dial))
		if bad := x.unwell(); !slices.Equal(bad, []string{"session FAILS"}) || x.Reached != 1 || time.Since(began) > limit {
			t.Errorf("%q after %v\n%s", bad, time.Since(began), x)
		}
		clean(t, w.Embedded, x)
	})
}

type timedOut struct{}

func (timedOut) Error() string   { return "i/o timeout" }
func (timedOut) Timeout() bool   { return true }
func (timedOut) Temporary() bool { return true }

// TestMechanismThatHangs: a SASL mechanism that does not return, in its first
// step or in a later one, costs no more than the time that there is, and no
// session is left for longer than its timeout.
func TestMechanismThatHangs(t *testing.T) {
	for _, step := range []int{0, 1, 2} {
		t.Run(fmt.Sprint("step ", step), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				release := make(chan struct{})
				defer close(release)
				m := hanging{digestmd5.New("app", "secret"), step, release}
				began := time.Now()
				x := examine(t, w.Servers(), false, framework.WithDialer(w.Dial), framework.WithSASL(m))
				if took := time.Since(began); took > limit || !slices.Equal(x.unwell(), []string{"session FAILS"}) {
					t.Errorf("it took %v\n%s", took, x)
				}
				time.Sleep(20 * time.Second)
				clean(t, w.Embedded, x)
			}, testutil.WithMembers(3), testutil.WithSASL(map[string]string{"app": "secret"}), testutil.WithEnforcedAuth("sasl"))
		})
	}
}

// hanging is a mechanism whose step hangs: 0 is Begin.
type hanging struct {
	framework.SASL
	step    int
	release <-chan struct{}
}

func (h hanging) Begin(ctx context.Context, to framework.SASLServer) (framework.SASLExchange, error) {
	if h.step == 0 {
		<-h.release
	}
	x, err := h.SASL.Begin(ctx, to)
	return &hangingExchange{x, h.step, h.release}, err
}

type hangingExchange struct {
	framework.SASLExchange
	step    int
	release <-chan struct{}
}

func (x *hangingExchange) Next(challenge []byte) ([]byte, bool, error) {
	if x.step--; x.step == 0 {
		<-x.release
	}
	return x.SASLExchange.Next(challenge)
}

// TestLies: whatever bytes of its answers a server changes, the doctor ends in
// time, deletes nothing of others, and has an answer to each question that it
// asks.
func TestLies(t *testing.T) {
	seeds := 300
	if testing.Short() {
		seeds = 30
	}
	for seed := range seeds { // of one address, so one question is asked at a time
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			other := w.ConnectNext()
			for _, path := range []string{"/app", "/app/precious", "/zkr-doctor-of-another"} {
				if _, err := other.Create(t.Context(), path, []byte("data"), 0); err != nil {
					t.Fatal(err)
				}
			}
			random := rand.New(rand.NewPCG(uint64(seed), 0))
			rarely := 1 + random.IntN(40)
			var mu sync.Mutex // guards random: in the end, sessions are closed at once
			dial := tamper.Wrap(w.Dial, func(a tamper.Answer) tamper.Instead {
				mu.Lock()
				defer mu.Unlock()
				if random.IntN(rarely) > 0 {
					return tamper.Pass(a)
				}
				switch random.IntN(4) {
				case 0:
					return tamper.Instead{Frame: a.Frame[:random.IntN(len(a.Frame)+1)], HangUp: true}
				case 1: // one name for another
					return tamper.Instead{Frame: []byte(strings.ReplaceAll(string(a.Frame), "-", "/"))}
				case 2:
					return tamper.Instead{Frame: append(slices.Clone(a.Frame), a.Frame...)}
				}
				frame := slices.Clone(a.Frame)
				for range 1 + random.IntN(3) {
					frame[random.IntN(len(frame))] = byte(random.Uint32())
				}
				return tamper.Instead{Frame: frame}
			})
			began := time.Now()
			x := examine(t, w.Servers(), false, framework.WithDialer(dial))
			if took := time.Since(began); took > limit {
				t.Errorf("seed %d: it took %v", seed, took)
			}
			if w.Embedded.Children("/app") == nil || !w.Embedded.Exists("/zkr-doctor-of-another") || other.State() != framework.Connected {
				t.Errorf("seed %d: others' znodes are gone: %s", seed, w.Embedded.Tree())
			}
			if len(x.answers) == 0 {
				t.Errorf("seed %d: no answer", seed)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// FuzzNonsense: a server that sends any bytes, and then is silent or hangs up,
// does no harm.
func FuzzNonsense(f *testing.F) {
	connected := wire.AppendFrame(nil, &wire.ConnectResponse{Timeout: 10_000, SessionID: 1, Password: make([]byte, 16)})
	answered := wire.AppendFrame(connected, &wire.ReplyHeader{Xid: 1, Zxid: 1}, &wire.PathResponse{Path: "/x"})
	for _, seed := range [][]byte{nil, {0, 0, 0, 0}, {0xff, 0xff, 0xff, 0xff}, connected, answered, []byte("Zookeeper version: \x1b[2J\nMode: x\n")} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, said []byte, hangUp bool) {
		synctest.Test(t, func(t *testing.T) {
			dial := func(string, string, time.Duration) (net.Conn, error) {
				near, far := net.Pipe()
				go func() { // ends with the connection
					buf := make([]byte, 4096)
					for {
						if _, err := far.Read(buf); err != nil {
							return
						}
					}
				}()
				go func() { // the same
					if _, err := far.Write(said); err == nil && hangUp {
						far.Close()
					}
				}()
				return near, nil
			}
			d, err := doctor.New("liar:2181", false, framework.WithDialer(dial))
			if err != nil {
				t.Fatal(err)
			}
			began, n := time.Now(), 0
			d.Examine(t.Context(), func(a doctor.Answer) {
				n++
				if strings.ContainsRune(a.Seen, '\x1b') && a.Question == "session" {
					t.Errorf("%+v", a)
				}
			})
			if took := time.Since(began); n == 0 || took > limit {
				t.Errorf("%d answers after %v", n, took)
			}
		})
	})
}
