// Package cutnet puts processes of this machine on a network whose links can be
// cut, one way or both, slowed down, and made to lose what they carry.
//
// There are two such networks. [Namespaces] gives each process a network
// namespace of its own with one device, and is the switch between these
// devices: it forwards, delays or loses single packets, so that the kernel's
// TCP does what it does on a network that fails. It needs Linux and root, and
// neither netem nor any command. [Relays] needs nothing: each process reaches
// each other one at an address of its own on loopback, where a relay forwards.
// [Choose] takes what is possible.
//
// The tests also cut the network between real members, and to processes that
// use all recipes (cuts_test.go).
//
// Neither can leave anything behind. The namespaces have no names: they end,
// with their devices, when the last process in them ends, even if it is killed.
package cutnet

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"
)

// Network is the network between nodes, which are counted from 0. Each node is
// one process. At first all links are in order.
type Network interface {
	// Host returns the IP address at which a node's servers listen.
	Host(node int) string
	// Address returns the address at which one node reaches an address of
	// another one.
	Address(from, to int, address string) (string, error)
	// Enter changes a command that has not been started, so that it starts a
	// process at a node. The process replaces an earlier one.
	Enter(node int, cmd *exec.Cmd) error
	// Set changes one direction between two nodes: what from says to to.
	Set(from, to int, l Link)
	// Lost returns how many packets, or in relays pieces, were lost or held.
	Lost() int64
	// Close ends the network. The processes have to have ended.
	Close() error
}

// Link is the state of one direction between two nodes. The zero Link is in
// order.
type Link struct {
	Cut     bool          // nothing arrives, and nobody is told
	Refused bool          // nothing arrives, and each packet breaks its connection at the sender
	Loss    float64       // the share of packets that is lost
	Delay   time.Duration // of each packet
	Jitter  time.Duration // at most so much is added to the delay, at random
	Rate    int           // bytes in a second; 0 means no limit
}

// backlog is how much a limited rate may queue. What exceeds it is lost.
const backlog = time.Second

// Mode is the environment variable that chooses a network: "namespaces" or
// "relays". Unset, Choose takes namespaces where they are allowed.
const Mode = "ZKR_NETWORK"

// Choose returns whether to use Namespaces, and why, for a log. It fails if
// Mode asks for what is not possible.
func Choose() (namespaces bool, why string, err error) {
	mode := os.Getenv(Mode)
	switch mode {
	case "relays":
		return false, Mode + "=" + mode, nil
	case "", "namespaces":
	default:
		return false, "", fmt.Errorf("cutnet: %s=%s: want namespaces or relays", Mode, mode)
	}
	denied := tryNamespace()
	if denied != nil && mode != "" {
		return false, "", fmt.Errorf("cutnet: %s=%s: %w", Mode, mode, denied)
	}
	if denied != nil {
		return false, fmt.Sprintf("no namespaces: %v", denied), nil
	}
	return true, "namespaces are allowed", nil
}

// links has the state of each direction.
type links struct {
	lost atomic.Int64

	mu      sync.Mutex // guards what follows
	all     map[[2]int]Link
	changed chan struct{} // closed and replaced with each change
}

func newLinks() *links { return &links{all: map[[2]int]Link{}, changed: make(chan struct{})} }

// Set changes one direction between two nodes.
func (n *links) Set(from, to int, l Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all[[2]int{from, to}] = l
	close(n.changed)
	n.changed = make(chan struct{})
}

// Lost returns how much was lost or held.
func (n *links) Lost() int64 { return n.lost.Load() }

func (n *links) get(from, to int) (l Link, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.all[[2]int{from, to}], n.changed
}

func (l Link) loses() bool { return l.Cut || l.Loss > 0 && rand.Float64() < l.Loss }

// lane is one direction's queue in time. Only one goroutine uses it.
type lane struct{ free time.Time }

// due returns when so many bytes arrive that are sent now, and false if they do
// not fit into the backlog.
func (q *lane) due(l Link, size int, now time.Time) (due time.Time, ok bool) {
	due = now
	if l.Rate > 0 {
		if q.free.Sub(now) > backlog {
			return due, false
		}
		if q.free.Before(now) {
			q.free = now
		}
		q.free = q.free.Add(time.Duration(size) * time.Second / time.Duration(l.Rate))
		due = q.free
	}
	due = due.Add(l.Delay)
	if l.Jitter > 0 {
		due = due.Add(rand.N(l.Jitter))
	}
	return due, true
}
