package main

import (
	"errors"
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// figures are what one peer has reached at one work.
type figures struct {
	rate         float64 // cycles a second
	server       float64 // microseconds of the servers' processors, a cycle
	transactions float64 // of the ensemble, a cycle
	median       float64 // cycle of the process with the longest one, in microseconds
	longest      float64 // cycle of a process, in milliseconds
	stretch      float64 // of it: how many medians of that process it took
	evenness     float64 // the fewest cycles of a process, for 100 of the most
}

// results are the figures of the peers. The first of them is ours.
type results struct {
	contest
	names   []string
	missing []string
	rounds  map[string][][]figures // by work; of each round, of each peer
}

func (r *results) add(w work, all []figures) {
	if r.rounds == nil {
		r.rounds = map[string][][]figures{}
	}
	r.rounds[w.name] = append(r.rounds[w.name], all)
}

// value returns the median of a figure over the rounds.
func (r *results) value(w work, peer int, figure func(figures) float64) float64 {
	var all []float64
	for _, round := range r.rounds[w.name] {
		all = append(all, figure(round[peer]))
	}
	return median(all)
}

func rate(f figures) float64 { return f.rate }

func middleCycle(f figures) float64 { return f.median }

// ratio returns our figure divided by the peer's: the median of the rounds'
// ratios.
func (r *results) ratio(w work, peer int, figure func(figures) float64) float64 {
	var all []float64
	for _, round := range r.rounds[w.name] {
		all = append(all, figure(round[0])/figure(round[peer]))
	}
	return median(all)
}

func median(all []float64) float64 {
	all = slices.Clone(all)
	slices.Sort(all)
	if n := len(all); n%2 == 0 {
		return (all[n/2-1] + all[n/2]) / 2
	}
	return all[len(all)/2]
}

// markdown returns a table of cycles a second, and of median cycles if they are
// of processes, each compared with ours; and with that a table for each other
// figure.
func (r *results) markdown(o *options) (short, all string) {
	var out strings.Builder
	fmt.Fprintf(&out, "%s; %d rounds of %v each; %s.\n\n", machine(), o.rounds, o.each, ensembleOf(r.members, o.sync))
	compared := func(what string, figure func(figures) float64) string {
		return r.grid(fmt.Sprintf("%s (of `%s` divided by this)", what, r.names[0]), func(w work, peer int) string {
			text := significant(r.value(w, peer, figure))
			if peer > 0 {
				text += fmt.Sprintf(" (%s)", significant(r.ratio(w, peer, figure)))
			}
			return text
		})
	}
	out.WriteString(compared(r.cycle+"s a second", rate))
	if r.works[0].processes > 0 {
		out.WriteString("\n" + compared("median "+r.cycle+", in microseconds", middleCycle))
	}
	short = out.String()
	for _, other := range []struct {
		what      string
		figure    func(figures) float64
		processes bool
	}{
		{"microseconds of the servers' processors, each " + r.cycle, func(f figures) float64 { return f.server }, false},
		{"transactions, each " + r.cycle, func(f figures) float64 { return f.transactions }, false},
		{"longest " + r.cycle + ", in milliseconds", func(f figures) float64 { return f.longest }, true},
		{"longest " + r.cycle + ", in medians of its process", func(f figures) float64 { return f.stretch }, true},
		{"fewest " + r.cycle + "s of a process, for 100 of the most", func(f figures) float64 { return f.evenness }, true},
	} {
		if !other.processes || r.works[0].processes > 0 {
			out.WriteString("\n" + r.grid(other.what, func(w work, peer int) string { return significant(r.value(w, peer, other.figure)) }))
		}
	}
	for _, m := range r.missing {
		missing := fmt.Sprintf("\nNot measured: %s.\n", m)
		short += missing
		out.WriteString(missing)
	}
	return short, out.String()
}

// grid returns a table with a row for each peer and a column for each work.
func (r *results) grid(what string, cell func(w work, peer int) string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "| %s |", what)
	for _, w := range r.works {
		fmt.Fprintf(&out, " %s |", w.name)
	}
	out.WriteString("\n|---|" + strings.Repeat("---:|", len(r.works)) + "\n")
	for i, name := range r.names {
		fmt.Fprintf(&out, "| %s |", name)
		for _, w := range r.works {
			fmt.Fprintf(&out, " %s |", cell(w, i))
		}
		out.WriteString("\n")
	}
	return out.String()
}

// ensembleOf describes an ensemble of ZooKeeper.
func ensembleOf(members int, sync bool) string {
	return fmt.Sprintf("ZooKeeper: %s, %s",
		map[bool]string{true: "one server", false: fmt.Sprintf("%d members on this machine", members)}[members == 1],
		map[bool]string{true: "waits for its disk, as by default", false: "does not wait for its disk"}[sync])
}

