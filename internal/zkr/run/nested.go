package run

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect"
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

// heldAbove is a lock that a zkr holds which runs this one, or has started what
// runs it.
type heldAbove struct {
	session int64
	servers string // without the chroot, separated by commas
	path    string // with the chroot
}

// inherited returns the locks of the zkrs that run this one, the nearest first.
// Lines that have another form are ignored.
func inherited() []heldAbove {
	var all []heldAbove
	for text := range strings.Lines(os.Getenv(heldVariable)) {
		parts := strings.SplitN(strings.TrimSuffix(text, "\n"), " ", 3)
		if len(parts) != 3 {
			continue
		}
		if session, err := strconv.ParseUint(parts[0], 0, 64); err == nil {
			all = append(all, heldAbove{int64(session), parts[1], parts[2]})
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

// stands reports whether the session has a znode in line at path, among the
// permits there, or, as a member, at path itself. A process that has outlived
// the command which started it has the variable, too. If no answer comes in
// time, or a znode may not be read, stands returns true.
func (a heldAbove) stands(ctx context.Context, c *framework.Client, path string) bool {
	ctx, cancel := context.WithTimeout(ctx, cli.LookTimeout)
	defer cancel()
	line, err := inspect.Read(ctx, c, path) // a sync comes first
	if err != nil {
		return true
	}
	if slices.ContainsFunc(slices.Concat(line.Holders, line.Waiting), func(one inspect.Contender) bool {
		return one.Session == a.session || one.Created == 0
	}) {
		return true
	}
	exists, stat, err := c.Exists(ctx, path)
	return err != nil || exists && stat.EphemeralOwner == a.session
}

// checkNested refuses to wait for a lock that a zkr holds which runs this one.
func (h *jobCommand) checkNested(ctx context.Context, c *framework.Client) error {
	if h.nests {
		return nil
	}
	for _, a := range inherited() {
		for _, path := range h.paths {
			if a.isIn(h.to) && a.path == h.to.Full(path) && a.stands(ctx, c, path) {
				return cli.Usage("%s: a zkr that runs this command holds it (session %s), so this one would wait forever", path, wire.SessionText(a.session))
			}
		}
	}
	return nil
}

// parent returns the session of the nearest zkr that runs this one and holds a
// lock of this ensemble, or 0: that one cannot continue while this one waits.
// zkr deadlocks reads it in the data of our znode.
func (h *jobCommand) parent() int64 {
	for _, a := range inherited() {
		if a.isIn(h.to) {
			return a.session
		}
	}
	return 0
}

// held has the lines of heldVariable for what this zkr holds in a session.
func (h *jobCommand) held(session int64) string {
	var lines []string
	for _, path := range h.paths {
		lines = append(lines, fmt.Sprintf("%s %s %s", wire.SessionText(session), h.to.Hosts(), h.to.Full(path)))
	}
	return strings.Join(lines, "\n")
}
