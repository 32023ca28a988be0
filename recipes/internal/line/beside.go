package line

import (
	"context"
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// Beside gives a place in l, a line over the same directory whose rule shares, on a
// znode of its own that has p's number and stands directly behind p's. It has its
// turn with p, and keeps it when p leaves: whoever is behind p is behind it too. It
// carries p's fencing token. The error is ErrNotHeld if p is not held until the
// znode stands.
func (p *Place) Beside(ctx context.Context, l *Line) (*Place, error) {
	if !p.Held() {
		return nil, p.notHeld()
	}
	g, err := l.gates.use(l)
	if err != nil {
		return nil, err
	}
	defer l.gates.unuse(g)
	if !p.bind() {
		return nil, p.notHeld()
	}
	q, err := p.beside(ctx, g, l)
	if errors.Is(err, framework.ErrSessionLost) {
		return nil, notHeld(err) // and p with it
	}
	return q, err
}

func (p *Place) beside(ctx context.Context, g *gate, l *Line) (*Place, error) {
	sess, err := p.in(g.client)
	if err != nil {
		return nil, err
	}
	defer sess.Keep()()
	own, _ := layout.Parse(p.h.name)
	created, err := sess.CreateProtected(ctx, g.dir, l.rule.Base+own.Digits, g.cfg.Data, zk.FlagEphemeral, g.cfg.ACL...)
	if errors.Is(err, zk.ErrNoNode) {
		p.Deleted() // with its directory
		return nil, p.notHeld()
	}
	if err != nil {
		return nil, err
	}
	c := newContender(g, sess, created)
	h, err := p.claimBeside(ctx, c)
	if err != nil {
		c.withdraw()
		return nil, err
	}
	g.mu.Lock()
	g.seatLocked(h)
	h.turn, h.bound = p.turn, true
	q := h.placeLocked(l)
	if h.err != nil { // lost since
		g.vacateLocked(h)
	}
	g.mu.Unlock()
	if !q.begin() {
		q.quit()
		return nil, q.notHeld()
	}
	return q, nil
}

// claimBeside makes a hold of c if p's znode stood when c's was there already: then
// nobody who is behind p was let in before.
func (p *Place) claimBeside(ctx context.Context, c *contender) (*hold, error) {
	if c.children == nil {
		if err := c.list(ctx); err != nil && !errors.Is(err, errOut) {
			return nil, err
		}
	}
	if _, err := c.gate.rule.line(c.children); err != nil {
		return nil, err
	}
	if !slices.Contains(c.children, p.h.name) {
		if p.Held() { // not removed by us
			p.Deleted()
		}
		return nil, p.notHeld()
	}
	c.dir = p.h.rank.Dir // and the number is p's: the same rank
	return c.claim(ctx)
}

// notHeld is ErrNotHeld, and why p is not.
func (p *Place) notHeld() error { return notHeld(p.Err()) }
