package closing

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

const (
	// hedge is how long one member may take before the next one is also asked.
	hedge = 50 * time.Millisecond
	// firstLimit bounds the time that the first connect to a member may take.
	// TLS and SASL on a busy machine, or over a long way, may need more. So the
	// next one has twice as long, up to a third of the session timeout: what the
	// process had.
	firstLimit = 2 * time.Second
	// Pauses between rounds in which no member could be used. A leader's
	// election takes some hundred milliseconds.
	shortestPause = 25 * time.Millisecond
	longestPause  = 250 * time.Millisecond
	// unknownLeast: a server that grants no shorter timeout than the session's
	// may extend a session by this part of its timeout. Later than that behind the
	// death it is asked first what it grants.
	unknownLeast = 20
)

// target is a session that is to be closed. One goroutine at a time uses it.
type target struct {
	Session
	died   time.Time
	limits map[servers.Server]time.Duration // of the next connect to each, apart from the first; by the zero Server: of lookups
	done   chan struct{}                    // closed: nobody takes results any more

	attached bool
	at       servers.Server // where it is, or was
	conn     net.Conn       // nil: it is not attached, or stays so without a connection
	over     bool           // the ensemble is known not to have it
	unsure   bool           // another connect was sent, which may move it later
	least    leasts

	results chan result                 // of connects
	open    map[servers.Server]*attempt // of each member, of which the result was not taken
	begun   int                         // attempts
}

var errOvertaken = errors.New("another connect was answered before")

// leasts are the shortest session timeouts that servers grant, as far as they
// are known.
type leasts map[servers.Server]time.Duration

// attempt is a connect to a member, with what goes before it.
type attempt struct {
	stop func() // ends a handshake, and lets no dial begin

	mu        sync.Mutex // guards what follows
	sent      bool       // a request, of which the answer is awaited
	overtaken bool       // another one was answered: nothing is sent any more
}

// send reports whether a request may be sent now.
func (a *attempt) send() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent = !a.overtaken
	return a.sent
}

// answered says that no answer is awaited any more.
func (a *attempt) answered() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sent = false; a.overtaken {
		a.stop()
	}
}

// overtake ends the attempt, unless an answer is awaited: that one says where
// the session is.
func (a *attempt) overtake() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.overtaken = true; !a.sent {
		a.stop()
	}
}

// result is that of one connect.
type result struct {
	number int
	conn   net.Conn // nil with gone, or an error
	at     servers.Server
	gone   bool
	err    error
	unsent bool          // the server was not asked for the session
	slow   bool          // its time was over
	least  time.Duration // the shortest session timeout that the server grants; 0: not known
}

func newTarget(s Session, died time.Time) *target {
	return &target{
		Session: s, died: died, limits: map[servers.Server]time.Duration{}, open: map[servers.Server]*attempt{},
		done: make(chan struct{}), results: make(chan result), least: leasts{},
	}
}

// longest returns the longest time that a connect may take.
func (t *target) longest() time.Duration { return max(t.Timeout/3, time.Millisecond) }

// limit returns how long the next connect to a member may take, or the next
// lookup.
func (t *target) limit(to servers.Server) time.Duration {
	return min(max(firstLimit, t.limits[to]), t.longest())
}

// grow gives the next one twice as long.
func (t *target) grow(to servers.Server) { t.limits[to] = 2 * t.limit(to) }

// drop ends the use of a target. Connects that were sent end by themselves.
func (t *target) drop() {
	t.overtake()
	close(t.done)
	t.leave()
}

// overtake ends the attempts that are open.
func (t *target) overtake() {
	for _, a := range t.open {
		a.overtake()
	}
}

// leave closes the connection. The session stays attached: the ensemble still
// has it at the member, and refuses what comes through another one.
func (t *target) leave() {
	if t.conn != nil {
		_ = t.conn.Close()
		t.conn = nil
	}
}

func (t *target) isSecure() bool { return t.over || t.attached && !t.unsure }

// secure attaches to the session, or once more at the same member if it is
// attached and may have moved since. It does one of these, because the second
// is of use only once all sessions are attached.
func (t *target) secure(ctx context.Context) error {
	switch {
	case t.isSecure():
		return nil
	case t.attached:
		return t.attachAgain(ctx)
	}
	return t.attach(ctx)
}

