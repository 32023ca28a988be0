package testutil_test

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// runner runs a program on one ensemble. All clients connect to its first
// member, or with spread to different members: then they sync before each step,
// and reconnect to another member than before. The results are the same.
type runner struct {
	t      *testing.T
	ens    testutil.Ensemble
	spread bool
	log    *transcript
	others []*peer // one at each of several members; they only read
	leader int     // the member that led at the start

	peers [peers]*peer
	seen  [peers]int64 // the last transaction that each client has seen
	at    [peers]int   // the member that each client was last connected to
	here  [peers]bool  // connected
	lives [peers]bool  // has a session
	count int
}

// run runs a program and returns what the clients have seen, one line each, in
// an order that is the same for all ensembles that behave the same.
func run(t *testing.T, ens testutil.Ensemble, p *program, spread bool) []string {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("-seed %d", p.seed)
		}
	}()
	r := &runner{t: t, ens: ens, spread: spread, log: &transcript{sessions: map[int64]string{0: "nobody"}}}
	for i := range peers {
		r.enter(i)
	}
	if ens.Members() > 1 {
		r.leader = ens.Leader()
		for i := range ens.Members() {
			r.others = append(r.others, r.open("L", i))
		}
	}
	r.peers[0].send(wire.OpCreate, create(p.root, "", 0))
	head, _, err := r.peers[0].next()
	if err != nil || head.Err != wire.OK {
		t.Fatalf("create %s: %v, %v", p.root, err, head.Err)
	}
	r.log.base = head.Zxid
	for i := range peers {
		r.seen[i] = head.Zxid
	}
	for _, s := range p.steps {
		r.step(s)
	}
	for i, lives := range r.lives {
		if lives && !r.here[i] {
			r.back(i)
		}
		if lives {
			r.leave(i)
		}
	}
	seen := r.log.lines
	for _, p := range r.others {
		p.do(wire.OpCloseSession, nil)
		p.nc.Close()
	}
	return seen
}

func (r *runner) step(s step) {
	switch s.kind {
	case ask:
		r.ask(s.peer, s.batch)
	case drop:
		r.flush()
		r.close(s.peer)
	case back:
		r.back(s.peer)
	case leave:
		r.leave(s.peer)
	case expire:
		r.flush()
		r.close(s.peer)
		r.lives[s.peer] = false
		if err := r.ens.ExpireSession(r.peers[s.peer].session); err != nil {
			r.t.Fatal(err)
		}
		r.endings(len(r.log.lines))
	case enter:
		r.enter(s.peer)
	}
}

func (r *runner) dial(member int) netConn {
	servers := strings.Split(r.ens.Servers(), ",")
	nc, err := r.ens.Dial("tcp", servers[member%len(servers)], 5*time.Second)
	if err != nil {
		r.t.Fatal(err)
	}
	return nc
}

func (r *runner) enter(i int) {
	r.count++
	if r.spread {
		r.at[i] = i
	}
	p := r.open(fmt.Sprintf("%c%d", 'A'+i, r.count), r.at[i])
	if r.ens.Members() > 1 {
		p.stalled = r.nudge
	}
	r.peers[i], r.here[i], r.lives[i] = p, true, true
}

// open opens a connection with a new session. If the answer does not come, the
// other clients ask for something, or, before there is one on each member,
// another session.
func (r *runner) open(name string, member int) *peer {
	p := &peer{t: r.t, name: name, nc: r.dial(member), log: r.log}
	switch {
	case r.ens.Members() == 1:
	case len(r.others) == r.ens.Members():
		p.stalled = r.nudge
	default:
		p.stalled = func() {
			r.t.Logf("%s has no session for a second: another one is asked for", name)
			other := newPeer(r.t, "another", r.dial(member), 40*time.Second, r.log)
			other.send(wire.OpCloseSession, nil)
			_, _ = other.receive()
			other.nc.Close()
		}
	}
	p.open(40 * time.Second)
	p.stalled = nil
	return p
}

