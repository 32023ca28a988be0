package cutnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Namespaces is a network of namespaces. Its own process is one of the nodes,
// and must be in a namespace of its own itself: see [Isolate].
type Namespaces struct {
	*links
	wg   sync.WaitGroup
	done chan struct{} // closed by Close

	mu      sync.Mutex // guards what follows
	closed  bool
	devices map[int]*os.File       // by node
	sockets map[*os.File]func()    // on which devices are awaited; what closes them
	queues  map[[2]int]chan parcel // of what is delayed, by direction
}

// parcel is a packet that is due later.
type parcel struct {
	packet []byte
	due    time.Time
}

// NewNamespaces returns a network with this process at a node.
func NewNamespaces(here int) (*Namespaces, error) {
	if os.Getenv(isolated) == "" {
		return nil, errors.New("cutnet: this process is not in a namespace of its own: start it with Isolate")
	}
	n := &Namespaces{
		links: newLinks(), done: make(chan struct{}),
		devices: map[int]*os.File{}, sockets: map[*os.File]func(){}, queues: map[[2]int]chan parcel{},
	}
	device, err := newDevice(n.Host(here))
	if err != nil {
		return nil, err
	}
	n.attach(here, device)
	return n, nil
}

// Host returns the IP address of a node.
func (n *Namespaces) Host(node int) string { return fmt.Sprintf("10.77.0.%d", node+1) }

// nodeOf returns the node of an IP address.
func nodeOf(ip []byte) int { return int(ip[3]) - 1 }

// Address returns address: nodes have the same addresses for all.
func (n *Namespaces) Address(_, _ int, address string) (string, error) { return address, nil }

// Enter makes cmd start in a namespace of its own.
func (n *Namespaces) Enter(node int, cmd *exec.Cmd) error {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cutnet: enter node %d: %w", node, err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "cutnet"), os.NewFile(uintptr(pair[1]), "cutnet")
	closeBoth := sync.OnceFunc(func() { ours.Close(); theirs.Close() })
	n.mu.Lock()
	defer n.mu.Unlock()
	conn, err := net.FileConn(ours)
	if err == nil && n.closed {
		err = net.ErrClosed
	}
	if err == nil {
		err = enterNamespace(cmd, n.Host(node), theirs)
	}
	if err != nil {
		closeBoth()
		return fmt.Errorf("cutnet: enter node %d: %w", node, err)
	}
	n.sockets[ours] = func() { conn.Close(); closeBoth() }
	n.wg.Go(func() {
		device, err := receiveDevice(conn.(*net.UnixConn))
		conn.Close()
		ours.Close()    // theirs stays until Close: the race detector does not see that cmd has started
		if err == nil { // otherwise the process ended before, or the network
			n.attach(node, device)
		}
	})
	return nil
}

func receiveDevice(conn *net.UnixConn) (*os.File, error) {
	oob := make([]byte, syscall.CmsgSpace(4))
	_, size, _, _, err := conn.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return nil, err
	}
	messages, err := syscall.ParseSocketControlMessage(oob[:size])
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("no device: %w", err)
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("no device: %w", err)
	}
	return deviceFile(fds[0])
}

// attach connects a device to the switch, instead of an earlier one.
func (n *Namespaces) attach(node int, device *os.File) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		device.Close()
		return
	}
	if old := n.devices[node]; old != nil {
		old.Close()
	}
	n.devices[node] = device
	n.wg.Go(func() { n.forwardFrom(node, device) })
}

// forwardFrom forwards what a node sends, until its device is closed.
func (n *Namespaces) forwardFrom(from int, device *os.File) {
	lanes := map[int]*lane{}
	packet := make([]byte, 2000) // more than the MTU of a device
	for {
		size, err := device.Read(packet)
		if err != nil {
			return // closed
		}
		if size < ipHeader || packet[0]>>4 != 4 {
			continue // IPv6 looks for routers
		}
		to := nodeOf(packet[16:20])
		if lanes[to] == nil {
			lanes[to] = &lane{}
		}
		n.forward(from, to, packet[:size], lanes[to])
	}
}

func (n *Namespaces) forward(from, to int, packet []byte, q *lane) {
	l, _ := n.get(from, to)
	if l.Refused {
		n.lost.Add(1)
		if answer := refusal(packet); answer != nil {
			n.deliver(from, answer)
		}
		return
	}
	now := time.Now()
	due, ok := q.due(l, len(packet), now)
	if !ok || l.loses() {
		n.lost.Add(1)
		return
	}
	if due == now {
		n.deliver(to, packet)
		return
	}
	select {
	case n.queue(from, to) <- parcel{append([]byte(nil), packet...), due}:
	default:
		n.lost.Add(1)
	}
}

// queue returns the queue of a direction, which a goroutine serves.
func (n *Namespaces) queue(from, to int) chan<- parcel {
	n.mu.Lock()
	defer n.mu.Unlock()
	q := n.queues[[2]int{from, to}]
	if q == nil && !n.closed {
		q = make(chan parcel, 2000)
		n.queues[[2]int{from, to}] = q
		n.wg.Go(func() { n.serve(to, q) })
	}
	return q
}

func (n *Namespaces) serve(to int, q <-chan parcel) {
	for {
		select {
		case p := <-q:
			select {
			case <-time.After(time.Until(p.due)):
				n.deliver(to, p.packet)
			case <-n.done:
				return
			}
		case <-n.done:
			return
		}
	}
}

func (n *Namespaces) deliver(to int, packet []byte) {
	n.mu.Lock()
	device := n.devices[to]
	n.mu.Unlock()
	if device != nil {
		_, _ = device.Write(packet) // the process may have ended
	}
}

// Close ends the network.
func (n *Namespaces) Close() error {
	n.mu.Lock()
	if !n.closed {
		n.closed = true
		close(n.done)
	}
	for _, device := range n.devices {
		device.Close()
	}
	for _, closeSocket := range n.sockets {
		closeSocket()
	}
	n.mu.Unlock()
	n.wg.Wait()
	return nil
}

// checkAddress refuses what is not an IPv4 address.
func checkAddress(host string) ([4]byte, error) {
	ip := net.ParseIP(host).To4()
	if ip == nil {
		return [4]byte{}, fmt.Errorf("cutnet: %q is no IPv4 address", host)
	}
	var address [4]byte
	binary.BigEndian.PutUint32(address[:], binary.BigEndian.Uint32(ip))
	return address, nil
}
