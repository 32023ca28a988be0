package proof

import "time"

// Online measures the time of a session without its outages: times without a
// connection, from T/3 on. A connection that ends again and again is no outage.
// The zero Online has begun at the zero time: use NewOnline.
type Online struct {
	began, downSince time.Time
	outages          time.Duration // that are over
}

// NewOnline returns the time of a session that begins now.
func NewOnline(now time.Time) Online { return Online{began: now} }

// Up notes that there is a connection that can be used.
func (o *Online) Up(now time.Time, timeout time.Duration) {
	o.outages, o.downSince = o.outages+o.outage(now, timeout), time.Time{}
}

// Down notes that there is none.
func (o *Online) Down(now time.Time) {
	if o.downSince.IsZero() {
		o.downSince = now
	}
}

// For returns how long the session has been online.
func (o *Online) For(now time.Time, timeout time.Duration) time.Duration {
	return now.Sub(o.began) - o.outages - o.outage(now, timeout)
}

// outage returns how long the present outage has taken.
func (o *Online) outage(now time.Time, timeout time.Duration) time.Duration {
	if o.downSince.IsZero() {
		return 0
	}
	return max(0, now.Sub(o.downSince)-timeout/3)
}
