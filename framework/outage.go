package framework

import (
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
)

// outage is a time in which the client is not Connected. It is logged after a
// session timeout, and from then on every outagePause. It is guarded by
// core.mu.
type outage struct {
	began time.Time
	next  *time.Timer // logs it
}

const outagePause = time.Minute

// beginOutageLocked begins an outage, unless one is under way.
func (c *core) beginOutageLocked(timeout time.Duration) {
	if c.outage != nil {
		return
	}
	o := &outage{began: time.Now()}
	o.next = time.AfterFunc(timeout, func() { c.logOutage(o) })
	c.outage = o
}

func (c *core) endOutageLocked() {
	if c.outage != nil {
		c.outage.next.Stop()
		c.outage = nil
	}
}

func (c *core) logOutage(o *outage) {
	c.mu.Lock()
	over := c.outage != o || c.isClosing()
	if !over {
		o.next.Reset(outagePause)
	}
	c.mu.Unlock()
	if !over {
		c.cfg.log.Warn("not connected", zap.Duration("for", time.Since(o.began)), zap.Error(c.fault()))
	}
}

// fault returns why there is no connection, for error texts: the last failure
// of each server since there was one. It is nil if nothing has failed.
func (c *core) fault() error {
	if err := oneline.Join(c.servers.faults()...); err != nil {
		return zkerr.Explanation(err)
	}
	return nil
}

// noteFault remembers why a server was not connected.
func (r *serverList) noteFault(s server, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.knownLocked(s.name)
	if n.faults == nil {
		n.faults = make(map[string]error)
	}
	n.faults[s.address] = err
}

// faults returns for each server why it was not connected last, and for a name
// without an address why it has none.
func (r *serverList) faults() (all []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(r.known)) {
		n := r.known[name]
		if len(n.addresses) == 0 && n.err != nil {
			all = append(all, n.err)
			continue
		}
		for _, address := range slices.Sorted(maps.Keys(n.faults)) {
			all = append(all, n.faults[address])
		}
	}
	return all
}

// forgetFaults forgets them all: there is a connection.
func (r *serverList) forgetFaults() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.known {
		n.faults = nil
	}
}