// attachAgain attaches once more at the same member. If the session is not
// attached then, and there is no error, another member may have it.
func (t *target) attachAgain(ctx context.Context) error {
	t.leave() // the server would close it, and may allow no more
	t.takeLate()
	t.attached, t.unsure = false, false
	if err := t.connect(ctx, t.at); err != nil {
		return err
	}
	for mine := t.begun; ; {
		var r result
		select {
		case r = <-t.results:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		t.took(r)
		switch {
		case r.number != mine:
			t.onLate(r)
		case r.err == nil:
			t.use(r)
			return nil
		default: // the caller begins again, after a pause
			t.unsure = t.unsure || !r.unsent
			return t.fatal(r.err)
		}
	}
}

// takeLate takes the results that are there.
func (t *target) takeLate() {
	for {
		select {
		case r := <-t.results:
			t.took(r)
			t.onLate(r)
		default:
			return
		}
	}
}

// took notes a result that was taken, and what it says of its server.
func (t *target) took(r result) {
	delete(t.open, r.at)
	if r.least > 0 {
		t.least[r.at] = r.least
	}
	if r.slow {
		t.grow(r.at)
	}
}

// onLate takes the result of a connect that is not needed: if it was answered,
// the session has moved.
func (t *target) onLate(r result) {
	if r.conn != nil {
		_ = r.conn.Close()
	}
	t.unsure = t.unsure || !r.unsent && !r.gone
	t.over = t.over || r.gone
}

// use makes a result that of the session.
func (t *target) use(r result) {
	t.leave()
	t.overtake()
	t.conn, t.at, t.attached, t.over = r.conn, r.at, !r.gone, t.over || r.gone
}

// fatal returns an error that nothing mends, otherwise nil. What is too late
// for one server may not be for another one, which was asked before.
func (t *target) fatal(err error) error {
	if errors.Is(err, errAnother) || errors.Is(err, errTooLate) && len(t.open) == 0 {
		return err
	}
	return nil
}

// attach attaches to the session at the member that answers first, or finds
// that it is over. It asks the member that the session was connected to, and
// then the others, each when the one before has failed or takes long.
func (t *target) attach(ctx context.Context) error {
	var last error
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		won, err := t.round(ctx, pause)
		last = cmp.Or(err, last)
		if won {
			return nil
		}
		if fatal := t.fatal(err); fatal != nil {
			return fatal
		}
		if ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), last)
		}
	}
}

// round asks each member once of which no answer is awaited, and pauses if one
// has failed. So one that is silent does not keep it from asking the others
// again. An answer that comes in the pause, or to an earlier round, is as good.
func (t *target) round(ctx context.Context, pause time.Duration) (won bool, err error) {
	var lookups servers.Server
	began := time.Now()
	members := t.Ensemble.Find(ctx, t.limit(lookups))
	if len(members) == 0 {
		err = errors.New("no address of a server is known")
		if time.Since(began) >= t.limit(lookups) {
			t.grow(lookups)
		}
	}
	once := map[servers.Server]bool{} // a list may name a member twice
	members = slices.DeleteFunc(members, func(m servers.Server) bool {
		skip := t.open[m] != nil || once[m]
		once[m] = true
		return skip
	})
	random.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	slices.SortStableFunc(members, func(a, b servers.Server) int { return t.rank(a) - t.rank(b) })
	next, pausing := time.After(0), false
	for asked := 0; ; {
		if asked == len(members) && !pausing {
			if next, pausing = nil, err != nil || len(t.open) == 0; pausing {
				next = time.After(pause/2 + random.N(pause/2))
			}
		}
		select {
		case <-next:
			if pausing {
				return false, err
			}
			next = time.After(hedge)
			if late := t.connect(ctx, members[asked]); late != nil {
				err, next = late, time.After(0)
			}
			asked++
		case r := <-t.results:
			t.took(r)
			if r.err == nil {
				t.use(r)
				t.unsure = t.unsure || len(t.open) > 0
				return true, nil
			}
			t.unsure = t.unsure || !r.unsent
			if err = r.err; t.fatal(err) != nil {
				return false, err
			}
			if asked < len(members) {
				next = time.After(0)
			}
		case <-ctx.Done():
			return false, err
		}
	}
}

// rank puts the member first that the session was connected to. Once the
// session was attached it puts that member last, and the one first where it was
// attached: another session may be closed by now, and its old writes must not
// be accepted again.
func (t *target) rank(at servers.Server) int {
	switch {
	case t.at == servers.Server{} && t.isOld(at), t.at == at:
		return 0
	case t.isOld(at):
		return 2
	}
	return 1
}

// isOld reports whether the process was connected to the session at a member.
// It has told an address where a name stands for several.
func (t *target) isOld(at servers.Server) bool { return at.Name == t.Server || at.Address == t.Server }

// left returns what is left of the session, and whether it may be asked for at
// a server that grants no less than least. A session that the process had given
// up is probably over, so it may in any case, for as little as possible.
func (t *target) left(least time.Duration) (left time.Duration, may bool) {
	left = t.until(t.died)
	if t.Left.IsZero() {
		return left, left >= max(least, time.Millisecond)
	}
	return max(t.until(t.Left), time.Millisecond), left >= time.Millisecond
}

// until returns how long it is until a session timeout has passed since then.
// While a machine is suspended only the wall clock goes on.
func (t *target) until(then time.Time) time.Duration {
	end := then.Add(t.Timeout)
	return min(time.Until(end), time.Until(end.Round(0))).Truncate(time.Millisecond)
}

