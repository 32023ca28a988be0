package line

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// What has its turn need not leave the line with the last one who works under it:
// it may be handed over at home, shared by a reader who comes later, or kept idle
// for a while, for the next. That is never a question of exclusion, since the znode
// stands; it is one of fairness to those behind it. So it depends on what is known
// of them, and what is not known is looked up.

// crowd is what a hold knows of those behind it, whom it keeps waiting.
type crowd struct {
	known  knowledge
	at     time.Time // clear: when the look began that found so; crowded: when that was found
	handed int       // crowded: grants since
	look   context.CancelFunc
	hurry  chan struct{} // a token: somebody waits for a look
}

type knowledge int

const (
	unknown knowledge = iota
	clear             // by a look that is still true: a watch has not fired since
	crowded           // for the rest of this hold's life
)

// idle is the state of a hold that has its turn and nobody to work under it; zero:
// somebody does, or it leaves.
type idle struct {
	cfg   *Config   // of the caller who left last; nil: not idle
	until time.Time // when it leaves, if nobody has come
}

// verdict says whether a hold may serve another caller.
type verdict int

const (
	no verdict = iota
	yes
	ask // not known: a look at the line decides
)

// keepLocked keeps h, which its last caller with the given configuration has just
// left, for the next one. It reports false if h has to leave the line.
func (g *gate) keepLocked(h *hold, cfg *Config) bool {
	linger := cfg.lingers()
	if linger > 0 && !h.mayLinger() {
		linger = 0 // it was created when nobody here wanted that
	}
	keep := linger > 0
	if g.waiters.Len() > 0 {
		keep = cfg.Handover > 0
	}
	switch {
	case g.seat != h || !keep:
		return false
	case h.turn == math.MaxUint32 || h.timed && !g.rule.alone():
		return false
	}
	if g.rule.alone() {
		h.turn++
	}
	taken := h.taken
	h.taken = false
	h.idle = idle{cfg: cfg, until: time.Now().Add(linger)}
	if !g.resumeLocked(h) {
		h.idle, h.taken = idle{}, taken
		return false
	}
	if h.limit != nil {
		h.limit.Stop() // it was the last caller's
	}
	return true
}

// resumeLocked gives an idle hold to those who wait, or lets it stay idle, until it
// is known whether it may, or for as long as it lingers. It reports false if h has
// to leave the line.
func (g *gate) resumeLocked(h *hold) bool {
	waiting := g.waiters.Len() > 0
	switch v := h.mayServeLocked(h.idle.cfg, waiting); {
	case v == no, !waiting && !time.Now().Before(h.idle.until):
		return false
	case v == ask:
		h.lookLocked()
	case waiting:
		if h.crowd.known == crowded {
			h.crowd.handed++
		}
		g.chooseAllLocked([]*hold{h})
		g.driveLocked() // for those who may not share it
		return true
	default:
		h.inviteLocked()
	}
	h.lingerLocked()
	return true
}

// mayServeLocked decides whether h may serve another caller at home, or wait for
// one.
func (h *hold) mayServeLocked(cfg *Config, waiting bool) verdict {
	switch {
	case h.err != nil, h.removal != nil, h.bound, h.guarding > 0, h.own.isRevoked():
		return no
	case !h.sess.Connected(), !h.sess.Proven():
		return no
	}
	timeout := h.sess.Timeout()
	switch c := &h.crowd; {
	case c.known == clear && time.Since(c.at) <= timeout/3:
		return yes
	case c.known == crowded && (!waiting || !h.gate.rule.alone() || c.handed >= cfg.Handover || time.Since(c.at) >= timeout):
		return no
	case c.known == crowded:
		return yes
	}
	return ask
}

// expectLocked: somebody waits for what is held alone. While it is held, this is
// when to learn whether it may be handed over.
func (g *gate) expectLocked() {
	switch h := g.seat; {
	case h == nil || h.removal != nil: // about to leave
	case h.idle.cfg != nil:
		h.resumeOrLeaveLocked()
	case g.firstLocked().line.cfg.Handover > 0 && !h.bound:
		h.lookLocked()
	}
}

// joinLocked gives who waits a share of what was given to others before, if nobody
// stands behind it whom that would keep waiting for longer. It reports false if
// any of them has to stand in line.
func (g *gate) joinLocked() bool {
	h, cfg := g.seat, &g.firstLocked().line.cfg
	if h == nil || !h.sharedLocked(cfg) {
		return false
	}
	switch h.mayServeLocked(cfg, true) {
	case yes:
		g.chooseAllLocked([]*hold{h})
		return g.waiters.Len() == 0 || g.joinLocked()
	case ask:
		h.lookLocked()
	default:
		return false
	}
	return true
}

// sharedLocked reports whether callers who come later may share h, by its kind and
// by how long they and it may be held.
func (h *hold) sharedLocked(cfg *Config) bool {
	return h.gate.rule.Mode == layout.Shared && !h.timed && cfg.MaxHold == 0
}

// walkIn gives a place at once, if nothing has to be waited for or looked up.
func (g *gate) walkIn(l *Line) *Place {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.seat
	switch {
	case h == nil, g.waiters.Len() > 0, h.crowd.known != clear:
	case g.rule.Mode == layout.Exclusive && h.idle.cfg == nil:
	case g.rule.Mode == layout.Shared && !h.sharedLocked(&l.cfg):
	case h.mayServeLocked(&l.cfg, true) != yes:
	default:
		return h.placeLocked(l)
	}
	return nil
}

