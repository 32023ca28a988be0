package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// calls notes what became of the calls of each server, so that the error of a
// client that finds no ensemble can say it.
type calls struct {
	tls bool

	mu     sync.Mutex // guards what follows
	order  []string   // the addresses, in the order of their first calls
	latest map[string]call
}

// call is what became of the latest call of a server that has ended. If none
// has, it is the present state of one that is under way.
type call struct {
	state    string
	underWay bool
}

// What became of a call.
const (
	callRefused = "refuses connections"
	callSilent  = "is silent"
	callNoWord  = "accepts connections but is silent"
	callClosed  = "accepts connections but closes them: it has no quorum, is full (maxClientCnxns), or expects TLS"
	callNoTLS   = "accepts connections but closes them: it may not expect TLS, or is full (maxClientCnxns)"
	callAnswers = "answers but gives no session"
)

func (l *calls) note(address, state string, underWay bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, known := l.latest[address]
	if !known {
		l.order = append(l.order, address)
	}
	if !known || before.underWay || !underWay {
		l.latest[address] = call{state, underWay}
	}
}

// Dial is net.DialTimeout.
func (l *calls) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	l.note(address, callSilent, true)
	conn, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		l.note(address, l.failed(err), false)
		return nil, err
	}
	l.note(address, callNoWord, true)
	return &calledConn{Conn: conn, log: l, address: address}, nil
}

// failed says what became of a call whose dial has failed.
func (l *calls) failed(err error) string {
	var slow net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return callRefused
	case errors.As(err, &slow) && slow.Timeout():
		return callSilent
	case isHangUp(err):
		return l.closed()
	default:
		return "cannot be reached: " + err.Error()
	}
}

// isHangUp reports whether the server has ended the connection.
func isHangUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// closed says why a server may close a connection that it has accepted.
func (l *calls) closed() string {
	if l.tls {
		return callNoTLS
	}
	return callClosed
}

// calledConn notes the first answer.
type calledConn struct {
	net.Conn
	log     *calls
	address string
	once    sync.Once
}

func (c *calledConn) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	c.once.Do(func() {
		switch {
		case n > 0:
			c.log.note(c.address, callAnswers, false)
		case isHangUp(err):
			c.log.note(c.address, c.log.closed(), false)
		default: // the client has hung up
			c.log.note(c.address, callNoWord, true)
		}
	})
	return n, err
}

// Write notes that the server has closed the connection before the first
// answer: the client then reads none.
func (c *calledConn) Write(from []byte) (int, error) {
	n, err := c.Conn.Write(from)
	if isHangUp(err) {
		c.once.Do(func() { c.log.note(c.address, c.log.closed(), false) })
	}
	return n, err
}

// describe says what became of the calls of the servers in names, which are
// separated by commas. all is false if that does not explain why there is no
// session: a server was not called, or it has answered.
func (l *calls) describe(names string) (text string, all bool) {
	list := strings.Split(names, ",")
	of := map[string]string{} // names by address
	unknown := map[string]bool{}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, name := range list {
		found, err := addressesOf(ctx, name)
		for _, address := range found {
			of[address] = name
		}
		unknown[name] = err != nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	all = true
	var parts []string
	for _, address := range l.order {
		name, state := of[address], l.latest[address].state
		if name == "" {
			name = address
		} else if name != address {
			name += " (" + address + ")"
		}
		list = slices.DeleteFunc(list, func(called string) bool { return called == of[address] })
		all = all && state != callAnswers
		parts = append(parts, name+" "+state)
	}
	for _, name := range list {
		if unknown[name] {
			parts = append(parts, name+" cannot be resolved")
			continue
		}
		parts, all = append(parts, name+" was not called"), false
	}
	return strings.Join(parts, ", "), all
}

// addressesOf resolves the name of a server.
func addressesOf(ctx context.Context, name string) ([]string, error) {
	host, port, err := net.SplitHostPort(name)
	if err != nil {
		return nil, err
	}
	found, err := net.DefaultResolver.LookupHost(ctx, host)
	for i := range found {
		found[i] = net.JoinHostPort(found[i], port)
	}
	return found, err
}

// explain adds to why what became of the calls.
func (l *calls) explain(names string, why error) string {
	said, all := l.describe(names)
	switch {
	case said == "":
		return why.Error()
	case all:
		return said
	default:
		return fmt.Sprintf("%s: %v", said, why)
	}
}
