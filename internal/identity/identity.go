// Package identity says which process it is. Whoever looks at a lock sees that
// in the data of the znodes in line.
package identity

import (
	"fmt"
	"os"
	"strings"
	"sync"
)

// Process returns the host's name and the process id, as "web-1 pid 4711". The
// text stays the same for as long as the process lives, whatever becomes of the
// host's name: znodes of one local queue must not differ. It is valid UTF-8, as
// Kazoo wants it.
var Process = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	return fmt.Sprintf("%s pid %d", strings.ToValidUTF8(host, "_"), os.Getpid())
})
