package cache

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// How much of each cache becomes due in a session timeout.
func TestShare(t *testing.T) {
	const (
		second = time.Second
		kb     = 1000
		all    = recheckBytes
	)
	for name, tt := range map[string]struct {
		timeout time.Duration
		sizes   []float64
		every   []time.Duration // 0: not set
		want    []float64
	}{
		"a small one":                 {10 * second, []float64{kb}, nil, []float64{kb}},
		"one that takes two timeouts": {10 * second, []float64{2 * all}, nil, []float64{all}},
		"a small and a large one":     {10 * second, []float64{100 * all, kb}, nil, []float64{all - kb, kb}},
		"two large ones":              {10 * second, []float64{100 * all, 50 * all}, nil, []float64{all / 2, all / 2}},
		"one that takes an hour":      {10 * second, []float64{1080 * all}, nil, []float64{3 * all}},
		"such a one, and a small one": {10 * second, []float64{1080 * all, kb}, nil, []float64{3 * all, kb}},
		"a session of ten minutes":    {600 * second, []float64{12 * all, kb}, nil, []float64{2 * all, kb}},
		"one of two hours":            {7200 * second, []float64{kb}, nil, []float64{2 * kb}},
		"one with an option":          {10 * second, []float64{60 * all, kb}, []time.Duration{60 * second, 0}, []float64{10 * all, kb}},
		"one that is seldom read":     {10 * second, []float64{36 * kb, 2 * all}, []time.Duration{time.Hour, 0}, []float64{kb / 10, all}},
	} {
		var parts []*part
		for i, size := range tt.sizes {
			opts := []Option{}
			if tt.every != nil && tt.every[i] > 0 {
				opts = append(opts, WithRecheck(tt.every[i]))
			}
			cfg, err := newConfig(opts)
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, &part{pass: &pass{c: &Cache{cfg: cfg}, size: size}})
		}
		share(parts, tt.timeout)
		for i, p := range parts {
			if math.Abs(p.share-tt.want[i]) > 1 {
				t.Errorf("%s: cache %d: %v bytes, want %v", name, i, p.share, tt.want[i])
			}
		}
	}
}

// A pass takes each path once, also what may not be read, in parts of half a
// request. The next one begins behind it.
func TestTake(t *testing.T) {
	for name, tt := range map[string]struct {
		znodes, hidden int
		due            float64 // in each step
		steps          []int   // how many paths each takes
	}{
		"nothing is there":       {0, 0, 100, []int{1, 1, 1}},
		"nothing, slowly":        {0, 0, 50, []int{0, 1, 0, 1}},
		"a small tree":           {5, 0, 500, []int{5, 5, 5}},
		"a small tree, slowly":   {5, 0, 250, []int{0, 5, 0, 5}},
		"a part of a large tree": {200, 0, 8200, []int{82, 82, 36, 128}},
		"what may not be read":   {5, 3, 800, []int{8, 8}},
		"only that":              {0, 3, 300, []int{3, 3}},
		"much of that":           {5, 1000, 9000, []int{94, 94, 94}},
	} {
		c := &Cache{root: "/", cfg: config{shares: true}}
		for i := range tt.znodes {
			c.view.tree = c.view.tree.put(newNode(fmt.Sprintf("/%03d", i), nil, Stat{DataLength: 100 - answerBytes}))
		}
		for i := range tt.hidden {
			c.view.hidden = c.view.hidden.put(newNode(fmt.Sprintf("/hidden-%03d", i), nil, Stat{}))
		}
		p := &pass{c: c, begun: true}
		var pass []string
		for i, want := range tt.steps {
			p.measure(answerBytes)
			p.due = min(p.due+tt.due, p.size)
			paths := p.take()
			if len(paths) != want {
				t.Errorf("%s: step %d takes %d paths, want %d", name, i, len(paths), want)
			}
			if pass = append(pass, paths...); p.cursor == "" && len(pass) > 0 {
				slices.Sort(pass)
				if n := len(slices.Compact(pass)); n != max(tt.znodes+tt.hidden, 1) {
					t.Errorf("%s: step %d ends a pass of %d: %s", name, i, n, strings.Join(pass, " "))
				}
				pass = nil
			}
		}
	}
}
