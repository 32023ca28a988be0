package look

import (
	"fmt"
	"net/netip"
	"path"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/identity"
	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// HostOf returns the host of a contender as its znode says it, or "". Its data
// has the host if this module has written it, and the address if Curator has.
// The names of plain read/write locks have the host.
func HostOf(c *inspect.Contender) string {
	if host := identity.Parse(c.Data).Host; host != "" {
		return host
	}
	if address, err := netip.ParseAddr(string(c.Data)); err == nil {
		return address.String()
	}
	if node, ok := layout.Parse(path.Base(c.Path)); ok && node.Family == layout.PlainRW {
		host, _ := strings.CutSuffix(strings.TrimSuffix(strings.TrimSuffix(node.Base, "R-"), "W-"), "-")
		return host
	}
	return ""
}

// DataText shows the data of a contender.
func DataText(data string) string {
	switch id := identity.Parse([]byte(data)); {
	case !id.Asked:
		return escape.Data(data)
	case len(id.Own) == 0:
		return "asked to release"
	default:
		return escape.Data(string(id.Own)) + " (asked to release)"
	}
}

// Count returns a number of things.
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Seconds shows a time in a few characters, and "-" if it is not known.
func Seconds(s float64, known bool) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case !known:
		return "-"
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}
