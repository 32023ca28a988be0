package testutil

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// traffic counts what a member or one of its connections has received and sent.
type traffic struct {
	received, sent   int // packets, including four-letter words and events
	answers          int
	least, most, sum time.Duration // the latency of requests
}

func (t *traffic) add(took time.Duration) {
	if t.answers == 0 || took < t.least {
		t.least = took
	}
	t.most = max(t.most, took)
	t.sum += took
	t.answers++
}

// average returns the average latency in milliseconds.
func (t *traffic) average() float64 {
	return float64(t.sum.Microseconds()) / 1000 / float64(max(t.answers, 1))
}

// averageText returns the average as the server prints it, with one to four
// decimals.
func (t *traffic) averageText() string {
	s := strconv.FormatFloat(math.Round(t.average()*1e4)/1e4, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// lastAnswer describes the request that a connection has lastAnswer last.
type lastAnswer struct {
	op   wire.Op
	xid  int32 // of the last request that had its own number
	zxid int64
	at   time.Time
	took time.Duration
}

// answeredLocked records that a request is answered.
func (c *conn) answeredLocked(r *request) {
	if _, ok := operationWords[r.op]; !ok {
		return // the server answers it without counting it
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