func (r *runner) back(i int) {
	p := r.peers[i]
	if r.spread {
		r.at[i]++
	}
	var nc netConn
	var answer *wire.ConnectResponse
	for began := time.Now(); answer == nil; { // a member that is behind refuses a client that has seen more
		nc = r.dial(r.at[i])
		answer = attach(r.t, nc, &wire.ConnectRequest{
			Timeout: p.timeout, SessionID: p.session, Password: p.pass, LastZxidSeen: r.seen[i],
		})
		if answer == nil && (!r.spread || time.Since(began) > 10*time.Second) {
			r.t.Fatalf("%s comes back and is turned away", p.name)
		}
	}
	r.log.add("%s is back: same session %t, time-out %d", p.name, answer.SessionID == p.session, answer.Timeout)
	p.nc = nc
	r.here[i] = true
}

func (r *runner) close(i int) {
	r.peers[i].nc.Close()
	r.here[i] = false
}

func (r *runner) ask(i int, batch []request) {
	p := r.peers[i]
	r.catchUp(i)
	xids, words := make([]int32, len(batch)), make([]string, len(batch))
	for n, q := range batch {
		words[n] = p.words(q.op, q.body)
		var zxid *int64
		switch m := q.body.(type) {
		case *wire.SetWatchesRequest:
			zxid = &m.RelativeZxid
		case *wire.SetWatches2Request:
			zxid = &m.RelativeZxid
		}
		if zxid != nil {
			*zxid = map[since]int64{sinceStart: r.log.base, sinceLast: r.seen[i], sinceEver: 1 << 60}[q.since]
		}
		xids[n] = p.send(q.op, q.body)
		if zxid != nil {
			*zxid = 0 // it differs on the next ensemble
		}
	}
	for n, q := range batch {
		p.await(xids[n], q.op, words[n])
	}
	r.seen[i] = max(r.seen[i], p.last)
	if batch[len(batch)-1].op == wire.OpSetACL {
		r.settle(r.seen[i])
	}
}

// settle waits until the leader has applied a transaction. A real leader
// answers for its followers before that, checks writes by an old access control
// list, and lets its own clients read old data, even after a sync.
func (r *runner) settle(zxid int64) {
	if len(r.others) == 0 {
		return
	}
	for p := r.others[r.leader]; p.last < zxid; {
		r.ping(p)
	}
}

func (r *runner) ping(p *peer) {
	p.send(wire.OpPing, nil)
	if _, _, err := p.next(); err != nil {
		r.t.Fatal(err)
	}
}

// nudge makes members process what they have delayed.
func (r *runner) nudge() {
	r.t.Logf("no answer for a second: the other clients ask for something")
	for _, p := range r.others {
		r.ping(p)
	}
}

// catchUp makes a client's member receive the changes of others. The resulting
// events are written down as usual.
func (r *runner) catchUp(i int) {
	if r.spread {
		r.settle(slices.Max(r.seen[:])) // for the leader's own clients
		r.peers[i].do(wire.OpSync, &wire.PathRequest{Path: "/"})
		r.log.lines = r.log.lines[:len(r.log.lines)-1]
	}
}

// leave closes a session.
func (r *runner) leave(i int) {
	r.flush()
	from := len(r.log.lines)
	r.peers[i].do(wire.OpCloseSession, nil)
	r.settle(r.peers[i].last)
	r.close(i)
	r.lives[i] = false
	r.endings(from)
}

// flush makes every connected client read what has arrived.
func (r *runner) flush() {
	for i, here := range r.here {
		if here {
			r.ask(i, []request{{op: wire.OpPing}})
		}
	}
}

// endings makes every client read the events of a session's end. Its ephemerals
// are deleted in one transaction in no particular order, so the events of each
// client are sorted.
func (r *runner) endings(from int) {
	r.flush()
	lines := r.log.lines[from:]
	for len(lines) > 0 {
		n := 0
		for n < len(lines) && strings.Contains(lines[n], " event ") {
			n++
		}
		sort.Strings(lines[:n])
		lines = lines[min(n+1, len(lines)):]
	}
}
