package proof

import (
	"fmt"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

func TestSilence(t *testing.T) {
	start := time.Now()
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	for name, tt := range map[string]struct {
		sent      []wire.Op // one each second
		answers   []int32
		receiving bool
		since     float64 // negative: not silent
		limit     time.Duration
	}{
		"nothing is under way":   {since: -1},
		"an answer, in part":     {receiving: true, since: 0.5, limit: 4 * time.Second},
		"a ping":                 {sent: []wire.Op{wire.OpPing}, since: 1, limit: 2 * time.Second},
		"a list":                 {sent: []wire.Op{wire.OpGetChildren2}, since: 1, limit: 4 * time.Second},
		"that comes":             {sent: []wire.Op{wire.OpPing}, receiving: true, since: 1, limit: 4 * time.Second},
		"a ping behind a list":   {sent: []wire.Op{wire.OpGetChildren2, wire.OpPing}, since: 1, limit: 4 * time.Second},
		"that was answered":      {sent: []wire.Op{wire.OpGetChildren2, wire.OpPing}, answers: []int32{0}, since: 10, limit: 2 * time.Second},
		"that was answered also": {sent: []wire.Op{wire.OpGetChildren2, wire.OpSync}, answers: []int32{0, 1}, since: -1},
		"a list is overtaken":    {sent: []wire.Op{wire.OpGetChildren2, wire.OpPing}, answers: []int32{1}, since: 1, limit: 2 * time.Second},
	} {
		p := sixSeconds(0)
		p.progress = progress{at: at(0.5), receiving: tt.receiving}
		for i, op := range tt.sent {
			p.send(int32(i), op, at(float64(i+1)))
		}
		for _, xid := range tt.answers {
			p.answer(xid, false, at(10))
		}
		since, limit, ok := p.silence()
		if got := fmt.Sprint(since.Equal(at(tt.since)), limit, ok); got != fmt.Sprint(tt.since >= 0, tt.limit, tt.since >= 0) {
			t.Errorf("%s: since %v for %v, %t", name, since.Sub(start), limit, ok)
		}
	}
}

// How long a connection may still be silent, and why so long.
func TestPatience(t *testing.T) {
	const ping, list = true, false
	now := time.Now()
	sent := func(prompt bool, age time.Duration) []sentRequest {
		return []sentRequest{{at: now.Add(-age), prompt: prompt}}
	}
	refused := func(age time.Duration) *Beat { return &Beat{sent: now.Add(-age), refused: true} }
	for name, tt := range map[string]struct {
		left     time.Duration
		held     bool
		trip     time.Duration
		pending  []sentRequest
		underWay []*Beat
		want     due
	}{
		"nothing is unanswered":    {5 * time.Second, true, 0, nil, nil, due{2 * time.Second, nothingUnanswered}},
		"a ping":                   {5 * time.Second, false, 0, sent(ping, 500*ms), nil, due{1500 * ms, becauseUnanswered}},
		"a ping, for T/3":          {5 * time.Second, false, 0, sent(ping, 2*time.Second), nil, due{0, becauseUnanswered}},
		"a ping, for less":         {5 * time.Second, false, 0, sent(ping, 2*time.Second-1), nil, due{1, becauseUnanswered}},
		"a list":                   {5 * time.Second, false, 0, sent(list, time.Second), nil, due{2 * time.Second, nothingUnanswered}},
		"a list, for longer":       {5 * time.Second, false, 0, sent(list, 3*time.Second), nil, due{time.Second, becauseUnanswered}},
		"held":                     {6 * time.Second, true, 0, sent(ping, 500*ms), nil, due{1500 * ms, becauseUnanswered}},
		"held, and in a hurry":     {2300 * ms, true, 0, sent(ping, 100*ms), nil, due{700 * ms, becauseHurry}},
		"not held, and no hurry":   {2300 * ms, false, 0, sent(ping, 100*ms), nil, due{1900 * ms, becauseUnanswered}},
		"too late":                 {1700 * ms, true, 0, sent(ping, 100*ms), nil, due{400 * ms, becauseLeast}},
		"too late, and slow":       {1700 * ms, true, 400 * ms, sent(ping, 100*ms), nil, due{700 * ms, becauseLeast}},
		"a list, in a hurry":       {3 * time.Second, true, 0, sent(list, 100*ms), nil, due{1900 * ms, becauseHurry}},
		"a refused heartbeat":      {5 * time.Second, false, 0, nil, []*Beat{refused(1500 * ms)}, due{500 * ms, becauseRefused}},
		"one that is not":          {5 * time.Second, false, 0, nil, []*Beat{{sent: now.Add(-1500 * ms)}}, due{2 * time.Second, nothingUnanswered}},
		"one behind one":           {5 * time.Second, false, 0, nil, []*Beat{{sent: now}, refused(1500 * ms)}, due{2 * time.Second, nothingUnanswered}},
		"both a ping and one":      {5 * time.Second, false, 0, sent(ping, time.Second), []*Beat{refused(1200 * ms)}, due{800 * ms, becauseRefused}},
		"a ping that is more late": {5 * time.Second, false, 0, sent(ping, 1400*ms), []*Beat{refused(1200 * ms)}, due{600 * ms, becauseUnanswered}},
	} {
		e := evidenceAt(now, tt.left, tt.trip)
		e.proof.pending, e.heartbeats.underWay = tt.pending, tt.underWay
		since, refused := e.heartbeats.refusedSince()
		if got := e.proof.patience(now, tt.left, tt.held, since, refused); got != tt.want {
			t.Errorf("%s: for %v, want %v", name, got, tt.want)
		}
		if rest, silent := e.Silence(now, tt.held); rest != tt.want.in || silent != (rest <= 0) {
			t.Errorf("%s: for %v, silent %t", name, rest, silent)
		}
	}
}
