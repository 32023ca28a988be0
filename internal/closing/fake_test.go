package closing

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// fake is an ensemble as far as sessions move between its members.
type fake struct {
	members int
	least   time.Duration // that it grants
	alone   int           // the only member that grants no less; 0: all do so
	most    int           // connections of a member; 0: any number
	// answer says how long a member takes for the nth connect of a session, and
	// whether it then answers. Without an answer the connect is executed all the
	// same, if executed says so.
	answer func(member int, session int64, nth int) (after time.Duration, err error)
	back   func(member int) time.Duration // how long its answers take
	dial   func(member int) time.Duration // how long it takes, TLS included
	stale  int                            // a member that leads, and has no quorum; 0: none
	named  bool                           // one name stands for all members
	twice  bool                           // the list names the first one twice
	close  func(session int64, nth int) (executed bool, err error)
	other  bool                                          // it opens another session
	queue  func(member int, session int64) time.Duration // how long requests wait there that it has taken before

	mu     sync.Mutex
	at     map[int64]int // the member of each session
	nth    map[int64]int // connects
	closes map[int64]int
	gone   map[int64]bool
	asked  map[int64][]time.Duration // timeouts
	moved  map[int64]time.Time       // when
	open   map[int]int               // connections of each member
	until  map[int64]time.Time       // when it ends, by the last connect
	by     map[int64]int             // the member of the first close
	queued map[int64]time.Time       // until when writes may be executed at the member where it is
	first  func()                    // before the first close
	began  time.Time
}

func newFake(members int) *fake {
	return &fake{
		members: members, began: time.Now(),
		at: map[int64]int{}, nth: map[int64]int{}, closes: map[int64]int{}, gone: map[int64]bool{}, asked: map[int64][]time.Duration{},
		moved: map[int64]time.Time{}, open: map[int]int{}, until: map[int64]time.Time{}, by: map[int64]int{}, queued: map[int64]time.Time{},
		answer: func(int, int64, int) (time.Duration, error) { return time.Millisecond, nil },
		close:  func(int64, int) (bool, error) { return true, nil },
	}
}

func name(member int) string { return fmt.Sprintf("m%d:2181", member) }

func (f *fake) Find(context.Context, time.Duration) (all []servers.Server) {
	for m := range f.members {
		all = append(all, servers.Server{Name: name(m), Address: name(m)})
		if f.named {
			all[m].Name = "zk:2181"
		}
	}
	if f.twice {
		all = append(all, all[0])
	}
	return all
}

