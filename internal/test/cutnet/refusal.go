package cutnet

import "encoding/binary"

// Offsets and flags of the headers of IPv4 and TCP.
const (
	ipHeader    = 20
	tcpHeader   = 20
	ipProtocol  = 9
	ipChecksum  = 10
	ipSource    = 12
	tcpSeq      = 4
	tcpAck      = 8
	tcpFlags    = 13
	tcpChecksum = 16

	protocolTCP = 6
	flagFIN     = 1
	flagSYN     = 2
	flagRST     = 4
	flagACK     = 16
)

// refusal returns what a firewall answers to a TCP packet that it refuses: a
// reset that the sender takes for the other side's. It returns nil if nothing
// is answered.
func refusal(packet []byte) []byte {
	head := int(packet[0]&0xf) * 4
	if len(packet) < head+tcpHeader || packet[ipProtocol] != protocolTCP {
		return nil
	}
	said := packet[head:]
	flags := said[tcpFlags]
	if flags&flagRST != 0 {
		return nil
	}
	answer := make([]byte, ipHeader+tcpHeader)
	answer[0] = 4<<4 | ipHeader/4
	binary.BigEndian.PutUint16(answer[2:], uint16(len(answer)))
	answer[8], answer[ipProtocol] = 64, protocolTCP // it may pass 64 routers
	copy(answer[ipSource:], packet[ipSource+4:ipSource+8])
	copy(answer[ipSource+4:], packet[ipSource:ipSource+4])
	tcp := answer[ipHeader:]
	copy(tcp[0:], said[2:4]) // the ports
	copy(tcp[2:], said[0:2])
	tcp[12] = tcpHeader / 4 << 4
	if flags&flagACK != 0 {
		tcp[tcpFlags] = flagRST
		copy(tcp[tcpSeq:], said[tcpAck:tcpAck+4])
	} else {
		size := uint32(len(said) - int(said[12]>>4)*4)
		if flags&(flagSYN|flagFIN) != 0 {
			size++
		}
		tcp[tcpFlags] = flagRST | flagACK
		binary.BigEndian.PutUint32(tcp[tcpAck:], binary.BigEndian.Uint32(said[tcpSeq:])+size)
	}
	binary.BigEndian.PutUint16(answer[ipChecksum:], checksum(answer[:ipHeader], 0))
	pseudo := uint32(protocolTCP + tcpHeader) // with the two addresses
	for i := ipSource; i < ipHeader; i += 2 {
		pseudo += uint32(binary.BigEndian.Uint16(answer[i:]))
	}
	binary.BigEndian.PutUint16(tcp[tcpChecksum:], checksum(tcp, pseudo))
	return answer
}

// checksum returns the Internet's checksum of an even number of bytes.
func checksum(b []byte, sum uint32) uint16 {
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
