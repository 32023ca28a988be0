package closing

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

const (
	// hedge is how long one member may take before the next one is also asked.
	hedge = 50 * time.Millisecond
	// longestStep bounds the time that a connect may take.
	longestStep = 2 * time.Second
	// Pauses between rounds in which no member could be used. A leader's
	// election takes some hundred milliseconds.
	shortestPause = 25 * time.Millisecond
	longestPause  = 250 * time.Millisecond
)

// target is a session that is to be closed. One goroutine at a time uses it.
type target struct {
	Session
	died  time.Time
	limit time.Duration // of each step
	done  chan struct{} // closed: nobody takes results any more

	conn   net.Conn       // attached; nil: not attached
	at     servers.Server // where it is attached
	over   bool           // the ensemble is known not to have it
	unsure bool           // another connect was sent, which may move it later
	least  time.Duration  // a server has granted that instead of less

	results chan result // of connects
	open    int         // connects whose results were not taken
	sent    int         // connects that were begun
}

// result is that of one connect.
type result struct {
	number int
	conn   net.Conn // nil with gone, or an error
	at     servers.Server
	gone   bool
	err    error
	unsent bool // the server was not reached
	least  time.Duration
}

func newTarget(s Session, died time.Time) *target {
	return &target{
		Session: s, died: died, limit: max(min(s.Timeout/3, longestStep), time.Millisecond),
		done: make(chan struct{}), results: make(chan result),
	}
}

// drop ends the use of a target. Connects that are under way end by themselves.
func (t *target) drop() {
	close(t.done)
	t.leave()
}

func (t *target) leave() {
	if t.conn != nil {
		_ = t.conn.Close()
		t.conn = nil
	}
}

func (t *target) isSecure() bool { return t.over || t.conn != nil && !t.unsure }

// secure attaches to the session, or once more at the same member if it is
// attached and may have moved since. It does one of these, because the second
// is of use only once all sessions are attached.
func (t *target) secure(ctx context.Context) error {
	if t.conn == nil && !t.over {
		return t.attach(ctx)
	}
	if t.isSecure() {
		return nil
	}
	t.leave() // the server would close it, and may allow no more
	t.takeLate()
	t.unsure = false
	if err := t.connect(ctx, t.at); err != nil {
		return err
	}
	for mine := t.sent; ; {
		r := <-t.results // a connect ends within its limit
		t.open--
		switch {
		case r.number != mine:
			t.onLate(r)
		case r.err == nil:
			t.use(r)
			return nil
		default: // the caller begins again, after a pause
			return t.fatal(r.err)
		}
	}
}

// takeLate takes the results that are there.
func (t *target) takeLate() {
	for {
		select {
		case r := <-t.results:
			t.open--
			t.onLate(r)
		default:
			return
		}
	}
}

// onLate takes the result of a connect that is not needed: if it was answered,
// the session has moved.
func (t *target) onLate(r result) {
	t.least = max(t.least, r.least)
	if r.conn != nil {
		_ = r.conn.Close()
	}
	t.unsure = t.unsure || !r.unsent && !r.gone
	t.over = t.over || r.gone
}

// use makes a result that of the session.
func (t *target) use(r result) {
	t.leave()
	t.conn, t.at, t.over, t.least = r.conn, r.at, t.over || r.gone, max(t.least, r.least)
}

// fatal returns an error that no other server would mend, otherwise nil.
func (t *target) fatal(err error) error {
	if errors.Is(err, errAnother) || errors.Is(err, errTooLate) {
		return err
	}
	return nil
}

// attach attaches to the session at the member that answers first, or finds
// that it is over. It asks the member that the session was connected to, and
// then the others, each when the one before has failed or takes long.
func (t *target) attach(ctx context.Context) error {
	pause := shortestPause
	var last error
	for {
		won, err := t.round(ctx)
		last = cmp.Or(err, last)
		if won {
			return nil
		}
		if fatal := t.fatal(err); fatal != nil {
			return fatal
		}
		select {
		case r := <-t.results:
			t.open--
			if r.err == nil { // late, but as good
				t.use(r)
				t.unsure = t.open > 0 || t.unsure
				return nil
			}
			t.unsure = t.unsure || !r.unsent
		case <-time.After(pause/2 + random.N(pause/2)):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), last)
		}
		pause = min(2*pause, longestPause)
	}
}

// round asks each member once.
func (t *target) round(ctx context.Context) (won bool, err error) {
	members := t.Ensemble.Find(ctx, t.limit)
	random.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	slices.SortStableFunc(members, func(a, b servers.Server) int { return t.rank(a) - t.rank(b) })
	err = errors.New("no address of a server is known")
	next, pending := time.After(0), 0
	for asked := 0; ; {
		if asked == len(members) {
			next = nil
			if pending == 0 {
				return false, err
			}
		}
		select {
		case <-next:
			if err := t.connect(ctx, members[asked]); err != nil {
				return false, err
			}
			asked, pending, next = asked+1, pending+1, time.After(hedge)
		case r := <-t.results:
			t.open--
			pending--
			if r.err == nil {
				t.use(r)
				t.unsure = t.unsure || t.open > 0
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
	isOld := at.Name == t.Server || at.Address == t.Server
	switch {
	case t.at == servers.Server{} && isOld, t.at == at:
		return 0
	case isOld:
		return 2
	}
	return 1
}

// connect begins to attach to the session at a member. It fails if that could
// extend the session.
func (t *target) connect(ctx context.Context, to servers.Server) error {
	left := time.Until(t.died.Add(t.Timeout)).Truncate(time.Millisecond)
	if left <= 0 || left < t.least {
		return errTooLate
	}
	t.open++
	t.sent++
	number := t.sent
	ask := &wire.ConnectRequest{Timeout: int32(left.Milliseconds()), SessionID: t.ID, Password: t.Password}
	go func() { // ends within the limit
		r := t.try(ctx, to, ask)
		r.number = number
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

// try attaches to the session at a member. A member answers the connect at
// once, but may have taken requests of the session before that it has not
// handed on yet. So try also awaits the answer to a ping, which comes behind
// them.
func (t *target) try(ctx context.Context, to servers.Server, ask *wire.ConnectRequest) result {
	conn, answer, err := t.Ensemble.Connect(context.WithoutCancel(ctx), to, t.limit, ask)
	var dial *net.OpError
	r := result{conn: conn, at: to, err: err, gone: err == nil && conn == nil, unsent: errors.As(err, &dial) && dial.Op == "dial"}
	if conn == nil {
		return r
	}
	if answer.SessionID != t.ID {
		_, _ = conn.Write(closeRequest) // of that one
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
