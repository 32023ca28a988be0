// Package headers has what each answer of a page says to browsers, and by which
// names a request may ask for it.
package headers

import (
	"net"
	"net/http"
	"strings"
)

// Hosts are names of a host in lower case, without ports.
type Hosts map[string]bool

// Has reports whether they have the host of a request, whose port does not
// count.
func (h Hosts) Has(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return h[strings.ToLower(strings.Trim(host, "[]"))]
}

// Set lets scripts and styles come from the page alone, and no other site frame
// or read it. Nothing is kept, and no address is told to others.
func Set(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}
