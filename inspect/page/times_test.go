package page

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/look"
)

// TestMostBars: a timeline of any load keeps 10,000 bars at most, and the
// latest.
func TestMostBars(t *testing.T) {
	times, now := newTimes(), time.Now()
	for i := range 4 {
		now = now.Add(time.Second)
		model := look.Model{Now: now}
		for j := range mostBars * 3 / 2 {
			path := fmt.Sprintf("/app/%d", j)
			model.Lines = append(model.Lines, inspect.Line{Path: path, Holders: []inspect.Contender{{Path: fmt.Sprintf("%s/%d", path, i)}}})
		}
		times.see(&model)
		size := 0
		for _, bars := range times.bars {
			size += len(bars)
		}
		if size > mostBars || size != times.size {
			t.Errorf("look %d: %d bars, counted as %d", i, size, times.size)
		}
	}
	if d := times.of("/app/0", now); d == nil || d.Latest[0].From.Before(now.Add(-2*time.Second)) {
		t.Errorf("the latest: %+v", d)
	}
}

// TestGaps: a gap is where nobody looked, and not where nobody held.
func TestGaps(t *testing.T) {
	for _, past := range []time.Duration{0, time.Second, 4900 * time.Millisecond} {
		testGaps(t, time.Unix(1_700_000_000, 0).Add(past))
	}
}

func testGaps(t *testing.T, began time.Time) {
	t.Helper()
	times := newTimes()
	free, held := inspect.Line{Path: "/app/x"}, inspect.Line{Path: "/app/x", Holders: []inspect.Contender{{Path: "/app/x/1"}}}
	seen := func(after time.Duration, l inspect.Line) {
		times.see(&look.Model{Now: began.Add(after), Lines: []inspect.Line{l}})
	}
	for after := time.Duration(0); after <= 3*time.Minute; after += aGap {
		seen(after, free)
	}
	seen(3*time.Minute+aGap, held)
	seen(5*time.Minute, held)
	d := times.of("/app/x", began)
	var got []span
	for _, g := range d.Gaps {
		got = append(got, span{g.From, g.To})
	}
	for _, one := range slices.Concat(d.Gaps, d.Bars) { // drawn where its times are, an open one to the end
		to := one.To
		if one.Open {
			to = d.To
		}
		scale := timeWidth / float64(window)
		if x, width := float64(one.From.Sub(d.From))*scale, float64(to.Sub(one.From))*scale; math.Abs(one.X-x) > 0.01 || math.Abs(one.Width-max(1, width)) > 0.01 {
			t.Errorf("%v: drawn from %.2f, %.2f wide, want %.2f and %.2f", one.span, one.X, one.Width, x, width)
		}
	}
	if len(d.Bars) != 2 { // nobody knows whether it was held in the gap
		t.Errorf("%d bars", len(d.Bars))
	}
	end := began.Add(5 * time.Minute).Truncate(5 * time.Second).Add(5 * time.Second)
	want := []span{{end.Add(-window), began}, {began.Add(3*time.Minute + aGap), began.Add(5 * time.Minute)}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// BenchmarkTimeline is a drawing of as many holders together as there may be.
func BenchmarkTimeline(b *testing.B) {
	times, now := newTimes(), time.Now()
	line := inspect.Line{Path: "/app/x"}
	for i := range mostBars {
		line.Holders = append(line.Holders, inspect.Contender{Path: fmt.Sprint("/app/x/", i)})
	}
	times.see(&look.Model{Now: now, Lines: []inspect.Line{line}})
	for b.Loop() {
		times.of("/app/x", now)
	}
}
