package apache

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The log of a failed member is shown from its end, without stack traces.
func TestLogged(t *testing.T) {
	p := &process{dir: t.TempDir()}
	if got := p.logged(); !strings.Contains(got, p.logFile()) {
		t.Errorf("without a log: %q", got)
	}
	for _, test := range []struct {
		errors      int
		first, last string
	}{{1, "WARN 1", "IOException 1"}, {100, "WARN 86", "IOException 100"}} {
		var log strings.Builder
		for i := range test.errors {
			fmt.Fprintf(&log, "WARN %d\njava.io.IOException %[1]d\n\tat NIOServerCnxn.java:557\n\tat Thread.java:840\n", i+1)
		}
		if err := os.WriteFile(p.logFile(), []byte(log.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		got := p.logged()
		if strings.Contains(got, "\tat ") || !strings.HasPrefix(got, test.first+"\n") || !strings.HasSuffix(got, test.last) {
			t.Errorf("of %d errors:\n%s", test.errors, got)
		}
	}
}
