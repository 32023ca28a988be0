package proof

import (
	"testing"
	"time"
)

const ms = time.Millisecond

// sixSeconds returns a proof with T = 6s, hence F = 2s and a grain of 93.75ms,
// a margin of 600ms, and what the longest round trip took.
func sixSeconds(trip time.Duration) *proof {
	p := newProof(6*time.Second, 600*ms, 0, false)
	p.trips.present = trip
	return &p
}

// Where a known tick makes F short enough, the next heartbeat can report a
// contact, and there are four in T. With a large margin there must be more.
func TestIntervalWithAKnownTick(t *testing.T) {
	for _, tt := range []struct{ tick, margin, trip, want time.Duration }{
		{1200 * ms, 600 * ms, 0, 1500 * ms}, // F is 1350ms
		{1200 * ms, 600 * ms, 150 * ms, 1500 * ms},
		{1200 * ms, 600 * ms, 152 * ms, 1076 * ms}, // every second one, as with no tick
		{1350 * ms, 600 * ms, 0, 1500 * ms},
		{1351 * ms, 600 * ms, 0, time.Second},
		{1200 * ms, 1499 * ms, 0, 1500 * ms},
		{1200 * ms, 1500 * ms, 0, time.Second},
		{ms, 1499 * ms, ms, 1000500 * time.Microsecond},
	} {
		p := newProof(6*time.Second, tt.margin, tt.tick, false)
		p.trips.present = tt.trip
		if got := p.interval(); got != tt.want {
			t.Errorf("tick %v, margin %v, round trip %v: every %v, want %v", tt.tick, tt.margin, tt.trip, got, tt.want)
		}
	}
}

// The figures are those of the formulas at the head of cadence.go, at each
// round trip from which on n is another one.
func TestInterval(t *testing.T) {
	for _, tt := range []struct {
		margin time.Duration
		trip   time.Duration
		n      time.Duration
	}{
		{600 * ms, 0, 2},
		{600 * ms, 1, 2}, // rounded up
		{600 * ms, 349999999, 2},
		{600 * ms, 350000000, 4},
		{600 * ms, 506666666, 4},
		{600 * ms, 506666667, 5},
		{600 * ms, 611111111, 5},
		{600 * ms, 611111112, 6},
		{600 * ms, 685714285, 6},
		{600 * ms, 685714286, 7},
		{600 * ms, 800000000, 7},
		{600 * ms, 800000001, 6},
		{600 * ms, 1000000000, 6},
		{600 * ms, 1000000001, 5},
		{600 * ms, 1333333333, 5},
		{600 * ms, 1333333334, 4},
		{600 * ms, 2000000000, 4},
		{600 * ms, 2000000001, 3},
		{0, 499999999, 2},
		{0, 500000000, 4},
		{2 * time.Second, 0, 4}, // not 3: a heartbeat that is late would come too late
		{2 * time.Second, 133333334, 5},
		{2 * time.Second, 333333333, 7},
		{2 * time.Second, 333333334, 8},
		{2 * time.Second, 500000000, 8},
	} {
		want := (2*time.Second + tt.trip + tt.n - 1) / tt.n
		p := sixSeconds(tt.trip)
		p.margin = tt.margin
		if got := p.interval(); got != want {
			t.Errorf("margin %v, round trip %d: every %d, want %d", tt.margin, tt.trip, got, want)
		}
	}
}

func TestLongestTrip(t *testing.T) {
	for _, tt := range []struct{ tick, margin, want time.Duration }{
		{0, 0, 1125000000},
		{0, 600 * ms, 968421052},
		{0, 1500 * ms, 704545454},
		{0, 2 * time.Second, 560000000},
		{0, 3400 * ms, 112000000},
		{3 * time.Second, 0, 840000000},
		{3 * time.Second, 2 * time.Second, 200000000},
		{3 * time.Second, 3 * time.Second, 0}, // no lease can last
	} {
		p := newProof(6*time.Second, tt.margin, tt.tick, false)
		if got := p.longestTrip(); got != tt.want {
			t.Errorf("tick %v, margin %v: %d, want %d", tt.tick, tt.margin, got, tt.want)
		}
	}
}