// lingerLocked has an idle hold leave the line when nobody has come in time.
func (h *hold) lingerLocked() {
	wait := time.Until(h.idle.until)
	switch {
	case wait <= 0 || h.lingering: // the timer that runs will look again
	case h.linger == nil:
		h.lingering = true
		h.linger = time.AfterFunc(wait, h.lingered)
	default:
		h.lingering = true
		h.linger.Reset(wait)
	}
}

func (h *hold) lingered() {
	h.gate.mu.Lock()
	defer h.gate.mu.Unlock()
	h.lingering = false
	h.resumeOrLeaveLocked()
}

// resumeOrLeaveLocked is resumeLocked for a hold that has been idle, if it still is.
func (h *hold) resumeOrLeaveLocked() {
	if h.idle.cfg != nil && !h.gate.resumeLocked(h) {
		h.removeLocked()
	}
}

// lookLocked has a goroutine look at the line behind h, until somebody stands there
// or h leaves. One that rests looks at once.
func (h *hold) lookLocked() {
	switch {
	case h.crowd.known == crowded:
	case h.crowd.look == nil:
		ctx, stop := context.WithCancel(context.Background())
		h.crowd.look, h.crowd.hurry = stop, make(chan struct{}, 1)
		go h.watchCrowd(ctx)
	default:
		select {
		case h.crowd.hurry <- struct{}{}:
		default:
		}
	}
}

// EndLinger has what lingers in any line below dir leave it, and waits for that
// until ctx ends; it goes on then. What somebody waits for at home leaves when
// nobody does any more.
func EndLinger(ctx context.Context, c *framework.Client, dir string) error {
	var leaving []*removal
	for _, g := range gatesOf(c).below(c.Resolve(dir)) {
		g.mu.Lock()
		if h := g.seat; h != nil {
			if r := h.endLingerLocked(); r != nil {
				leaving = append(leaving, r)
			}
		}
		g.mu.Unlock()
	}
	for _, r := range leaving {
		if err := r.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// endLingerLocked has h leave if it is idle and nobody waits for it at home. It
// returns nil if h does not leave by that.
func (h *hold) endLingerLocked() *removal {
	if h.idle.cfg == nil {
		return nil
	}
	h.idle.until = time.Now()
	if h.gate.waiters.Len() > 0 {
		return nil
	}
	return h.removeLocked()
}

// await returns when the removal has ended, with nil if the znode is gone.
func (r *removal) await(ctx context.Context) error {
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctxerr.Of(ctx)
	}
}

// watchCrowd is not herded by those whom h keeps waiting: when the first of them
// comes it looks once more, and no longer watches. Others may come and go all the
// time, where they share, or are strangers to the line: from look to look it rests
// for longer then, unless somebody waits for the next.
func (h *hold) watchCrowd(ctx context.Context) {
	var rest time.Duration
	for {
		began := time.Now()
		names, changed, err := h.sess.WatchChildren(ctx, h.gate.dir)
		for quiet := true; quiet; {
			if !h.sawCrowd(ctx, began, names, err) {
				return
			}
			timer := time.NewTimer(h.sess.Timeout() / 4)
			select {
			case <-changed:
				h.forgetCrowd()
				h.rest(ctx, rest)
				rest = min(2*rest+time.Millisecond, h.sess.Timeout()/40)
				quiet = false
			case <-timer.C: // a watch can be lost
				rest = 0
				began = time.Now()
				names, _, err = h.sess.Children(ctx, h.gate.dir)
			case <-ctx.Done(): // with the session too
			}
			timer.Stop()
		}
	}
}

// forgetCrowd: the line has changed since it was looked at.
func (h *hold) forgetCrowd() {
	h.gate.mu.Lock()
	defer h.gate.mu.Unlock()
	h.crowd.known = unknown
}

// rest returns after d, or when somebody waits for a look.
func (h *hold) rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-h.crowd.hurry: // it is made with the look, and stays
	case <-ctx.Done():
	}
}

// sawCrowd takes the answer to a look at the line that began at the given time, and
// goes on with who waits for it. It reports whether to look again.
func (h *hold) sawCrowd(ctx context.Context, began time.Time, names []string, err error) (again bool) {
	g := h.gate
	tell := func() {}
	g.mu.Lock()
	defer func() {
		g.mu.Unlock()
		tell()
	}()
	switch {
	case ctx.Err() != nil:
		return false
	case errors.Is(err, zk.ErrNoNode), err == nil && !slices.Contains(names, h.name):
		tell = h.loseLocked(h.errDeleted())
		return false
	case err != nil, g.rule.crowded(h.name, names):
		h.crowd.known, h.crowd.at = crowded, began
		if err != nil {
			h.crowd.handed = math.MaxInt // nothing is known, so nothing is handed over
		}
		h.crowd.look()
	default:
		h.crowd.known, h.crowd.at = clear, began
		again = true
	}
	if h.idle.cfg != nil {
		h.resumeOrLeaveLocked()
	} else {
		g.driveLocked() // readers may wait for this
	}
	if !again && h.places > 0 && h.err == nil {
		h.declineLocked()
	}
	return again && ctx.Err() == nil
}
