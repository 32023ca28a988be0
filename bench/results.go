package main

import (
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

// results are the figures of the peers.
type results struct {
	names   []string
	missing []string
	rates   map[string][][]float64 // by work; of each round, of each peer
}

func (r *results) add(w work, rates []float64) {
	if r.rates == nil {
		r.rates = map[string][][]float64{}
	}
	r.rates[w.name] = append(r.rates[w.name], rates)
}

func (r *results) rate(w work, peer int) float64 {
	var all []float64
	for _, round := range r.rates[w.name] {
		all = append(all, round[peer])
	}
	return median(all)
}

// ratio returns how many times as many cycles ours does as the peer: the median
// of the rounds' ratios.
func (r *results) ratio(w work, peer int) float64 {
	var all []float64
	for _, round := range r.rates[w.name] {
		all = append(all, round[slices.Index(r.names, ours)]/round[peer])
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

// markdown returns a table of cycles a second, each with how many times as many
// ours does.
func (r *results) markdown(o *options) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s; %d rounds of %v each; ZooKeeper %s.\n\n", machine(), o.rounds, o.each,
		map[bool]string{true: "waits for its disk, as by default", false: "does not wait for its disk"}[o.sync])
	out.WriteString("| cycles a second (how many times as many `zkrecipes` does) |")
	for _, w := range works {
		fmt.Fprintf(&out, " %s |", w.name)
	}
	out.WriteString("\n|---|" + strings.Repeat("---:|", len(works)) + "\n")
	for i, name := range r.names {
		fmt.Fprintf(&out, "| %s |", name)
		for _, w := range works {
			fmt.Fprintf(&out, " %s", significant(r.rate(w, i)))
			if name != ours {
				fmt.Fprintf(&out, " (%s)", significant(r.ratio(w, i)))
			}
			out.WriteString(" |")
		}
		out.WriteString("\n")
	}
	for _, m := range r.missing {
		fmt.Fprintf(&out, "\nNot measured: %s.\n", m)
	}
	return out.String()
}

// significant rounds to three digits.
func significant(x float64) string {
	if x == 0 || math.IsInf(x, 0) || math.IsNaN(x) {
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
	for i, name := range r.names {
		if name == ours {
			continue
		}
		rows = append(rows, i)
		for _, w := range works {
			least, most = min(least, r.ratio(w, i)), max(most, r.ratio(w, i))
		}
	}
	low, high := math.Floor(math.Log10(least)), math.Ceil(math.Log10(most))
	if low == high {
		high++
	}
	x := func(ratio float64) float64 { return label + width*(math.Log10(ratio)-low)/(high-low) }
	height := top + len(works)*(gap+row*len(rows)) + 30
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
	for _, w := range works {
		y += gap
		fmt.Fprintf(&out, `<text x="10" y="%d" font-weight="bold">%s</text>`+"\n", y-12, html.EscapeString(w.name))
		for _, i := range rows {
			ratio := r.ratio(w, i)
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

// table is written between the marks of its name.
type table struct{ name, text string }

// put prints the tables, or writes them to performance.md in dir, with the plot
// beside it.
func (p *page) put(dir string) error {
	if dir == "" {
		for _, t := range p.tables {
			fmt.Printf("## %s\n\n%s\n", t.name, t.text)
		}
		return nil
	}
	file := filepath.Join(dir, "performance.md")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for _, t := range p.tables {
		if text, err = replace(text, t); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	if p.plot != "" {
		if err := os.WriteFile(filepath.Join(dir, "performance.svg"), []byte(p.plot), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(file, text, 0o644)
}

func replace(text []byte, t table) ([]byte, error) {
	begin, end := fmt.Sprintf("<!-- %s: begin -->\n", t.name), fmt.Sprintf("<!-- %s: end -->\n", t.name)
	before, rest, found := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return nil, fmt.Errorf("no begin and end marks for table %q", t.name)
	}
	return []byte(before + begin + "\n" + t.text + "\n" + end + after), nil
}