// A lease that begins now lasts from so much left on, and not with a nanosecond
// less: then nothing is to spare where there is least.
func TestLasts(t *testing.T) {
	const never = time.Hour
	now := time.Now()
	at := func(d time.Duration) time.Time { return now.Add(d) }
	seen := func(sent, answered time.Duration, reported uint64) contact {
		return contact{sent: at(sent), answered: at(answered), reported: reported}
	}
	second := func(trip trip, answers uint64) []sentRequest {
		return []sentRequest{{at: at(-100 * ms), roundTrip: trip, certain: true, answers: answers}}
	}
	for name, tt := range map[string]struct {
		trip       time.Duration
		contacts   []contact
		pending    []sentRequest
		last, next time.Duration // last: 0 is none
		want       time.Duration
		answered   bool   // the first half of last
		because    reason // what has the least time to spare
	}{
		"only the next heartbeat":       {0, nil, nil, 0, time.Second, 3787500 * time.Microsecond, false, reportingBeat},
		"in a network that takes time":  {100 * ms, nil, nil, 0, time.Second, 3987500 * time.Microsecond, false, reportingBeat},
		"and more":                      {150 * ms, nil, nil, 0, time.Second, 4120312500, false, reportingBeat},
		"as much as may be":             {968421051, nil, nil, 0, 0, 600*ms + 3*968421051 + 2*time.Second + 70312500, false, reportingBeat},
		"too much":                      {968421052, nil, nil, 0, 0, never, false, becauseSlow},
		"a contact":                     {0, []contact{seen(-time.Second, -time.Second, 0)}, nil, 0, time.Second, 1787500 * time.Microsecond, false, reportingBeat},
		"a heartbeat just in time":      {0, []contact{seen(-time.Second, -time.Second, 0)}, nil, 0, 2212500 * time.Microsecond, 1787500 * time.Microsecond, false, reportingBeat},
		"and too late":                  {0, []contact{seen(-time.Second, -time.Second, 0)}, nil, 0, 2300 * ms, 5087500 * time.Microsecond, false, reportingBeat},
		"an old contact":                {150 * ms, []contact{seen(-2500*ms, -2400*ms, 0)}, nil, 0, 100 * ms, 970312500, false, reportingBeat},
		"with a heartbeat under way":    {150 * ms, []contact{seen(-2500*ms, -2400*ms, 0)}, nil, -50 * ms, 100 * ms, 920312500, false, secondOfCurrent},
		"that comes too early":          {150 * ms, []contact{seen(-2000*ms, -1900*ms, 0)}, nil, -40 * ms, 100 * ms, 1080312500, false, reportingBeat},
		"reported, and R1 is under way": {150 * ms, []contact{seen(-2*time.Second, -1900*ms, 3)}, second(anyTrip, 3), 0, time.Second, 720312500, false, secondUnderWay},
		"a caller's write is under way": {150 * ms, []contact{seen(-2*time.Second, -1900*ms, 3)}, []sentRequest{{at: at(-100 * ms), roundTrip: anyTrip, answers: 3}}, 0, time.Second, 820312500, false, secondAlone},
		"R1 was sent before":            {150 * ms, []contact{seen(-2*time.Second, -1900*ms, 3)}, second(anyTrip, 2), 0, time.Second, 820312500, false, secondAlone},
		"what is under way is no R1":    {150 * ms, []contact{seen(-2*time.Second, -1900*ms, 3)}, second(firstOnly, 3), 0, time.Second, 820312500, false, secondAlone},
		"reported, R1 comes":            {150 * ms, []contact{seen(-2*time.Second, -1900*ms, 3)}, nil, -50 * ms, 100 * ms, 920312500, false, secondOfCurrent},
		"reported, R1 is too early":     {150 * ms, []contact{seen(-2*time.Second, -1900*ms, 3)}, second(anyTrip, 2), -120 * ms, 100 * ms, 1070312500, true, secondOfNext},
		"R1 alone is under way":         {150 * ms, []contact{seen(-5500*ms, -5400*ms, 3), seen(-2500*ms, -2400*ms, 0)}, second(anyTrip, 3), 0, 100 * ms, 1020312500, false, reportingBeat},
		"R1 alone comes first":          {150 * ms, []contact{seen(-5500*ms, -5400*ms, 3), seen(-2500*ms, -2400*ms, 0)}, nil, 0, 100 * ms, 1120312500, false, reportingBeat},
		"after the shortest interval":   {300 * ms, []contact{seen(-5500*ms, -5400*ms, 3), seen(-2300*ms, -2200*ms, 0)}, nil, 0, 100 * ms, 1520312500, false, reportingBeat},
		"one that is due comes now":     {150 * ms, []contact{seen(-2*time.Second, -1900*ms, 3)}, second(anyTrip, 2), -time.Second, -500 * ms, 970312500, false, secondOfNext},
		"a contact is under way":        {150 * ms, nil, []sentRequest{{at: at(-2 * time.Second)}}, 0, 100 * ms, 1120312500, false, reportingBeat},
		"a whole one before":            {150 * ms, []contact{seen(-5500*ms, -5400*ms, 3), seen(-2500*ms, -2400*ms, 0)}, nil, -time.Second, 100 * ms, 1070312500, false, secondOfNext},
	} {
		p := sixSeconds(tt.trip)
		p.contacts, p.pending = tt.contacts, tt.pending
		var last time.Time
		if tt.last != 0 {
			last = at(tt.last)
		}
		spare := func(left time.Duration) due { return p.lasts(now, left, last, !tt.answered, at(tt.next)) }
		least := due{0, tt.because}
		if tt.because == becauseSlow {
			least.in = -1
		}
		if got := spare(tt.want); got != least {
			t.Errorf("%s: with %v left %v to spare, want %v", name, tt.want, got, least)
		}
		if got := spare(tt.want - 1).in; got != -1 {
			t.Errorf("%s: with less left %v to spare", name, got)
		}
		if len(p.contacts) != len(tt.contacts) {
			t.Errorf("%s: the question adds a contact", name)
		}
	}
}