func (f *fake) Connect(ctx context.Context, to servers.Server, limit time.Duration, request func() (*wire.ConnectRequest, error)) (net.Conn, wire.ConnectResponse, error) {
	var member int
	_, _ = fmt.Sscanf(to.Address, "m%d", &member)
	if err := ctx.Err(); err != nil {
		return nil, wire.ConnectResponse{}, err
	}
	if f.dial != nil {
		dial := f.dial(member)
		if !sleep(ctx, min(dial, limit)) || dial >= limit {
			return nil, wire.ConnectResponse{}, context.DeadlineExceeded
		}
		limit -= dial
	}
	ask, err := request()
	if err != nil {
		return nil, wire.ConnectResponse{}, err
	}
	id := ask.SessionID
	f.mu.Lock()
	f.nth[id]++
	nth := f.nth[id]
	f.asked[id] = append(f.asked[id], time.Duration(ask.Timeout)*time.Millisecond)
	f.mu.Unlock()
	after, err := f.answer(member, id, nth)
	reads := time.Now().Add(after)
	if !sleep(ctx, min(after, limit)) || after > limit {
		go func() { // it reads the connect later
			time.Sleep(time.Until(reads))
			f.mu.Lock()
			f.at[id] = member
			f.mu.Unlock()
		}()
		return nil, wire.ConnectResponse{}, context.DeadlineExceeded
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil || f.gone[id] {
		return nil, wire.ConnectResponse{}, err
	}
	if member == f.stale && member > 0 {
		if id == 20 { // which the next leader has opened
			return nil, wire.ConnectResponse{}, nil
		}
		ours, theirs := net.Pipe()
		f.open[member]++
		go f.serve(theirs, member, id, time.Time{})
		return ours, wire.ConnectResponse{SessionID: id, Timeout: ask.Timeout}, nil
	}
	granted := ask.Timeout
	if f.alone == 0 || f.alone == member {
		granted = max(granted, int32(f.least.Milliseconds()))
	}
	if id == 0 { // a session that is opened
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			if _, err := wire.ReadFrame(theirs, 100, nil); err == nil {
				_, _ = theirs.Write(wire.AppendFrame(nil, &wire.ReplyHeader{Xid: closeXid, Zxid: 1}))
				f.mu.Lock()
				f.closes[0]++
				f.mu.Unlock()
			}
		}()
		return ours, wire.ConnectResponse{SessionID: 1000 + int64(nth), Timeout: granted}, nil
	}
	if f.most > 0 && f.open[member] >= f.most {
		return nil, wire.ConnectResponse{}, io.EOF
	}
	f.open[member]++
	f.until[id] = time.Now().Add(time.Duration(granted) * time.Millisecond)
	f.at[id], f.moved[id] = member, time.Now()
	if f.queue != nil {
		f.queued[id] = time.Now().Add(f.queue(member, id))
	}
	queued := f.queued[id]
	if f.back != nil {
		f.mu.Unlock()
		came := sleep(ctx, f.back(member))
		if f.mu.Lock(); !came {
			f.open[member]--
			return nil, wire.ConnectResponse{}, ctx.Err()
		}
	}
	ours, theirs := net.Pipe()
	go f.serve(theirs, member, id, queued)
	if f.other {
		id++
	}
	return ours, wire.ConnectResponse{SessionID: id, Timeout: granted}, nil
}

// sleep reports whether ctx has not ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// serve answers a ping behind what was queued, and a close.
func (f *fake) serve(conn net.Conn, member int, id int64, queued time.Time) {
	defer func() {
		_ = conn.Close()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.open[member]--
	}()
	for {
		frame, err := wire.ReadFrame(conn, 100, nil)
		var ask wire.RequestHeader
		if err != nil || wire.Unmarshal(frame, &ask) != nil {
			return
		}
		if ask.Op != wire.OpPing {
			break
		}
		time.Sleep(time.Until(queued))
		if _, err := conn.Write(wire.AppendFrame(nil, &wire.ReplyHeader{Xid: wire.XidPing, Zxid: 1})); err != nil {
			return
		}
	}
	f.mu.Lock()
	if f.first != nil {
		f.first()
		f.first = nil
	}
	if f.closes[id]++; f.closes[id] == 1 {
		f.by[id] = member
	}
	executed, err := f.close(id, f.closes[id])
	f.gone[id] = f.gone[id] || executed
	f.mu.Unlock()
	if err == nil {
		_, _ = conn.Write(wire.AppendFrame(nil, &wire.ReplyHeader{Xid: closeXid, Zxid: 1}))
	}
}

// sessions returns n sessions that were at member 0.
func (f *fake) sessions(n int, timeout time.Duration) (all []Session) {
	for i := range n {
		id := int64(i+1) * 10
		f.at[id] = 0
		all = append(all, Session{DeadSession: framework.DeadSession{ID: id, Timeout: timeout, Server: name(0)}, Ensemble: f})
	}
	return all
}

// silentMember and lateMember answer for a member of which one does not, or
// member 0 does so late.
func silentMember(silent int) func(member int, session int64, nth int) (time.Duration, error) {
	return func(member int, _ int64, _ int) (time.Duration, error) {
		if member == silent {
			return 20 * time.Second, nil
		}
		return time.Millisecond, nil
	}
}

func lateMember(after time.Duration) func(member int, session int64, nth int) (time.Duration, error) {
	return func(member int, _ int64, nth int) (time.Duration, error) {
		if member == 0 && nth == 1 {
			return after, nil
		}
		return time.Millisecond, nil
	}
}
