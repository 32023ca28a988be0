// Package nameserver is a name service in memory, with faults, for tests.
package nameserver

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Answer says how questions about a name are answered.
type Answer string

// The answers.
const (
	Addresses Answer = ""           // those that were set
	Silence   Answer = "silence"    // none
	Failure   Answer = "failure"    // SERVFAIL
	NoName    Answer = "no name"    // NXDOMAIN
	NoAddress Answer = "no address" // the name exists, and has no address
)

// Server answers questions about all names. Its zero value knows no address.
type Server struct {
	mu    sync.Mutex // guards what follows
	hosts map[string][]string
	how   map[string]how
	asked int
}

type how struct {
	answer Answer
	delay  time.Duration
}

// Is sets the addresses of a name, which ends with a dot, or with "" those of
// all names that have none.
func (s *Server) Is(name string, hosts ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hosts == nil {
		s.hosts = make(map[string][]string)
	}
	s.hosts[name] = hosts
}

// Answer sets how, and how late, questions about a name are answered from now
// on, or with "" those about all names for which this was not set.
func (s *Server) Answer(name string, answer Answer, delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.how == nil {
		s.how = make(map[string]how)
	}
	s.how[name] = how{answer, delay}
}

// Asked returns how many lookups of a name there were, answered or not.
func (s *Server) Asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// Resolver returns a resolver that asks the server.
func (s *Server) Resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go s.serve(theirs)
		return ours, nil
	}}
}

// init makes the runtime read its configuration outside of any bubble: what it
// creates for that belongs to the place where it was created.
func init() {
	s := &Server{}
	s.Is("", "10.0.0.1")
	_, _ = s.Resolver().LookupIPAddr(context.Background(), "zk.example.")
}

// serve answers one question, as a name server does over TCP.
func (s *Server) serve(conn net.Conn) {
	defer conn.Close()
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return
	}
	query := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, query); err != nil {
		return
	}
	name, how := s.ask(query)
	gone := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, conn)
		close(gone)
	}()
	var after <-chan time.Time
	if how.answer != Silence {
		after = time.After(how.delay)
	}
	select {
	case <-after:
		reply := s.reply(query, name, how.answer)
		_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...))
	case <-gone:
	}
}

// A message has a head of 12 bytes, then the question: a name, and 4 bytes that
// begin with its type.
const (
	head  = 12
	typeA = 1
	aaaa  = 28
)

// ask notes a question, and returns its name and how it is answered.
func (s *Server) ask(query []byte) (name string, h how) {
	label := query[head:]
	for ; label[0] != 0; label = label[1+label[0]:] {
		name += string(label[1:1+label[0]]) + "."
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if binary.BigEndian.Uint16(label[1:]) == typeA {
		s.asked++
	}
	h, ok := s.how[name]
	if !ok {
		h = s.how[""]
	}
	return name, h
}

func (s *Server) reply(query []byte, name string, answer Answer) []byte {
	end := head + slices.Index(query[head:], 0) + 1
	kind := binary.BigEndian.Uint16(query[end:])
	reply := slices.Clone(query[:end+4])
	reply[2] |= 0x80 // an answer
	reply[3] |= 0x80 // of a server that asks others
	clear(reply[6:head])
	s.mu.Lock()
	defer s.mu.Unlock()
	hosts, ok := s.hosts[name]
	if !ok {
		hosts = s.hosts[""]
	}
	switch answer {
	case Failure:
		reply[3] |= 2
	case NoName:
		reply[3] |= 3
	case Addresses:
		for _, host := range hosts {
			address := netip.MustParseAddr(host)
			if address.Is4() != (kind == typeA) || address.Is6() != (kind == aaaa) {
				continue
			}
			reply[7]++
			reply = append(reply, 0xc0, head) // the name of the question
			reply = binary.BigEndian.AppendUint16(reply, kind)
			reply = append(reply, 0, 1, 0, 0, 0, 0) // Internet, to be kept for no time
			reply = binary.BigEndian.AppendUint16(reply, uint16(len(address.AsSlice())))
			reply = append(reply, address.AsSlice()...)
		}
	}
	return reply
}
