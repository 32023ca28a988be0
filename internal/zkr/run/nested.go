package run

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// heldVariable is in the environment of a command that zkr runs. It has a line
// for each lock that this zkr holds, and then those that it has inherited: the
// session that holds the lock, the servers, and the path with the chroot. A zkr
// that the command starts must not wait for one of these locks: its holder
// waits until the command has ended. Each zkr has a session of its own, so the
// ensemble does not know that. The znode of zkr join comes last: it is waited
// for like a lock, but its session holds none.
const heldVariable = "ZKR_HELD"

// heldAbove is a lock that a zkr holds which runs this one.
type heldAbove struct {
	session string
	servers string // without the chroot, separated by commas
	path    string // with the chroot
}

// inherited returns the locks of the zkrs that run this one, the nearest first.
// Lines that have another form are ignored.
func inherited() []heldAbove {
	var all []heldAbove
	for text := range strings.Lines(os.Getenv(heldVariable)) {
		if parts := strings.SplitN(strings.TrimSuffix(text, "\n"), " ", 3); len(parts) == 3 {
			all = append(all, heldAbove{parts[0], parts[1], parts[2]})
		}
	}
	return all
}

// isIn reports whether the lock is in this ensemble: whether both lists name a
// server in the same way.
func (a heldAbove) isIn(e *cli.Ensemble) bool {
	names := strings.Split(e.Hosts(), ",")
	return slices.ContainsFunc(strings.Split(a.servers, ","), func(name string) bool {
		return name != "" && slices.Contains(names, name)
	})
}

// checkNested refuses to wait for a lock that a zkr holds which runs this one.
func (h *jobCommand) checkNested() error {
	if h.nests {
		return nil
	}
	for _, a := range inherited() {
		for _, path := range h.paths {
			if a.isIn(h.to) && a.path == h.to.Full(path) {
				return cli.Usage("%s: a zkr that runs this command holds it (session %s), so this one would wait forever", path, a.session)
			}
		}
	}
	return nil
}

// parentText ends the data of our znode. It names the session of the nearest
// zkr that runs this one and holds a lock of this ensemble: that one cannot go
// on while this one waits. zkr deadlocks reads it.
func (h *jobCommand) parentText() string {
	for _, a := range inherited() {
		if a.isIn(h.to) {
			return " parent=" + a.session
		}
	}
	return ""
}

// held has the lines of heldVariable for what this zkr holds in a session.
func (h *jobCommand) held(session int64) string {
	var lines []string
	for _, path := range h.paths {
		lines = append(lines, fmt.Sprintf("%s %s %s", wire.SessionText(session), h.to.Hosts(), h.to.Full(path)))
	}
	return strings.Join(lines, "\n")
}
