package testutil_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// recorder is a logger that keeps its lines.
type recorder struct {
	mu    sync.Mutex
	lines []string
}

func (r *recorder) printf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func (r *recorder) has(part string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lines {
		if strings.Contains(l, part) {
			return true
		}
	}
	return false
}

// Garbage on a connection closes that connection, the log says why, and other
// clients are not affected.
func TestGarbageClosesItsConnection(t *testing.T) {
	handshake := wire.AppendFrame(nil, &wire.ConnectRequest{Timeout: 5000, Password: make([]byte, 16)})
	request := func(op wire.Op, body ...byte) []byte {
		b := wire.AppendInt32(nil, int32(8+len(body)))
		return append((&wire.RequestHeader{Xid: 1, Op: op}).Append(b), body...)
	}
	for name, c := range map[string]struct {
		bytes []byte
		log   string
		end   bool // the client closes its half after the bytes
	}{
		"a length of 2 GiB":                   {bytes: []byte{0x7f, 0xff, 0xff, 0xff}, log: "frame of length 2147483647"},
		"a negative length":                   {bytes: []byte{0x80, 0, 0, 0}, log: "frame of length -2147483648"},
		"one byte over the limit":             {bytes: []byte{0, 0x10, 0, 0}, log: "frame of length 1048576"},
		"http":                                {bytes: []byte("GET / HTTP/1.1\r\n\r\n"), log: "frame of length 1195725856"},
		"an empty handshake":                  {bytes: []byte{0, 0, 0, 0}, log: "malformed message: need "},
		"a handshake with a huge password":    {bytes: wire.AppendInt32(append([]byte{0, 0, 0, 28}, make([]byte, 24)...), 1<<30), log: "malformed message: need "},
		"a stop in the middle of a length":    {bytes: []byte{0, 0}, log: "unexpected EOF", end: true},
		"a stop in the middle of a handshake": {bytes: handshake[:20], log: "unexpected EOF", end: true},
		"an empty request":                    {bytes: append(handshake[:len(handshake):len(handshake)], 0, 0, 0, 0), log: "malformed message: need "},
		"a short header":                      {bytes: append(handshake[:len(handshake):len(handshake)], 0, 0, 0, 4, 0, 0, 0, 1), log: "malformed message: need "},
		"an unknown operation":                {bytes: append(handshake[:len(handshake):len(handshake)], request(4711)...), log: "op 4711"},
		"a stop in the middle of a request":   {bytes: append(handshake[:len(handshake):len(handshake)], request(wire.OpCreate)[:7]...), log: "unexpected EOF", end: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &recorder{}
				e := testutil.Start(t, testutil.InMemory(), testutil.WithLogger(log.printf))
				other := single(t, e, 0, 20*time.Second)
				nc := dialMember(t, e, 0)
				if _, err := nc.Write(c.bytes); err != nil {
					t.Fatal(err)
				}
				if c.end {
					nc.(interface{ CloseWrite() error }).CloseWrite()
				}
				nc.SetReadDeadline(time.Now().Add(time.Second))
				for {
					if _, err := wire.ReadFrame(nc, 1<<20, nil); isTimeout(err) {
						t.Fatal("the connection is open")
					} else if err != nil {
						break
					}
				}
				if !log.has(c.log) {
					t.Errorf("the log does not say why: %q", log.lines)
				}
				other.ok(wire.OpCreate, create("/fine", "", 0))
				synctest.Wait()
				if n := e.Connections(); n != 1 {
					t.Errorf("%d connections are open", n)
				}
			})
		})
	}
}

// A request with an unreadable body is answered with an error, as on the real
// server, and the log says why. The next request on the connection is served; a
// write has consumed a transaction number.
func TestBodiesThatCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		op    wire.Op
		body  raw
		log   string
		write bool
	}{
		"a create without a body":   {op: wire.OpCreate, log: "create: ", write: true},
		"a create with a huge path": {op: wire.OpCreate, body: raw{0x7f, 0xff, 0xff, 0xff}, log: "create: ", write: true},
		"a multi of something else": {op: wire.OpMulti, body: raw{0, 0, 0, 99, 0, 0, 0, 0, 0}, log: "op 99 inside a multi", write: true},
		"a sync without a path":     {op: wire.OpSync, log: "sync: "},
		"endless watches":           {op: wire.OpSetWatches, body: raw{0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0}, log: "vector of length"},
		"a watch of nothing":        {op: wire.OpAddWatch, log: "addWatch: "},
	} {
		for member, place := range []string{"at the leader", "at a follower"} {
			t.Run(name+" "+place, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					log := &recorder{}
					e := testutil.Start(t, testutil.InMemory(), testutil.WithMembers(3), testutil.WithLogger(log.printf))
					p := single(t, e, (e.Leader()+member)%3, 20*time.Second)
					p.ok(wire.OpCreate, create("/before", "", 0))
					p.send(wire.OpPing, nil)
					head, _, err := p.next()
					must(t, err)
					want := head.Zxid
					p.send(c.op, c.body)
					head, body, err := p.next()
					must(t, err)
					if head.Err != wire.MarshallingError || len(body) != 0 {
						t.Errorf("%v, with %d bytes", head.Err, len(body))
					}
					if c.write {
						want++
					}
					if head.Zxid != want {
						t.Errorf("answered with transaction %#x, not %#x", head.Zxid, want)
					}
					if !log.has(c.log) {
						t.Errorf("the log does not say why: %q", log.lines)
					}
					p.ok(wire.OpCreate, create("/fine", "", 0))
				})
			})
		}
	}
}

