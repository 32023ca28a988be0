package zkprom_test

import (
	"fmt"
	"html"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// drawDashboard draws the first rows of the dashboard since a time, from what
// its queries return, as Grafana lays them out. It needs no Grafana, which
// cannot be installed everywhere, and shows the same values.
func drawDashboard(t *testing.T, s *server, since time.Time, file string) {
	t.Helper()
	const (
		unitX, unitY = 40, 15 // pixels of Grafana's grid
		rows         = 48     // of the grid: up to the elections
	)
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n", 24*unitX, rows*unitY)
	fmt.Fprintf(&out, `<rect width="100%%" height="100%%" fill="#f4f5f5"/>`+"\n")
	for _, panel := range readDashboard(t).Panels {
		at := panel.GridPos
		x, y, w, h := at.X*unitX, at.Y*unitY, at.W*unitX, at.H*unitY
		if at.Y >= rows {
			continue
		}
		title := html.EscapeString(panel.Title)
		if panel.Type == "row" {
			fmt.Fprintf(&out, `<text x="%d" y="%d" font-weight="bold">%s</text>`+"\n", x+6, y+h-3, title)
			continue
		}
		fmt.Fprintf(&out, `<svg x="%d" y="%d" width="%d" height="%d"><rect width="100%%" height="100%%" fill="white" stroke="#d8d9da"/><text x="6" y="14">%s</text>`+"\n",
			x+2, y+2, w-4, h-4, title)
		var series []curve
		for _, target := range panel.Targets {
			series = append(series, s.curves(t, target.Expr, since)...)
		}
		if panel.Type == "stat" {
			drawValue(&out, series, w, h)
		} else {
			drawCurves(&out, series, w-4, h-4)
		}
		out.WriteString("</svg>\n")
	}
	out.WriteString("</svg>\n")
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// curve is the values of a series, NaN where there are none.
type curve []float64

const steps = 80 // of a curve

// curves runs a query of the dashboard over the time since then.
func (s *server) curves(t *testing.T, expr string, since time.Time) (all []curve) {
	t.Helper()
	step := time.Since(since).Seconds() / (steps - 1)
	set := strings.NewReplacer("$job", ".*", "$instance", ".*", "$__rate_interval", "5s", "$__range", "10m")
	ask := url.Values{
		"query": {set.Replace(expr)}, "step": {fmt.Sprint(step)},
		"start": {fmt.Sprintf("%.3f", float64(since.UnixMilli())/1000)}, "end": {fmt.Sprintf("%.3f", float64(time.Now().UnixMilli())/1000)},
	}
	var data struct {
		Result []struct{ Values [][2]any }
	}
	s.get(t, "query_range?"+ask.Encode(), &data)
	for _, r := range data.Result {
		one := make(curve, steps)
		for i := range one {
			one[i] = math.NaN()
		}
		for _, v := range r.Values {
			at, _ := v[0].(float64)
			if i := int(math.Round((at - float64(since.UnixMilli())/1000) / step)); i >= 0 && i < steps {
				one[i], _ = strconv.ParseFloat(fmt.Sprint(v[1]), 64)
			}
		}
		all = append(all, one)
	}
	return all
}

func drawValue(out *strings.Builder, series []curve, w, h int) {
	text := "no data"
	for _, one := range series {
		for _, v := range one {
			if !math.IsNaN(v) {
				text = short(v)
			}
		}
	}
	fmt.Fprintf(out, `<text x="%d" y="%d" text-anchor="middle" font-size="22">%s</text>`+"\n", w/2, h-14, text)
}

var colors = []string{"#3274d9", "#56a64b", "#e02f44", "#ff780a", "#8f3bb8", "#3a9a9a", "#b07d00"}

func drawCurves(out *strings.Builder, series []curve, w, h int) {
	const left, top, bottom = 34, 24, 10
	most := 0.0
	for _, one := range series {
		for _, v := range one {
			if v > most && !math.IsInf(v, 0) {
				most = v
			}
		}
	}
	if most == 0 {
		most = 1
	}
	for _, part := range []float64{0, 0.5, 1} {
		y := float64(h-bottom) - part*float64(h-top-bottom)
		fmt.Fprintf(out, `<path d="M%d %.1fH%d" stroke="#e4e5e6"/><text x="%d" y="%.1f" text-anchor="end" font-size="8" fill="#666">%s</text>`+"\n", left, y, w-6, left-3, y+3, short(part*most))
	}
	for i, one := range series {
		var path strings.Builder
		pen := "M"
		for k, v := range one {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				pen = "M"
				continue
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", pen, left+float64(k)*float64(w-6-left)/(steps-1), float64(h-bottom)-v/most*float64(h-top-bottom))
			pen = "L"
		}
		fmt.Fprintf(out, `<path d="%s" fill="none" stroke="%s" stroke-width="1.3"/>`+"\n", path.String(), colors[i%len(colors)])
	}
}

// short returns a number with three digits at most.
func short(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }
