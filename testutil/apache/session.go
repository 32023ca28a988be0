package apache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"time"
)

// session is a session connected to a member.
type session struct {
	id      int64
	timeout time.Duration
}

var errNoSession = errors.New("no such session")

// connection matches a line of the answer to `cons`:
// ...,sid=0x100000a1b2c0000,...,to=4000,...
var connection = regexp.MustCompile(`sid=0x([0-9a-f]+),.*\bto=([0-9]+)`)

func (p *process) sessions() ([]session, error) {
	if p.answering() == nil {
		return nil, errStopped
	}
	answer, err := p.ask("cons")
	if err != nil {
		return nil, err
	}
	var sessions []session
	for _, match := range connection.FindAllStringSubmatch(answer, -1) {
		id, err := strconv.ParseUint(match[1], 16, 64)
		if err != nil {
			return nil, err
		}
		timeout, err := strconv.Atoi(match[2])
		if err != nil {
			return nil, err
		}
		if id != 0 { // not yet connected, such as our own connection
			sessions = append(sessions, session{int64(id), time.Duration(timeout) * time.Millisecond})
		}
	}
	return sessions, nil
}

// errUnanswered is returned if closing a session was requested and not
// confirmed.
var errUnanswered = errors.New("no answer")

// attach takes a session over, which makes the server close the client's
// connection, and disconnects. If end is set it closes the session first. It
// sends both requests in one write, since the client may reconnect and take the
// session back.
func attach(address string, id int64, timeout time.Duration, end bool) error {
	const patience = 5 * time.Second
	conn, err := talkTo(address, patience)
	if err != nil {
		return err
	}
	defer conn.Close()
	var connect []byte
	connect = binary.BigEndian.AppendUint32(connect, 0) // protocol version
	connect = binary.BigEndian.AppendUint64(connect, 0) // last zxid seen
	connect = binary.BigEndian.AppendUint32(connect, uint32(timeout.Milliseconds()))
	connect = binary.BigEndian.AppendUint64(connect, uint64(id))
	password := sessionPassword(id)
	connect = binary.BigEndian.AppendUint32(connect, uint32(len(password)))
	connect = append(connect, password[:]...)
	connect = append(connect, 0) // not read-only
	requests := frame(connect)
	if end {
		const closeSession = 1<<32 - 11                  // -11
		request := binary.BigEndian.AppendUint32(nil, 1) // xid
		request = binary.BigEndian.AppendUint32(request, closeSession)
		requests = append(requests, frame(request)...)
	}
	if _, err := conn.Write(requests); err != nil {
		return err
	}
	answer, err := readFrame(conn)
	if err != nil {
		return fmt.Errorf("connect: %w: %w", errUnanswered, err)
	}
	if len(answer) < 16 {
		return fmt.Errorf("connect: answer of %d bytes is too short", len(answer))
	}
	if binary.BigEndian.Uint64(answer[8:]) == 0 {
		return errNoSession
	}
	if !end {
		return nil
	}
	if _, err := readFrame(conn); err != nil {
		return fmt.Errorf("close session: %w: %w", errUnanswered, err)
	}
	return nil
}

func frame(payload []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))), payload...)
}

func readFrame(conn net.Conn) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > 1<<20 {
		return nil, fmt.Errorf("frame of %d bytes is too long", n)
	}
	payload := make([]byte, n)
	_, err := io.ReadFull(conn, payload)
	return payload, err
}

// sessionPassword derives a session's password from its id, as the server does:
// 16 bytes of a java.util.Random, a linear congruential generator of 48 bits,
// seeded with the id and a well-known "secret".
func sessionPassword(id int64) (password [16]byte) {
	const (
		secret     = 0xB3415C00
		multiplier = 0x5DEECE66D
		mask       = 1<<48 - 1
	)
	state := (uint64(id) ^ secret ^ multiplier) & mask
	for i := 0; i < len(password); i += 4 {
		state = (state*multiplier + 0xB) & mask
		binary.LittleEndian.PutUint32(password[i:], uint32(state>>16))
	}
	return password
}
