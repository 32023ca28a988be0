package page

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
)

// TestContrast: in light and dark, text has a contrast of 4.5 to 1 at least,
// and borders, bars and gaps one of 3 to 1.
func TestContrast(t *testing.T) {
	sheet, err := files.ReadFile("html/style.css")
	if err != nil {
		t.Fatal(err)
	}
	schemes := regexp.MustCompile(`:root \{[^}]*`).FindAllString(string(sheet), -1)
	if len(schemes) != 2 {
		t.Fatalf("%d color schemes", len(schemes))
	}
	for _, scheme := range schemes {
		colors := map[string]float64{}
		for _, found := range regexp.MustCompile(`--(\w+): #(\w+)`).FindAllStringSubmatch(scheme, -1) {
			colors[found[1]] = luminance(t, found[2])
		}
		for least, names := range map[float64]string{4.5: "text quiet accent good bad", 3: "edge tone0 tone1 tone2 tone3"} {
			for name := range strings.FieldsSeq(names) {
				for _, ground := range []string{"ground", "raised"} {
					a, b := colors[name], colors[ground]
					if got := (max(a, b) + 0.05) / (min(a, b) + 0.05); got < least {
						t.Errorf("%s on %s: %.2f, want %.1f, in %s", name, ground, got, least, scheme)
					}
				}
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
