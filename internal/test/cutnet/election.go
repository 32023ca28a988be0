package cutnet

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"strings"
)

// A member of an ensemble that calls a member with a greater id for an election
// begins with a message that says where it can be called back, and is called
// back there. It names its own address, which no relay stands before. So the
// relay replaces that address.
//
// The message is a version, the caller's id, a length, and addresses separated
// by "|". Nothing else that is said to a member begins with the byte 0xff.

// introduce returns what from says to to, with the addresses of that message
// replaced by those at which to reaches from.
func (n *Relays) introduce(from, to int, in io.Reader) io.Reader {
	r := bufio.NewReader(in)
	if first, err := r.Peek(1); err != nil || first[0] != 0xff {
		return r
	}
	const head = 8 + 8 + 4
	message := make([]byte, head)
	if k, err := io.ReadFull(r, message); err != nil {
		return bytes.NewReader(message[:k])
	}
	size := binary.BigEndian.Uint32(message[head-4:])
	const longest = 4096
	if size > longest {
		return io.MultiReader(bytes.NewReader(message), r)
	}
	named := make([]byte, size)
	if k, err := io.ReadFull(r, named); err != nil {
		return bytes.NewReader(append(message, named[:k]...))
	}
	addresses := strings.Split(string(named), "|")
	for i, address := range addresses {
		if relayed, err := n.Address(to, from, address); err == nil {
			addresses[i] = relayed
		}
	}
	text := strings.Join(addresses, "|")
	message = append(binary.BigEndian.AppendUint32(message[:head-4], uint32(len(text))), text...)
	return io.MultiReader(bytes.NewReader(message), r)
}