func TestReportable(t *testing.T) {
	now := time.Now()
	at := func(s float64) time.Time { return now.Add(time.Duration(s * float64(time.Second))) }
	answered := func(s float64) contact { return contact{sent: at(s - 0.1), answered: at(s)} }
	first := contact{sent: at(-3), answered: at(-2.9), reported: 2}
	for name, tt := range map[string]struct {
		contacts []contact
		last     time.Time
		second   uint64 // how many answers had arrived before the R1 that is under way
		soon     time.Time
		after    time.Duration
		ok       bool
	}{
		"none":                          {},
		"R1 is missing":                 {[]contact{first}, time.Time{}, 0, time.Time{}, 0, true},
		"R1 is under way":               {[]contact{first}, time.Time{}, 2, at(-3), 0, false},
		"R1 began too early":            {[]contact{first}, time.Time{}, 1, time.Time{}, 0, true},
		"R1 will begin":                 {[]contact{first}, at(-0.1), 1, at(-3), 0, false},
		"too young":                     {[]contact{answered(-0.5)}, time.Time{}, 0, time.Time{}, 1500 * ms, true},
		"old enough":                    {[]contact{answered(-3)}, time.Time{}, 0, time.Time{}, 0, true},
		"old enough for what has begun": {[]contact{answered(-3)}, at(-1), 0, at(-3.1), 0, false},
		"too young for it":              {[]contact{answered(-3)}, at(-1).Add(-1), 0, time.Time{}, 0, true},
		"the next one":                  {[]contact{first, answered(-1.5)}, time.Time{}, 2, at(-3), 500 * ms, true},
	} {
		p := sixSeconds(0)
		p.contacts = tt.contacts
		if tt.second > 0 {
			p.pending = []sentRequest{{at: at(-0.1), answers: tt.second, roundTrip: anyTrip, certain: true}}
		}
		if soon, after, ok := p.reportable(now, tt.last); !soon.Equal(tt.soon) || after != tt.after || ok != tt.ok {
			t.Errorf("%s: %v, %v, %t", name, soon, after, ok)
		}
	}
}

