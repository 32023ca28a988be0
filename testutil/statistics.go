package testutil

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// traffic is what a member, or one of its connections, has taken and sent.
type traffic struct {
	received, sent   int // packets, four-letter words and events too
	answers          int
	least, most, sum time.Duration // how long requests took to be answered
}

func (t *traffic) add(took time.Duration) {
	if t.answers == 0 || took < t.least {
		t.least = took
	}
	t.most = max(t.most, took)
	t.sum += took
	t.answers++
}

// average is in milliseconds.
func (t *traffic) average() float64 {
	return float64(t.sum.Microseconds()) / 1000 / float64(max(t.answers, 1))
}

// averageText is the average as the server writes it: to four places, one at least.
func (t *traffic) averageText() string {
	s := strconv.FormatFloat(math.Round(t.average()*1e4)/1e4, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// answered is the request that a connection had answered last.
type answered struct {
	op   wire.Op
	xid  int32 // of the last one that has a number of its own
	zxid int64
	at   time.Time
	took time.Duration
}

// answeredLocked notes that a request is answered.
func (c *conn) answeredLocked(r *request) {
	if _, ok := operationWords[r.op]; !ok {
		return // the server answers it on the way
	}
	now := time.Now()
	took := now.Sub(r.arrived)
	c.traffic.add(took)
	c.m.traffic.add(took)
	c.last.op, c.last.zxid, c.last.at, c.last.took = r.op, c.m.tree.zxid, now, took
	if r.xid >= 0 {
		c.last.xid = r.xid
	}
}
