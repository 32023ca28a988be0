package live

import (
	"fmt"
	"strings"
	"testing"
)

// Wide columns shrink before any column is left out, and are the first to go.
func TestTopColumns(t *testing.T) {
	for _, test := range []struct {
		width, longest int
		want           string
	}{
		{140, 10, "LOCK 54 WAIT 6 HELD 9 HOLDER 28 HOST 17 OLDEST 8 GRANTS/s 9 SESSIONS 9"},
		{100, 0, "LOCK 20 WAIT 6 HELD 9 HOLDER 22 HOST 17 OLDEST 8 GRANTS/s 9 SESSIONS 9"},
		{100, 35, "LOCK 36 WAIT 6 HELD 9 HOLDER 11 HOST 12 OLDEST 8 GRANTS/s 9 SESSIONS 9"},
		{100, 200, "LOCK 40 WAIT 6 HELD 9 HOLDER 11 HOST 8 OLDEST 8 GRANTS/s 9 SESSIONS 9"},
		{80, 0, "LOCK 20 WAIT 6 HELD 9 HOLDER 11 HOST 8 OLDEST 8 GRANTS/s 9 SESSIONS 9"},
		{79, 0, "LOCK 20 WAIT 6 HELD 9 HOLDER 18 OLDEST 8 GRANTS/s 9 SESSIONS 9"},
		{71, 0, "LOCK 30 WAIT 6 HELD 9 OLDEST 8 GRANTS/s 9 SESSIONS 9"},
		{60, 0, "LOCK 28 WAIT 6 HELD 9 OLDEST 8 GRANTS/s 9"},
		{50, 0, "LOCK 26 WAIT 6 HELD 9 GRANTS/s 9"},
		{40, 0, "LOCK 25 WAIT 6 HELD 9"},
		{27, 0, "LOCK 21 WAIT 6"},
		{10, 0, "LOCK 10"},
		{0, 0, "LOCK 1"},
	} {
		columns, first := columnsFor(test.width, test.longest)
		columns[0].width = first
		var got []string
		for _, c := range columns {
			got = append(got, c.title, fmt.Sprint(c.width))
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("in %d: %s, want %s", test.width, text, test.want)
		}
	}
	if len(leftOut) != len(topColumns)-1 || topColumns[3].width != 28 {
		t.Error("a column is never left out, or has changed for good")
	}
}

// A path that is too long shows its end.
func TestTopTails(t *testing.T) {
	for _, test := range []struct {
		path string
		room int
		want string
	}{{"/a/b", 4, "/a/b"}, {"/long/path/1", 8, "…/path/1"}, {"/größe/1", 4, "…e/1"}, {"/ab", 1, "/ab"}} {
		if got := tail(test.path, test.room); got != test.want {
			t.Errorf("%s in %d: %s, want %s", test.path, test.room, got, test.want)
		}
	}
}
