package link

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/test/script"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// However the network cuts the answers into pieces, each head is passed on once
// and before the end of its frame.
func TestInboundFindsEveryHead(t *testing.T) {
	frame := func(xid int32, size int) []byte {
		b := make([]byte, 4+size)
		binary.BigEndian.PutUint32(b, uint32(size))
		if size >= 4 {
			binary.BigEndian.PutUint32(b[4:], uint32(xid))
		}
		return b
	}
	var stream []byte
	stream = append(stream, frame(-9, 37)...) // the connect answer
	sizes := []int{16, 17, 1000, 20, 0, 3, 16, 70000}
	for i, size := range sizes {
		stream = append(stream, frame(int32(i), size)...)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		var in inbound
		var heads [][]byte
		firsts := 0
		for rest := stream; len(rest) > 0; {
			n := min(len(rest), 1+rnd.IntN(50))
			in.feed(rest[:n], func(head []byte, first bool) ([]field, bool) {
				heads = append(heads, bytes.Clone(head))
				if first {
					firsts++
				}
				return nil, true
			})
			if rest = rest[n:]; in.have < 4 && in.rest() != 4-in.have {
				t.Fatalf("%d bytes of a size are there, and %d to come", in.have, in.rest())
			}
		}
		if len(heads) != 1+len(sizes) || firsts != 1 {
			t.Fatalf("%d heads, %d of them first; want %d and 1", len(heads), firsts, 1+len(sizes))
		}
		for i, size := range sizes {
			head := heads[i+1]
			if want := 4 + min(size, frameAnswerHead-4); len(head) != want {
				t.Fatalf("head %d has %d bytes, want %d", i, len(head), want)
			}
			if size >= 4 && int(binary.BigEndian.Uint32(head[4:])) != i {
				t.Fatalf("head %d has another frame's xid", i)
			}
		}
	}
}

// FuzzInbound checks that, however the network cuts a stream into pieces, the
// same heads are passed on and the same frame is refused, before its end.
func FuzzInbound(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3}, uint64(1))
	f.Add(append(make([]byte, 41), 0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0), uint64(2))
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		look := func(cut func(left int) int) (heads [][]byte, refused bool) {
			var in inbound
			for rest := stream; len(rest) > 0; {
				n := cut(len(rest))
				ok := in.feed(rest[:n], func(head []byte, first bool) ([]field, bool) {
					heads = append(heads, bytes.Clone(head))
					if first {
						parseConnectAnswer(head)
						return nil, true
					}
					return bodies[wire.OpGetChildren2], len(head) == frameAnswerHead
				})
				if !ok {
					return heads, true
				}
				rest = rest[n:]
			}
			return heads, false
		}
		rnd := rand.New(rand.NewPCG(seed, 0))
		whole, refused := look(func(left int) int { return left })
		for _, cut := range []func(left int) int{func(int) int { return 1 }, func(left int) int { return 1 + rnd.IntN(left) }} {
			if heads, again := look(cut); again != refused || !slices.EqualFunc(heads, whole, bytes.Equal) {
				t.Errorf("refused %t with heads %x; in other fields %t with %x", refused, whole, again, heads)
			}
		}
	})
}

// What is known of a frame that ends too early.
func TestPathOfWrite(t *testing.T) {
	for op, head := range map[wire.Op]int{wire.OpCreate: 12, wire.OpDelete: 12, wire.OpMulti: 21} {
		frame := append(make([]byte, head), 0, 0, 0, 2, '/', 'a')
		binary.BigEndian.PutUint32(frame[8:], uint32(op))
		for n := range len(frame) + 1 {
			wantOp, want := op, ""
			if n < 12 {
				wantOp = 0
			}
			if n == len(frame) {
				want = "/a"
			}
			if got := string(pathOfWrite(frame[:n], op)); got != want || opOf(frame[:n]) != wantOp {
				t.Errorf("%v, %d bytes: path %q, operation %v", op, n, got, opOf(frame[:n]))
			}
		}
	}
	if got := pathOfWrite([]byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02/a"), wire.OpSetData); got != nil {
		t.Errorf("a write that nobody waits for: %q", got)
	}
	if got := pathIn([]byte{0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}, 4); got != nil {
		t.Errorf("a length of -1: %q", got)
	}
}

