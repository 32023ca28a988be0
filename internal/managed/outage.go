package managed

import (
	"time"

	"go.uber.org/zap"
)

// outage is a time in which the client is not Connected. It is logged after a
// session timeout, and from then on every outagePause. If the client was never
// connected the addresses may be wrong: then it is logged also when the first
// failure of a server is known, but not before firstFault. It is guarded by
// core.mu.
type outage struct {
	began   time.Time
	timeout time.Duration
	asks    bool        // whether a server has failed; until then nothing is logged
	next    *time.Timer // logs it
}

const (
	outagePause = time.Minute
	// firstFault leaves time for addresses that are refused and names that are
	// not known, and for servers that start together with the client.
	firstFault = time.Second
	// faultPause is small to a dial, which takes T/3 if the server is silent.
	faultPause = 250 * time.Millisecond
)

// beginOutageLocked begins an outage, unless one is under way.
func (c *core) beginOutageLocked(timeout time.Duration) {
	if c.outage != nil {
		return
	}
	o := &outage{began: time.Now(), timeout: timeout, asks: c.state == Connecting}
	first := timeout
	if o.asks {
		first = min(first, firstFault)
	}
	o.next = time.AfterFunc(first, func() { c.logOutage(o) })
	c.outage = o
}

func (c *core) endOutageLocked() {
	if c.outage != nil {
		c.outage.next.Stop()
		c.outage = nil
	}
}

func (c *core) logOutage(o *outage) {
	fault := c.servers.Fault()
	c.mu.Lock()
	lasted := time.Since(o.began)
	over := c.outage != o || c.isClosing()
	early := o.timeout - lasted // how much
	quiet := o.asks && fault == nil && early > 0
	if !quiet {
		o.asks = false
	}
	if !over {
		switch {
		case quiet:
			o.next.Reset(min(faultPause, early))
		case early > 0:
			o.next.Reset(early)
		default:
			o.next.Reset(outagePause)
		}
	}
	c.mu.Unlock()
	if !over && !quiet {
		c.cfg.Log.Warn("not connected", zap.Duration("for", lasted), zap.Error(fault))
	}
}