// FuzzServe sends arbitrary bytes, with or without a handshake before them, to
// an ensemble on which another client works.
func FuzzServe(f *testing.F) {
	f.Add(true, (&wire.RequestHeader{Xid: 1, Op: wire.OpMulti}).Append(nil))
	for _, op := range []wire.Op{
		1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 100, 101, 102, 103, 104, 105, 106, 107, -11,
	} {
		for _, body := range []wire.Appender{nil, create("/f", "data", 3), look("/f", true), version("/f", -1), multi(wire.MultiOp{Op: 1, Request: create("/f", "", 0)}), addWatch("/", wire.WatchPersistentRecursive)} {
			f.Add(true, wire.AppendFrame(nil, &wire.RequestHeader{Xid: 1, Op: op}, body))
		}
	}
	f.Add(false, wire.AppendFrame(nil, &wire.ConnectRequest{Timeout: -1, SessionID: 1}))
	f.Add(false, []byte("stat"))
	e, err := testutil.New(testutil.InMemory(), testutil.WithTick(50*time.Millisecond))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { e.Close() })
	f.Fuzz(func(t *testing.T, open bool, b []byte) {
		work := newPeer(t, "W", dialMember(t, e, 0), 10*time.Second, nil)
		if len(b) > 4 && rand.IntN(2) == 0 { // a valid length makes the bytes get further
			binary.BigEndian.PutUint32(b, uint32(len(b)-4))
		}
		nc := dialMember(t, e, 0)
		if open {
			attach(t, nc, &wire.ConnectRequest{Timeout: 1000, Password: make([]byte, 16)})
		}
		nc.Write(b)
		nc.Close()
		path := fmt.Sprintf("/work-%d", rand.Int64())
		work.ok(wire.OpCreate, create(path, "", 0))
		work.ok(wire.OpDelete, version(path, 0))
		work.ok(wire.OpCloseSession, nil)
	})
}

// Many random clients send random frames. The ensemble keeps serving, and
// leaves nothing behind when it is closed.
func TestRandomFrames(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	e := testutil.Start(t, testutil.WithMembers(3), testutil.WithLogger(func(string, ...any) {}), testutil.WithTick(100*time.Millisecond),
		testutil.WithSessionTimeouts(100*time.Millisecond, time.Minute)) // the other client sends nothing meanwhile
	other := newPeer(t, "P", dialMember(t, e, 0), time.Minute, &transcript{sessions: map[int64]string{}})
	var wg sync.WaitGroup
	for client := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r := rand.New(rand.NewPCG(seed, uint64(client)))
			for range 50 {
				nc, err := e.Dial("tcp", address(e, r.IntN(3)), patience)
				if err != nil {
					t.Error(err)
					return
				}
				b := wire.AppendFrame(nil, &wire.ConnectRequest{Timeout: 100, Password: make([]byte, 16)})
				for range r.IntN(20) {
					body := make([]byte, r.IntN(60))
					for i := range body {
						body[i] = byte(r.IntN(256)) * byte(r.IntN(2))
					}
					b = append(wire.AppendInt32(b, int32(8+len(body))), (&wire.RequestHeader{Xid: 1, Op: wire.Op(r.IntN(25) + r.IntN(2)*84)}).Append(nil)...)
					b = append(b, body...)
				}
				nc.Write(b[:len(b)-r.IntN(4)])
				if r.IntN(2) == 0 {
					nc.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
					wire.ReadFrame(nc, 1<<20, nil)
				}
				nc.Close()
			}
		}()
	}
	wg.Wait()
	other.ok(wire.OpCreate, create("/fine", "", 0))
}