// significant rounds to three digits.
func significant(x float64) string {
	if math.IsNaN(x) {
		return "-"
	}
	if x == 0 || math.IsInf(x, 0) {
		return fmt.Sprint(x)
	}
	places := 2 - int(math.Floor(math.Log10(math.Abs(x))))
	shift := math.Pow10(places)
	return fmt.Sprintf("%.*f", max(places, 0), math.Round(x*shift)/shift)
}

// machine describes the machine.
func machine() string {
	name := "unknown processor"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				name = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%s, %s/%s, %d cores of %s, %s", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), name, time.Now().Format(time.DateOnly))
}

// plot draws the ratios as an SVG, on a logarithmic scale.
func (r *results) plot() string {
	const (
		label, width, row, top = 230, 520, 20, 40
		gap                    = 34 // above a work
	)
	var rows []int
	least, most := 1.0, 1.0
	for i := 1; i < len(r.names); i++ {
		rows = append(rows, i)
		for _, w := range r.works {
			least, most = min(least, r.ratio(w, i, rate)), max(most, r.ratio(w, i, rate))
		}
	}
	low, high := math.Floor(math.Log10(least)), math.Ceil(math.Log10(most))
	if low == high {
		high++
	}
	x := func(ratio float64) float64 { return label + width*(math.Log10(ratio)-low)/(high-low) }
	height := top + len(r.works)*(gap+row*len(rows)) + 30
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", label+width+80, height)
	fmt.Fprintf(&out, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	fmt.Fprintf(&out, `<text x="10" y="20" font-size="14">How many times as many cycles a second zkrecipes does</text>`+"\n")
	for decade := low; decade <= high; decade++ {
		at := x(math.Pow(10, decade))
		fmt.Fprintf(&out, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="%s"/>`+"\n", at, at, top, height-25,
			map[bool]string{true: "black", false: "#ddd"}[decade == 0])
		fmt.Fprintf(&out, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", at, height-8, significant(math.Pow(10, decade)))
	}
	y := top
	for _, w := range r.works {
		y += gap
		fmt.Fprintf(&out, `<text x="10" y="%d" font-weight="bold">%s</text>`+"\n", y-12, html.EscapeString(w.name))
		for _, i := range rows {
			ratio := r.ratio(w, i, rate)
			from, to := min(x(1), x(ratio)), max(x(1), x(ratio))
			fmt.Fprintf(&out, `<text x="%d" y="%d" text-anchor="end">%s</text>`, label-8, y+10, html.EscapeString(r.names[i]))
			fmt.Fprintf(&out, `<rect x="%.1f" y="%d" width="%.1f" height="12" fill="%s"/>`, from, y, to-from,
				map[bool]string{true: "#4a7", false: "#c65"}[ratio >= 1])
			fmt.Fprintf(&out, `<text x="%.1f" y="%d">%s</text>`+"\n", to+5, y+10, significant(ratio))
			y += row
		}
	}
	out.WriteString("</svg>\n")
	return out.String()
}

// page is the result of a part.
type page struct {
	tables []table
	plot   string
}

// table is the result of a part. If docs/performance.md has marks of its name,
// the page has it between them.
type table struct {
	name, text string
	short      string // what the page gets of it; empty: all
}

// put prints the tables, or writes them into the repository at dir: to
// bench/results, with the plot, and to the page.
func (p *page) put(dir string) error {
	for _, t := range p.tables {
		if dir == "" {
			fmt.Printf("## %s\n\n%s\n", t.name, t.text)
		} else if err := t.write(dir); err != nil {
			return err
		}
	}
	if p.plot == "" || dir == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(dir, "bench", "results", "peers.svg"), []byte(p.plot), 0o644)
}

func (t table) write(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "bench", "results", t.name+".txt"), []byte(t.text), 0o644); err != nil {
		return err
	}
	file := filepath.Join(dir, "docs", "performance.md")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if text, err = replace(text, t); errors.Is(err, errNoMarks) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, text, 0o644)
}

var errNoMarks = errors.New("no begin mark")

func replace(text []byte, t table) ([]byte, error) {
	begin, end := fmt.Sprintf("<!-- %s: begin -->\n", t.name), fmt.Sprintf("<!-- %s: end -->\n", t.name)
	before, rest, found := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found {
		return nil, fmt.Errorf("table %q: %w", t.name, errNoMarks)
	}
	if !closed {
		return nil, fmt.Errorf("no end mark for table %q", t.name)
	}
	shown := t.short
	if shown == "" {
		shown = t.text
	}
	return []byte(before + begin + "\n" + shown + "\n" + end + after), nil
}
