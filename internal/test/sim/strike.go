package sim

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Strike is a fault that happens at one moment of a run. It happens once, and
// not at all if the run has no such moment.
type Strike struct {
	What   What
	Client int           // whose connection, session, member, znode or caller it strikes
	Tenths int           // for how many tenths of the session timeout, of what lasts
	Steps  int           // for how many steps of others, of what delays; at most for a quarter of the timeout
	Code   testutil.Code // what the request is refused with
	Nth    int           // which operation of a multi is refused, counted from 1; 0: the whole
	At     Moment
}

// The faults that strike at a moment, beside some of those above.
const (
	DelayRequests What = "delay requests" // what the client sends arrives later
	DelayAnswers  What = "delay answers"
	RepeatConnect What = "repeat connect" // the request that opens a connection arrives twice
	Cancel        What = "cancel"         // what the client's callers do
	PauseProcess  What = "pause process"  // for so long that its session expires
	Jump          What = "jump"           // the clock of all clients jumps ahead
	RemoveZnode   What = "remove znode"   // of the client, in the line
	RemoveDir     What = "remove directory"
	DenyCreate    What = "deny create" // by the directory's ACL
	DenyRead      What = "deny read"
	DenyDelete    What = "deny delete"
	IsolateLeader What = "isolate leader"
	PauseLeader   What = "pause leader"
	OrphanRequest What = "orphan request" // it is executed when its connection is gone
)

// String returns the strike as ParseStrike reads it.
func (s Strike) String() string {
	text := fmt.Sprintf("%s; client %d", s.What, s.Client)
	for _, n := range []struct {
		name string
		n    int
	}{{"tenths", s.Tenths}, {"steps", s.Steps}, {"code", int(s.Code)}, {"operation", s.Nth}} {
		if n.n != 0 {
			text += fmt.Sprintf("; %s %d", n.name, n.n)
		}
	}
	return fmt.Sprintf("%s; at %v", text, s.At)
}

// ParseStrike reads what String returns.
func ParseStrike(text string) (s Strike, err error) {
	parts := strings.Split(text, "; ")
	s.What = What(parts[0])
	for _, part := range parts[1:] {
		name, value, _ := strings.Cut(part, " ")
		n, _ := strconv.Atoi(value) // what is no number is not printed again
		switch name {
		case "client":
			s.Client = n
		case "tenths":
			s.Tenths = n
		case "steps":
			s.Steps = n
		case "code":
			s.Code = testutil.Code(n)
		case "operation":
			s.Nth = n
		case "at":
			s.At, err = ParseMoment(value)
		}
	}
	if err != nil || s.String() != text {
		return Strike{}, fmt.Errorf("not a strike: %q: %w", text, err)
	}
	return s, nil
}

// message is what a tap has seen at a moment.
type message struct {
	frame []byte
	xid   int32
	again bool // it opens a connection of a session that exists already
	batch []string
}

// shot is what happens to one request of a client, in front of the member.
type shot struct {
	xid    int32
	action testutil.Action
}

// delay is a cut that ends after some steps of others.
type delay struct {
	client, left int
	heal         func()
}

// strikes is the state of the strikes of a run. The world's mutex guards it.
type strikes struct {
	over    bool // no more strikes
	lasting int  // strikes that have not ended
	left    []Strike
	hit     []Strike
	shots   map[int]shot
	orphans map[int]int32 // by client: the number of the request that its connection does not outlive
	delays  []*delay
	cuts    map[int]*[2]int // by client: how many cut requests, and answers
}

// happens records a moment, and does what strikes at it. It reports whether
// that has broken the client's connection.
func (w *world) happens(client int, point Point, op string, msg message) (broken bool) {
	w.mu.Lock()
	if !w.playing {
		w.mu.Unlock()
		return false
	}
	m := w.moments.next(client, point, op)
	w.moments.seen = append(w.moments.seen, Seen{Moment: m, At: time.Since(w.ledger.begin), Session: msg.again, Strikes: len(w.strikes.hit), Batch: msg.batch})
	now, after := w.dueLocked(m)
	w.stepLocked(client)
	yields := 0
	if w.vary != nil {
		yields = w.vary.IntN(1 << w.vary.IntN(6))
	}
	w.mu.Unlock()
	for range yields {
		runtime.Gosched()
	}
	for _, s := range now {
		broken = w.strike(s, msg) || broken
	}
	for _, s := range after { // time passes only when everybody waits
		time.AfterFunc(1, func() { w.strike(s, message{}) })
	}
	return broken
}

