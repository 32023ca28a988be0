package untrusted

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/tamper"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

const (
	frameXid   = 4
	frameZxid  = 8
	frameErr   = 16
	answerHead = 20
)

// liar stands between a client and its server, and replaces answers.
type liar struct {
	mu     sync.Mutex // guards what follows
	draw   func() (which, how byte)
	honest bool
	told   map[string]int
	back   []byte // an answer that is held back
}

// A lie is what a client gets in place of an answer. The lies of lies leave
// what the ensemble has done as it is: they are such that the client can know
// them, or that they say nothing about znodes.
type lie struct {
	name string
	tell func(l *liar, f []byte, how byte) tamper.Instead
}

func resized(f []byte) tamper.Instead {
	binary.BigEndian.PutUint32(f, uint32(len(f)-4))
	return tamper.Instead{Frame: f}
}

// put returns a lie that overwrites four bytes with one of several numbers.
func put(at int, numbers ...uint32) func(l *liar, f []byte, how byte) tamper.Instead {
	return func(_ *liar, f []byte, how byte) tamper.Instead {
		if len(f) >= at+4 {
			binary.BigEndian.PutUint32(f[at:], numbers[int(how)%len(numbers)])
		}
		return tamper.Instead{Frame: f}
	}
}

// before returns a lie that sends other frames before the answer.
func before(frames func(how byte) []byte) func(l *liar, f []byte, how byte) tamper.Instead {
	return func(_ *liar, f []byte, how byte) tamper.Instead {
		return tamper.Instead{Frame: append(frames(how), f...)}
	}
}

var lies = []lie{
	{"length", put(0, 1<<31-1, 1<<31, 1<<32-1, 65<<20, 0, 1, 15, 16, 17)},
	{"xid", put(frameXid, 0, 1, 2, 1<<30, 1<<31-1, 1<<31, 1<<32-3, 1<<32-4, 1<<32-8)},
	{"count", put(answerHead, 1<<31-1, 1<<31, 1<<32-2, 1<<26, 1<<20)},
	{"zxid", func(_ *liar, f []byte, how byte) tamper.Instead {
		if len(f) >= frameErr {
			binary.BigEndian.PutUint64(f[frameZxid:], []uint64{0, 1, 1<<64 - 1, 1 << 63, 1 << 62, 1 << 32}[how%6])
		}
		return tamper.Instead{Frame: f}
	}},
	{"cut", func(_ *liar, f []byte, how byte) tamper.Instead { return resized(f[:4+int(how)%(len(f)-4)]) }},
	{"cut and end", func(_ *liar, f []byte, how byte) tamper.Instead {
		return tamper.Instead{Frame: f[:int(how)%len(f)], HangUp: true}
	}},
	{"twice", func(_ *liar, f []byte, _ byte) tamper.Instead { return tamper.Instead{Frame: slices.Concat(f, f)} }},
	{"never", func(_ *liar, _ []byte, _ byte) tamper.Instead { return tamper.Instead{} }},
	{"slow", func(_ *liar, f []byte, how byte) tamper.Instead {
		return tamper.Instead{Frame: f, Pace: time.Duration(how) * 5 * time.Millisecond}
	}},
	{"out of order", func(l *liar, f []byte, _ byte) tamper.Instead {
		if l.back == nil {
			l.back = f
			return tamper.Instead{}
		}
		both := append(f, l.back...)
		l.back = nil
		return tamper.Instead{Frame: both}
	}},
	{"an answer to nothing", before(func(how byte) []byte {
		return wire.AppendFrame(nil, &wire.ReplyHeader{Xid: int32(how)<<20 + 7}, &wire.PathResponse{Path: root})
	})},
	{"pings", before(func(how byte) []byte {
		var all []byte
		for range int(how) * 10 {
			all = wire.AppendFrame(all, &wire.ReplyHeader{Xid: wire.XidPing})
		}
		return all
	})},
	{"an event", before(func(how byte) []byte {
		path := []string{"", "/", root, root + "/locks", root + "/leases", "/unknown", "//", "\xff"}[how%8]
		return wire.AppendFrame(nil, &wire.ReplyHeader{Xid: wire.XidNotification, Zxid: -1}, &wire.WatcherEvent{Type: wire.EventType(how>>3%8) + 1, State: 3, Path: path})
	})},
	{"an event of the session", before(func(how byte) []byte {
		state := []int32{0, 3, 100, 101, -112, -113, 1 << 30}[how%7]
		return wire.AppendFrame(nil, &wire.ReplyHeader{Xid: wire.XidNotification, Zxid: -1}, &wire.WatcherEvent{Type: wire.EventType(-int32(how >> 6)), State: state})
	})},
	{"a path", func(_ *liar, f []byte, how byte) tamper.Instead { // of another znode than was created
		var made wire.PathResponse
		if len(f) < answerHead || wire.Unmarshal(f[answerHead:], &made) != nil || len(made.Path) < 12 || how%2 == 0 {
			return tamper.Instead{Frame: f}
		}
		path := []string{"", "/", root, made.Path + "0", made.Path[:len(made.Path)-10], made.Path[:len(made.Path)-12] + "x-0000000000"}[how>>1%6]
		return resized((&wire.PathResponse{Path: path}).Append(slices.Clip(f[:answerHead])))
	}},
}

