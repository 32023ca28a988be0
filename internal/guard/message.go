package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Version is that of the protocol. A guardian refuses any other one.
const Version = 1

// Limits of what one process can ask for.
const (
	longestMessage = 8192
	longestServers = 4096
	longestText    = 1024
	mostSessions   = 4096 // a process has one for each client
	mostCommands   = 256  // that run at the same time
	mostFiles      = 2    // with one message
	longestTimeout = time.Hour
	passwordSize   = 16
)

// Operations of a message, with the fields and files that they have.
const (
	opHello    = "hello"    // of the process, first: Version, Warden; its pidfd and its eventfd
	opStatus   = "status"   // instead of hello: Version; the answer is a welcome, and the end
	opGuard    = "guard"    // ID, Password, Timeout, Servers, Server
	opOver     = "over"     // ID, Servers, Closed
	opUntil    = "until"    // Until
	opStarting = "starting" // Ref, Start: a command is about to be started
	opGroup    = "group"    // Ref, Group, Start: it was; its pidfd
	opEnded    = "ended"    // Ref: it has ended, or was not started

	opWelcome = "welcome" // of the guardian, the answer to hello: Version, Kills, Status
	opRefused = "refused" // Text says why; the end follows
	opLog     = "log"     // Text is for the log of the process
)

// message is a message in either direction.
type message struct {
	Op       string        `json:"op"`
	Version  int           `json:"version,omitempty"`
	ID       int64         `json:"id,omitempty"`
	Password []byte        `json:"password,omitempty"`
	Timeout  time.Duration `json:"timeout,omitempty"`
	Servers  string        `json:"servers,omitempty"` // "h1:2181,h2:2181"
	Server   string        `json:"server,omitempty"`
	Closed   bool          `json:"closed,omitempty"`
	Until    time.Duration `json:"until,omitempty"` // on the clock of bootTime; 0: no limit
	Ref      uint64        `json:"ref,omitempty"`
	Group    int           `json:"group,omitempty"`
	Start    uint64        `json:"start,omitempty"` // when the leader of the group was started, or since when it may be, as /proc says; 0: not known
	Kills    bool          `json:"kills,omitempty"`
	Text     string        `json:"text,omitempty"`
	Status   *Status       `json:"status,omitempty"`
}

// Status is what a guardian says of itself.
type Status struct {
	Ensembles []string      `json:"ensembles"` // the servers of each
	After     time.Duration `json:"after"`
	Processes int           `json:"processes"` // that it guards, of all users
	Sessions  int           `json:"sessions"`
	Foreign   bool          `json:"foreign,omitempty"` // numbers of processes may mean others to whom it answers
}

// Serves reports whether the guardian closes sessions of the ensemble at
// servers.
func (s Status) Serves(servers string) bool {
	return slices.ContainsFunc(s.Ensembles, func(all string) bool { return isPart(servers, all) })
}

// ErrClosed is why a guardian is lost that this process has given up.
var ErrClosed = errors.New("the guardian was given up")

var errMessage = errors.New("invalid message")

// parse reads a message, and checks what does not depend on earlier ones. files
// is how many came with it.
func parse(packet []byte, files int) (m message, err error) {
	if len(packet) > longestMessage {
		return m, fmt.Errorf("%w: longer than %d bytes", errMessage, longestMessage)
	}
	if err := json.Unmarshal(packet, &m); err != nil {
		return m, fmt.Errorf("%w: %w", errMessage, err)
	}
	want := map[string]int{opHello: 2, opGroup: 1}[m.Op]
	ok := true
	switch m.Op {
	case opHello, opStatus, opWelcome:
		if m.Version != Version {
			return m, fmt.Errorf("version %d of the protocol: want %d", m.Version, Version)
		}
	case opGuard:
		ok = m.ID != 0 && len(m.Password) == passwordSize && m.Timeout >= time.Millisecond && m.Timeout <= longestTimeout &&
			m.Servers != "" && len(m.Servers) <= longestServers && len(m.Server) <= longestText
	case opOver:
		ok = m.ID != 0 && len(m.Servers) <= longestServers
	case opUntil:
		ok = m.Until >= 0
	case opStarting, opEnded:
		ok = m.Ref != 0
	case opGroup:
		ok = m.Ref != 0 && m.Group > 1 && m.Group <= math.MaxInt32 // the kernel would cut it off
	case opRefused, opLog:
		ok = len(m.Text) <= longestText
	default:
		ok = false
	}
	if !ok || files != want {
		return m, fmt.Errorf("%w: %q with %d files", errMessage, m.Op, files)
	}
	return m, nil
}

func (m message) packet() []byte {
	packet, _ := json.Marshal(m) // no field of it can fail
	return packet
}

// names returns the servers of a list, with ports, in small letters.
func names(servers string) (all []string) {
	servers, _, _ = strings.Cut(servers, "/")
	for _, name := range strings.Split(servers, ",") {
		name = strings.ToLower(strings.TrimSpace(name))
		if name == "" {
			continue
		}
		if i := strings.LastIndexByte(name, ':'); i < 0 || strings.HasSuffix(name, "]") {
			name += ":2181"
		}
		all = append(all, name)
	}
	return all
}

// isPart reports whether all servers of one list are in the other one.
func isPart(some, all string) bool {
	whole, part := names(all), names(some)
	return len(part) > 0 && !slices.ContainsFunc(part, func(name string) bool { return !slices.Contains(whole, name) })
}
