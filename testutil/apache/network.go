package apache

import (
	"fmt"
	"net"
	"os/exec"
)

// Network is a network that an ensemble's members are on, as nodes from 0. It
// may have faults: see [WithNetwork].
type Network interface {
	// Host returns the IP address at which a member listens.
	Host(member int) string
	// Address returns the address at which one member reaches an address of
	// another one. The host must be the same for all addresses of a member.
	Address(from, to int, address string) (string, error)
	// Enter changes the command that starts a member's process, so that the
	// process is on the network. It is called for each start.
	Enter(member int, cmd *exec.Cmd) error
}

// WithNetwork puts the members on a network, instead of directly on loopback.
// The process that starts the ensemble must reach the members by their hosts.
func WithNetwork(n Network) Option { return func(c *config) { c.network = n } }

// loopback is the network of members on loopback.
type loopback struct{}

func (loopback) Host(int) string                               { return "127.0.0.1" }
func (loopback) Address(_, _ int, addr string) (string, error) { return addr, nil }
func (loopback) Enter(int, *exec.Cmd) error                    { return nil }

// peersSeenBy returns the lines of a member's settings that name all members:
// itself by its own addresses, the others by those at which it reaches them. So
// many vote, and the others observe. ports has three for each member: for
// clients, for its followers, and for elections. If clients is set, each line
// also has the address for clients.
func peersSeenBy(n Network, member, voters int, ports []int, clients bool) (lines []string, err error) {
	for other := range len(ports) / 3 {
		var host string
		var seen [2]string // the ports for followers and for elections
		for i := range seen {
			address := net.JoinHostPort(n.Host(other), fmt.Sprint(ports[3*other+1+i]))
			if other != member {
				if address, err = n.Address(member, other, address); err != nil {
					return nil, err
				}
			}
			if host, seen[i], err = net.SplitHostPort(address); err != nil {
				return nil, err
			}
		}
		role := "participant"
		if other >= voters {
			role = "observer"
		}
		line := fmt.Sprintf("server.%d=%s:%s:%s:%s", other+1, host, seen[0], seen[1], role)
		if clients {
			line += fmt.Sprintf(";%s:%d", n.Host(other), ports[3*other])
		}
		lines = append(lines, line)
	}
	if member >= voters {
		lines = append(lines, "peerType=observer")
	}
	return lines, nil
}