// connectLies are lies about a session.
var connectLies = []lie{
	{"session id", put(16, 0, 1, 1<<31)},
	{"timeout", put(8, 0, 1, 50, 1<<31, 1<<31-1, 4_000_000)},
	{"password", put(20, 0, 15, 17, 1<<31-1, 1<<32-1)},
	{"length", put(0, 0, 1, 36, 38, 1000, 1025, 1<<31-1, 1<<31)},
	{"gone", func(_ *liar, f []byte, _ byte) tamper.Instead { clear(f[8:20]); return tamper.Instead{Frame: f} }},
	{"cut", func(_ *liar, f []byte, how byte) tamper.Instead { return resized(f[:4+int(how)%(len(f)-4)]) }},
	{"slow", func(_ *liar, f []byte, how byte) tamper.Instead {
		return tamper.Instead{Frame: f, Pace: time.Duration(how) * 20 * time.Millisecond}
	}},
	{"never", func(_ *liar, _ []byte, _ byte) tamper.Instead { return tamper.Instead{} }},
}

func (l *liar) answer(a tamper.Answer) tamper.Instead {
	l.mu.Lock()
	defer l.mu.Unlock()
	which, how := l.draw()
	if l.honest || which == 0 {
		return tamper.Pass(a)
	}
	from := lies
	if a.Op == wire.OpCreateSession {
		from, l.back = connectLies, nil
	}
	one := from[int(which)%len(from)]
	l.told[one.name]++
	return one.tell(l, slices.Clone(a.Frame), how)
}

func (l *liar) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.honest = true
}

// A server lies to one of three clients. No lease is granted by that beside
// another. All calls end with their contexts. Once the server is honest, all
// goes on, and nothing is left.
func TestServerThatLies(t *testing.T) {
	eachSeed(t, func(t *testing.T, w *bubble.World, k kind, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		lying := rand.New(rand.NewPCG(seed, 2))
		seldom := 4 << lying.IntN(4)
		lied(t, w, k, rnd, 30*time.Second, func() (which, how byte) {
			if lying.IntN(seldom) > 0 {
				return 0, 0
			}
			return byte(1 + lying.IntN(255)), byte(lying.IntN(256))
		})
	})
}

func lied(t *testing.T, w *bubble.World, k kind, rnd *rand.Rand, d time.Duration, draw func() (which, how byte)) {
	w.Latency(time.Millisecond)
	watcher := w.Connect("watcher")
	if _, err := watcher.Create(t.Context(), "/guarded", nil, 0); err != nil {
		t.Fatal(err)
	}
	l := &liar{draw: draw, told: make(map[string]int)}
	network := w.ClientNet("deceived")
	deceived, err := framework.New(w.Servers(), framework.WithDialer(tamper.Wrap(network.Dial, l.answer)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = deceived.Close() })
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s := newScene(t, w, k, deceived, w.ConnectNext(), w.ConnectNext())
	s.begin(rnd)
	time.Sleep(d)
	l.stop()
	network.Drop()
	s.end()
	runtime.ReadMemStats(&after)
	if grown := int64(after.TotalAlloc - before.TotalAlloc); grown > 1<<30 {
		t.Errorf("%d bytes were allocated", grown)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t.Logf("told %v; %s; %d MB allocated", l.told, s.summary(), (after.TotalAlloc-before.TotalAlloc)>>20)
	w.NothingLeft()
}

// FuzzLies is TestServerThatLies with any lies.
func FuzzLies(f *testing.F) {
	for _, all := range [][]lie{lies, connectLies} {
		for which := range all {
			f.Add(byte(which), []byte{0, 0, 0, 0, byte(which + len(all)), byte(9 * which), 0, 0, byte(which + len(all)), 255})
		}
	}
	f.Fuzz(func(t *testing.T, which byte, script []byte) {
		k := kinds[int(which)%len(kinds)]
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			lied(t, w, k, rand.New(rand.NewPCG(1, 1)), 3*time.Second, func() (which, how byte) {
				if len(script) < 2 {
					return 0, 0
				}
				which, how = script[0], script[1]
				script = script[2:]
				return which, how
			})
		})
	})
}
