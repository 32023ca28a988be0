package untrusted

import (
	"slices"
	"strings"
)

// Names are names of znodes that are code elsewhere, or that change how a text
// reads.
var Names = []string{
	`<script>window.ran=true</script>`, `"><img src=x onerror=window.ran=true>`, `'onfocus='window.ran=true`, "$(touch x)\u200f", "`touch x`", "'; touch x; '", "\u202egnp.exe",
	"&lt;b&gt;", "javascript:alert(1)", "{{.}}", "\u2066a\u2069", "]]>", "</svg><script>window.ran=true</script>", "data: x", "a\u2028event: content",
}

// Data are what a znode may have instead of what a recipe or a page wants to
// read.
var Data = slices.Concat(Names, []string{
	"", "__REVOKE__", "1", "0", "-1", "1000000000000", "x", "\x00\xff", strings.Repeat("y", 1000), "\x1b[2J", "\r\nevent: content\ndata: <script>window.ran=true</script>\n\n",
	"web pid 1: <script>window.ran=true</script>", "__REVOKE__ <svg> pid 1: x\" onload=\"window.ran=true", strings.Repeat("<b>", 10_000),
})