// dueLocked takes the strikes whose moment has come.
func (w *world) dueLocked(m Moment) (now, after []Strike) {
	if w.strikes.over {
		return nil, nil
	}
	later := m
	later.After = true
	var rest []Strike
	for _, s := range w.strikes.left {
		switch s.At {
		case m:
			now = append(now, s)
		case later:
			after = append(after, s)
		default:
			rest = append(rest, s)
		}
	}
	w.strikes.left = rest
	return now, after
}

// stepLocked counts a step for the delays of other clients.
func (w *world) stepLocked(client int) {
	for _, d := range w.strikes.delays {
		if d.client == client || d.left == 0 {
			continue
		}
		if d.left--; d.left == 0 {
			time.AfterFunc(1, d.heal)
		}
	}
}

// strike does what a strike says.
func (w *world) strike(s Strike, msg message) (broken bool) {
	heal, done := w.deed(s, msg)
	w.ledger.log("strike, done %v: %v", done, s)
	if !done {
		return false
	}
	w.mu.Lock()
	w.happened++
	w.strikes.hit = append(w.strikes.hit, s)
	w.strikes.lasting++
	w.mu.Unlock()
	if heal == nil {
		w.strikeEnds(s)
	} else {
		time.AfterFunc(w.plan.Timeout*time.Duration(s.Tenths)/10, func() {
			heal()
			w.strikeEnds(s)
		})
	}
	return s.What == Drop
}

// recovery is after how many session timeouts nothing may be late any longer.
// That is time for a session to expire, and for a removal that was refused to
// be tried again.
const recovery = 3

// strikeEnds lets the ledger judge what is late, some time after the last
// strike.
func (w *world) strikeEnds(s Strike) {
	w.ledger.log("over: %v", s)
	w.mu.Lock()
	w.strikes.lasting--
	last := len(w.strikes.left) == 0 && w.strikes.lasting == 0
	w.mu.Unlock()
	if last && !w.plan.instant() {
		w.ledger.settle(recovery * w.plan.Timeout)
	}
}

// runStrikes ends all strikes after a while, so that what follows may not be
// late, unless the run is over before.
func (w *world) runStrikes(over <-chan struct{}) {
	if w.plan.instant() && !w.plan.Scenario.quiet() { // nothing lasts, so nothing may be late
		w.ledger.settle(time.Second)
	}
	select {
	case <-over:
		return
	case <-time.After(10 * w.plan.Timeout):
	}
	w.mu.Lock()
	w.strikes.over = true
	w.mu.Unlock()
	w.heal()
	_, longest := w.plan.granted()
	w.ledger.settle(8*longest + 10*time.Second)
}

// instant reports whether no strike of a plan leaves anything behind that takes
// time.
func (p *Plan) instant() bool {
	return !slices.ContainsFunc(p.Strikes, func(s Strike) bool { return !s.instant() })
}

// instant reports whether a strike leaves nothing behind that takes time.
func (s Strike) instant() bool {
	switch s.What {
	case Refuse: // a removal that is refused is tried again after some seconds
		return s.At.Op != "delete"
	case Drop, Cancel, RemoveZnode, RemoveDir, RepeatConnect, DelayRequests, DelayAnswers:
		return true
	}
	return false
}

// struck reports whether anything has struck.
func (w *world) struck() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.strikes.hit) > 0
}

// allowed reports whether a call may fail with this error because of what has
// struck.
func (w *world) allowed(err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.strikes.hit {
		switch s.What {
		case Refuse:
			if refused(err, s.Code) {
				return true
			}
		case DenyCreate, DenyRead, DenyDelete:
			if errors.Is(err, zk.ErrNoAuth) {
				return true
			}
		}
	}
	return false
}

// refused reports whether err is what a caller is told when a server answers
// with this code.
func refused(err error, code testutil.Code) bool {
	switch code {
	case testutil.CodeConnectionLoss, testutil.CodeOperationTimeout, testutil.CodeThrottled, testutil.CodeSessionMoved:
		return false // the client tries again
	}
	known := map[testutil.Code]error{
		testutil.CodeNoNode: zk.ErrNoNode, testutil.CodeNoAuth: zk.ErrNoAuth, testutil.CodeBadVersion: zk.ErrBadVersion,
		testutil.CodeNodeExists: zk.ErrNodeExists, testutil.CodeNotEmpty: zk.ErrNotEmpty,
		testutil.CodeSessionExpired: framework.ErrSessionLost,
		testutil.CodeAuthFailed:     zk.ErrAuthFailed, -108: zk.ErrNoChildrenForEphemerals, -114: zk.ErrInvalidACL,
	}
	if e := known[code]; e != nil {
		return errors.Is(err, e)
	}
	return strings.Contains(err.Error(), fmt.Sprintf("(code %d)", code))
}