// connect begins to attach to the session at a member. It fails if that is
// known to extend the session.
func (t *target) connect(ctx context.Context, to servers.Server) error {
	least := t.least[to]
	if _, may := t.left(least); !may {
		return errTooLate
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	a := &attempt{stop: stop}
	t.open[to] = a
	t.begun++
	number, limit := t.begun, t.limit(to)
	go func() { // ends within eight limits: up to four connects, each a dial and answers
		defer stop()
		r := t.try(ctx, a, to, limit, least)
		if r.at, r.number = to, number; r.err != nil && ctx.Err() != nil {
			r.err = errOvertaken
		}
		select {
		case t.results <- r:
		case <-t.done:
			if r.conn != nil {
				_ = r.conn.Close()
			}
		}
	}()
	return nil
}

// try attaches to the session at a member, unless that could extend it.
//
// A leader may have lost its quorum, and not have noticed, as one that was
// stopped for a while. It would answer, and nobody else would know of the
// attach; or it would say that the session is over, which the next leader has
// opened. So a member at which the process was not is believed only once it has
// opened a session: that takes a quorum.
func (t *target) try(ctx context.Context, a *attempt, to servers.Server, limit, least time.Duration) (r result) {
	opens := func() bool {
		began := time.Now()
		var err error
		if least, err = t.askLeast(ctx, a, to, limit); err != nil {
			r = result{err: err, slow: time.Since(began) >= limit, least: r.least}
		}
		return err == nil
	}
	if t.mustAskLeast(least) && !opens() {
		r.unsent = true
		return r
	}
	if r = t.ask(ctx, a, to, limit, least); r.err != nil || t.isOld(to) {
		return r
	}
	if r.conn != nil {
		_ = r.conn.Close() // the server may allow no more
	}
	if opens() { // not if the attempt was overtaken: the session may have moved back
		r = t.ask(ctx, a, to, limit, least)
		r.unsent = false // the first one was sent
	}
	return r
}

// ask sends one connect, and awaits the answer. A member answers it at once,
// but may have taken requests of the session before that it has not handed on
// yet. So ask also awaits the answer to a ping, which comes behind them.
func (t *target) ask(ctx context.Context, a *attempt, to servers.Server, limit, least time.Duration) (r result) {
	defer a.answered()
	var ask *wire.ConnectRequest // nil: nothing was sent
	began := time.Now()
	conn, answer, err := t.Ensemble.Connect(ctx, to, limit, func() (*wire.ConnectRequest, error) {
		left, may := t.left(least)
		switch {
		case !may:
			return nil, errTooLate
		case t.mustAskLeast(least): // the dial took long
			return nil, errors.New("the shortest session timeout that the server grants is not known")
		case !a.send(): // nor would Close attach behind it
			return nil, errOvertaken
		}
		ask = &wire.ConnectRequest{Timeout: int32(left.Milliseconds()), SessionID: t.ID, Password: t.Password}
		return ask, nil
	})
	r = result{conn: conn, err: err, gone: err == nil && conn == nil, unsent: ask == nil, least: least}
	defer func() { r.slow = r.err != nil && time.Since(began) >= limit }()
	if conn == nil {
		return r
	}
	if answer.SessionID != t.ID {
		_ = exchange(conn, closeRequest, closeXid) // of that one
		_ = conn.Close()
		r.conn, r.err = nil, errAnother
		return r
	}
	if answer.Timeout > ask.Timeout {
		r.least = time.Duration(answer.Timeout) * time.Millisecond
	}
	if r.err = exchange(conn, pingRequest, wire.XidPing); r.err != nil {
		_ = conn.Close()
		r.conn = nil
	}
	return r
}

// mustAskLeast reports whether a connect may extend the session by much at a
// server of which it is not known what it grants at least.
func (t *target) mustAskLeast(least time.Duration) bool {
	left, _ := t.left(0)
	return least == 0 && t.Left.IsZero() && left < t.Timeout-t.Timeout/unknownLeast
}

// askLeast asks a server for the shortest session timeout that it grants, by a
// session that it opens and closes.
func (t *target) askLeast(ctx context.Context, a *attempt, to servers.Server, limit time.Duration) (time.Duration, error) {
	defer a.answered()
	conn, answer, err := t.Ensemble.Connect(ctx, to, limit, func() (*wire.ConnectRequest, error) {
		if !a.send() {
			return nil, errOvertaken
		}
		return &wire.ConnectRequest{Timeout: 1, Password: make([]byte, wire.PasswordSize)}, nil
	})
	if err != nil {
		return 0, err
	}
	if conn == nil {
		return 0, errors.New("the server opens no session")
	}
	defer conn.Close()
	if err := exchange(conn, closeRequest, closeXid); err != nil {
		return 0, err
	}
	return time.Duration(answer.Timeout) * time.Millisecond, nil
}
