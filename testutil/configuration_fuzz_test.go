package testutil

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// What a client sends as a configuration is refused, or is shown in a form that
// stands for the same servers.
func FuzzConfiguration(f *testing.F) {
	for _, text := range []string{
		"server.1=a:1:2;3\nserver.2=b:1:2:Observer;c:3,version=5", "server.-1=[::1]:1:2;[::]:3", "server.1=[1.2.3.4]:1:2;[::%x]:3", "=;[]:#",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, parse := range []func(string) (*configuration, wire.Code){
			parseConfiguration,
			func(lines string) (*configuration, wire.Code) {
				return (&configuration{servers: map[int64]server{}}).incremental(lines, "1")
			},
		} {
			c, code := parse(text)
			if code != wire.OK || c.voters() == 0 {
				continue
			}
			if again, code := parseConfiguration(c.String()); code != wire.OK || again.String() != c.String() {
				t.Errorf("%q is shown as %q, which is %v", text, c, code)
			}
		}
	})
}
