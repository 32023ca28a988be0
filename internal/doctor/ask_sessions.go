package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// askSessions looks for sessions of anybody whose end might be too large a
// transaction: see framework.WithMaxEphemerals. It asks by the word dump, which
// any member answers from its own data, if it may.
func askSessions(ctx context.Context, p *probe) finding {
	if beforeCloseTxn.MatchString(p.server(ctx).release) {
		return finding{} // the end of a session lists no paths there
	}
	half := p.ensemble.MaxRequest() / 2
	nc, err := p.say(ctx, "dump", p.within(ctx))
	if err != nil {
		return fails("%v", err)
	}
	defer nc.Close()
	large, whole := largeSessions(nc, half)
	switch {
	case len(large) > 0:
		return noted("%s", strings.Join(large, ", "))
	case whole:
		return good("no session has more than %d bytes of ephemeral paths", half)
	}
	return good(notDumped)
}

// notDumped is what is seen of a server that may not be asked by the word dump.
const notDumped = "not known: it does not answer dump (4lw.commands.whitelist), or not in time"

// askLocal asks whether sessions are local to a member until they own a znode.
// Then a leader executes plain writes of a session that it does not know: it
// may be another member's. So may be a session that has ended. The word dump
// lists local sessions first, if a server can have any.
func askLocal(ctx context.Context, p *probe) finding {
	sessions, ok := strings.CutPrefix(p.word(ctx, "dump"), "SessionTracker dump:\n")
	switch {
	case !ok || sessions == "":
		return good(notDumped)
	case strings.HasPrefix(sessions, "Local "):
		return fails("it has local sessions: plain writes of a session that has ended may be executed")
	}
	return good("it has no local sessions")
}

// beforeCloseTxn matches the releases before 3.6.
var beforeCloseTxn = regexp.MustCompile(`^3\.[0-5]\.`)

// mostNamed is how many sessions an answer names.
const mostNamed = 5

// largeSessions reads an answer to dump, and describes the sessions whose
// ephemeral paths have more than half bytes. whole reports whether all of them
// were read.
func largeSessions(r io.Reader, half int) (large []string, whole bool) {
	const begin, longest = "Sessions with Ephemerals (", 1 << 20
	lines := bufio.NewReaderSize(r, 64<<10)
	session, size, begun := "", 0, false
	end := func() {
		if size > half && len(large) < mostNamed {
			large = append(large, fmt.Sprintf("session %s has %d bytes of ephemeral paths", session, size))
		}
		size = 0
	}
	for {
		line, length, err := readLine(lines, longest)
		switch {
		case errors.Is(err, io.EOF) && begun: // a server without a dump of connections
			end()
			return large, true
		case err != nil:
			end()
			return large, false
		case !begun:
			begun = strings.HasPrefix(line, begin)
		case strings.HasPrefix(line, "\t/"):
			size += length - len("\t") + 4
		case sessionLine.MatchString(line):
			end()
			session = strings.TrimSuffix(line, ":")
		default:
			end()
			return large, true
		}
	}
}

var sessionLine = regexp.MustCompile(`^0x[0-9a-f]{1,16}:$`)

// readLine returns the beginning of a line, and the length of all of it, which
// is an error if it is above most.
func readLine(r *bufio.Reader, most int) (beginning string, length int, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if length == 0 {
			beginning = strings.TrimRight(string(part[:min(len(part), 64)]), "\r\n")
		}
		switch length += len(part); {
		case err == nil:
			return beginning, length - len("\n"), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return "", 0, err
		case length > most:
			return "", 0, bufio.ErrTooLong
		}
	}
}
