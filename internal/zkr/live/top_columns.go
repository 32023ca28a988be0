package live

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/look"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

var topOrders = cli.EnumFlag[look.Order]{
	Names:  []string{"waiting", "grants", "held", "oldest", "path"},
	Values: []look.Order{look.ByWaiting, look.ByGrants, look.ByHeld, look.ByOldest, look.ByPath},
}

// topColumn is a column of the table.
type topColumn struct {
	title string
	width int // 0: what is left
	least int // a wide column shrinks to this width before any column is left out; 0: it does not
	text  func(r *look.Row) string
}

var topColumns = []topColumn{
	{"LOCK", 0, 0, func(r *look.Row) string { return escape.Text(r.Path) }},
	{"WAIT", 6, 0, func(r *look.Row) string { return fmt.Sprint(r.Waiting) }},
	{"HELD", 9, 0, func(r *look.Row) string { return r.HeldText() }},
	{"HOLDER", 28, 11, func(r *look.Row) string { return r.HolderText() }},
	{"HOST", 17, 8, func(r *look.Row) string { return cmp.Or(escape.Text(r.Host), "-") }},
	{"OLDEST", 8, 0, func(r *look.Row) string { return r.OldestText() }},
	{"GRANTS/s", 9, 0, func(r *look.Row) string { return r.RateText() }},
	{"SESSIONS", 9, 0, func(r *look.Row) string { return r.SessionsText() }},
}

// leftOut are the columns in the order in which they are left out when there is
// no room: the wide ones first.
var leftOut = []string{"HOST", "HOLDER", "SESSIONS", "OLDEST", "GRANTS/s", "HELD", "WAIT"}

// The least width of the column without one, and the width for which the wide
// columns shrink, if a path is that long.
const (
	narrowest = 20
	enough    = 60
)

// columnsFor returns the columns for a width, and how wide the first is, which
// has texts of such a length.
func columnsFor(width, longest int) (columns []topColumn, first int) {
	want := min(max(narrowest, longest+1), enough)
	for gone := 0; ; gone++ {
		columns = slices.DeleteFunc(slices.Clone(topColumns), func(c topColumn) bool { return slices.Contains(leftOut[:gone], c.title) })
		first = width
		for _, c := range columns {
			first -= c.width
		}
		for i := range columns {
			if c := &columns[i]; c.least > 0 && first < want {
				less := min(c.width-c.least, want-first)
				c.width, first = c.width-less, first+less
			}
		}
		if first >= narrowest || gone == len(leftOut) {
			return columns, max(1, first)
		}
	}
}
