package rwlock

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

func TestBlocker(t *testing.T) {
	const r, w = "a-R-000000000", "a-W-000000000"
	tests := []struct {
		story string
		own   string
		ahead []string
		want  string
	}{
		{"a reader alone", r + "1", nil, ""},
		{"a writer alone", w + "1", nil, ""},
		{"a reader behind readers", r + "3", []string{r + "1", r + "2"}, ""},
		{"a reader behind a writer", r + "2", []string{w + "1"}, w + "1"},
		{"a reader behind several writers: the last one", r + "4", []string{w + "1", w + "2", w + "3"}, w + "3"},
		{"a reader behind a writer that other readers follow", r + "5", []string{r + "1", w + "2", r + "3", r + "4"}, w + "2"},
		{"a writer behind a reader", w + "2", []string{r + "1"}, r + "1"},
		{"a writer behind readers: the last one", w + "3", []string{r + "1", r + "2"}, r + "2"},
		{"a writer behind writers: the last one", w + "3", []string{w + "1", w + "2"}, w + "2"},
		{"a downgraded read beside its write", r + "2", []string{w + "2"}, ""},
		{"a downgraded read beside its write and another read of it", r + "2", []string{w + "2", r + "2"}, ""},
		{"a downgraded read with a write ahead, which cannot be", r + "2", []string{w + "1", w + "2"}, w + "1"},
		{"a writer behind a downgraded read", w + "3", []string{w + "2", r + "2"}, r + "2"},
		{"a reader behind a write and its read", r + "3", []string{w + "2", r + "2"}, w + "2"},
		{"a reader behind a read that was downgraded and its write gone", r + "3", []string{r + "2"}, ""},
	}
	for _, test := range tests {
		own, ok := layout.Parse(test.own)
		if !ok {
			t.Fatal(test.own)
		}
		ahead, _ := layout.Line(test.ahead, layout.PlainRW)
		got, wait := blocker(own, ahead)
		if got.Name != test.want || wait != (test.want != "") {
			t.Errorf("%s: waits for %q, %v; want %q", test.story, got.Name, wait, test.want)
		}
	}
}
