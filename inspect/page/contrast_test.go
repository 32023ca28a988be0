package page

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// contrasts are the colors of the sheet, and the grounds on which they stand.
var contrasts = []struct {
	least         float64 // contrast, to 1
	names, ground string
}{
	{4.5, "text quiet accent good bad", "ground raised soft softbad"},
	{4.5, "ground", "bad"},
	{3, "accent good bad", "ground raised soft softbad"},
	{3, "edge", "ground raised"},
	{3, "tone0 tone1 tone2 tone3", "ground raised soft"},
}

// TestContrast: in light and dark, text has a contrast of 4.5 to 1 at least,
// and borders, bars and gaps one of 3 to 1. The sheet has no other colors.
func TestContrast(t *testing.T) {
	sheet, err := files.ReadFile("html/style.css")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile(`:root \{[^}]*\}`)
	schemes := blocks.FindAllString(string(sheet), -1)
	if len(schemes) != 2 {
		t.Fatalf("%d color schemes", len(schemes))
	}
	for _, scheme := range schemes {
		colors := map[string]float64{}
		for _, found := range regexp.MustCompile(`--(\w+): #(\w+)`).FindAllStringSubmatch(scheme, -1) {
			colors[found[1]] = luminance(t, found[2])
		}
		for _, one := range contrasts {
			for name := range strings.FieldsSeq(one.names) {
				for ground := range strings.FieldsSeq(one.ground) {
					a, b := colors[name], colors[ground]
					if got := (max(a, b) + 0.05) / (min(a, b) + 0.05); got < one.least {
						t.Errorf("%s on %s: %.2f, want %.1f, in %s", name, ground, got, one.least, scheme)
					}
				}
			}
		}
	}
	rest := blocks.ReplaceAllString(string(sheet), "")
	if other := regexp.MustCompile(`[:\s](#[0-9a-f]{3,8}\b|rgba?\(|hsla?\(|opacity:|color-mix|filter:|(color|background|fill|stroke): *[a-z]+;)`).FindAllString(strings.ReplaceAll(rest, "fill: none;", ""), -1); len(other) > 0 {
		t.Errorf("other colors: %q", other)
	}
	for property, names := range map[string]string{"color": "text quiet accent good bad ground", "background": "ground raised soft bad good accent tone0 tone1 tone2 tone3", "fill": "text quiet raised softbad bad line tone0 tone1 tone2 tone3"} {
		for _, found := range regexp.MustCompile(`[\s;{]`+property+`: [^;]*var\(--(\w+)\)`).FindAllStringSubmatch(rest, -1) {
			if !slices.Contains(strings.Fields(names), found[1]) {
				t.Errorf("%s is --%s, of which no contrast is checked", property, found[1])
			}
		}
	}
}

// luminance is that of WCAG 2.
func luminance(t *testing.T, color string) float64 {
	t.Helper()
	if len(color) == 3 {
		color = fmt.Sprintf("%c%[1]c%c%[2]c%c%[3]c", color[0], color[1], color[2])
	}
	var parts [3]int
	if _, err := fmt.Sscanf(color, "%2x%2x%2x", &parts[0], &parts[1], &parts[2]); err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		c := float64(parts[i]) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}