// What is sent behind the request that closes the session is left out and
// reported as sent: an error would have the wire client close the connection
// before it has read the last answer.
func TestWritesBehindTheLastRequest(t *testing.T) {
	l := &Link{sending: make(chan struct{}, 1), closeSent: true} // a write to its Conn would panic
	if n, err := l.Write(make([]byte, 12)); n != 12 || err != nil {
		t.Errorf("wrote %d bytes: %v", n, err)
	}
}

// The memory for a write is kept for the next one, unless it is large.
func TestMemoryThatIsKeptForWrites(t *testing.T) {
	for size, kept := range map[int]bool{64 << 10: true, 64<<10 + 1: false} {
		_, _, on := standing()
		on.whole, on.behind = make([]byte, 0, size), []ownRequest{{op: wire.OpPing}}
		if got := on.withBehind([]byte("frame")); len(got) <= len("frame") || (on.whole != nil) != kept {
			t.Errorf("%d bytes: kept %t, want %t", size, on.whole != nil, kept)
		}
	}
}

// Frames that are cut off do no harm, and what made no sense once is the end.
func TestFramesThatAreCutOff(t *testing.T) {
	_, c, on := standing()
	on.connectSent, on.unpresented = true, []wire.AuthRequest{{Scheme: "digest", Auth: []byte("a")}}
	auth := wire.AppendFrame(nil, &wire.RequestHeader{Xid: wire.XidAuth, Op: wire.OpAuth}, &wire.AuthRequest{Scheme: "digest", Auth: []byte("a")})
	if !on.beforeSend(auth[:6]) || !on.beforeSend(auth[:14]) || on.IsPresented() {
		t.Error("a frame that is cut off presents credentials")
	}
	if !on.beforeSend(auth) || !on.IsPresented() || !on.beforeSend(auth) {
		t.Error("they are not presented, or not again")
	}
	if got := on.nameSeen(make([]byte, connectSeen+7)); len(got) != connectSeen+7 {
		t.Errorf("a connect request of %d bytes", len(got))
	}
	on.fault = zkerr.Malformed
	if n, err := on.Read(make([]byte, 8)); n != 0 || !errors.Is(err, zkerr.Malformed) {
		t.Errorf("behind what makes no sense: %d, %v", n, err)
	}
	for size := range frameXid + 4 {
		conn, theirs := net.Pipe()
		go func() {
			_, _ = theirs.Write([]byte{0, 0, 0, 16, 255, 0, 0, 0}[:size])
			_ = theirs.Close()
		}()
		on = newLink(conn, c, servers.Server{}, nil, time.Hour)
		if own, err := on.readOwn(); own || !errors.Is(err, io.EOF) {
			t.Errorf("after %d bytes: %t, %v", size, own, err)
		}
		_ = on.Close()
	}
}

// Four bytes that are no size are the end, whatever follows or does not.
func TestASizeIsJudgedAtOnce(t *testing.T) {
	for name, begin := range map[string]func(on *Link){
		"before an exchange": func(on *Link) { on.authenticate = func(net.Conn, io.Reader, time.Duration) error { return nil } },
		"of the first":       func(*Link) {},
		"of a later one":     func(on *Link) { on.in.later = true },
	} {
		synctest.Test(t, func(t *testing.T) {
			_, c, _ := standing()
			c.buffers.conn = &zk.Conn{}
			conn, theirs := net.Pipe()
			defer theirs.Close()
			go func() { _, _ = theirs.Write([]byte{255, 255, 255, 255}) }()
			on := newLink(script.Answers(conn), c, servers.Server{}, nil, time.Minute)
			begin(on)
			began := time.Now()
			if _, err := on.Read(make([]byte, 8)); !errors.Is(err, zkerr.Malformed) || time.Since(began) > 0 {
				t.Errorf("%s: %v after %v", name, err, time.Since(began))
			}
			_ = conn.Close()
		})
	}
}