// A heartbeat that is due waits a little for a contact that is newer by more
// than twice that.
func TestWorthwhile(t *testing.T) {
	const usual, most = 100 * ms, 50 * ms
	now := time.Now()
	// sent is a contact that can be reported so long from now.
	sent := func(ago, reportable time.Duration) contact {
		return contact{sent: now.Add(-ago), answered: now.Add(reportable - 2*time.Second)}
	}
	reported := contact{sent: now.Add(-3 * time.Second), answered: now.Add(-3 * time.Second), reported: 1}
	for name, tt := range map[string]struct {
		contacts []contact
		want     time.Duration
	}{
		"nothing":                     {nil, usual},
		"it is in time":               {[]contact{sent(time.Second, 99*ms)}, usual},
		"just in time":                {[]contact{sent(time.Second, usual)}, usual},
		"alone, a little late":        {[]contact{sent(time.Second, usual+10*ms)}, usual + 10*ms},
		"as late as may be":           {[]contact{sent(time.Second, usual+most)}, usual + most},
		"too late":                    {[]contact{sent(time.Second, usual+most+1)}, usual},
		"newer by enough":             {[]contact{sent(2*time.Second, 0), sent(2*time.Second-20*ms-1, usual+10*ms)}, usual + 10*ms},
		"not by enough":               {[]contact{sent(2*time.Second, 0), sent(2*time.Second-20*ms, usual+10*ms)}, usual},
		"newer than a reported one":   {[]contact{reported, sent(3*time.Second-20*ms-1, usual+10*ms)}, usual + 10*ms},
		"not newer by enough":         {[]contact{reported, sent(3*time.Second-20*ms, usual+10*ms)}, usual},
		"the last one":                {[]contact{reported, sent(2*time.Second, usual+10*ms), sent(time.Second, usual+30*ms)}, usual + 30*ms},
		"compared with what is due":   {[]contact{reported, sent(2*time.Second, usual), sent(2*time.Second-20*ms, usual+10*ms)}, usual},
		"the one before the latest":   {[]contact{reported, sent(2*time.Second, usual+10*ms), sent(time.Second, usual+most+1)}, usual + 10*ms},
		"a reported one says no more": {[]contact{reported}, usual},
	} {
		p := sixSeconds(0)
		p.contacts = tt.contacts
		want := due{tt.want, becauseReport}
		if tt.want == usual {
			want.because = regular
		}
		if got := p.worthwhile(now, due{usual, regular}, most); got != want {
			t.Errorf("%s: in %v, want %v", name, got, want)
		}
	}
}

// How far ahead the deadline usually is right before a heartbeat that moves it.
func TestUsuallyLeft(t *testing.T) {
	for _, tt := range []struct{ tick, interval, want time.Duration }{
		{0, 1050 * ms, 2850 * ms},           // the second heartbeat after a contact reports it
		{0, 700 * ms, 3200 * ms},            // the third one
		{time.Second, 1350 * ms, 3300 * ms}, // the next one, with F = 1150ms
	} {
		p := newProof(6*time.Second, 600*ms, tt.tick, false)
		p.trips.present = 100 * ms
		if got := p.usuallyLeft(tt.interval); got != tt.want {
			t.Errorf("a tick of %v, every %v: %v, want %v", tt.tick, tt.interval, got, tt.want)
		}
	}
}
