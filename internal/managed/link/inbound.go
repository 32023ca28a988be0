package link

import "encoding/binary"

// The wire client allocates whatever length a frame claims. These are more than
// any answer to a connect needs, and more than any other answer should need.
const (
	maxConnectAnswer = 1 << 10
	MaxAnswer        = 64 << 20 // bytes
)

// inbound cuts the stream of answers into frames, and keeps the head of the
// current one.
type inbound struct {
	head  [connectAnswerHead]byte
	have  int  // bytes of head
	body  int  // bytes of the frame after what head has, still to come
	later bool // the first frame, the connect answer, has been read
	seen  bool // this frame's head was passed to onHead
	check bodyCheck
}

// feed takes the next bytes, none of them beyond the present frame, and calls
// onHead when its head is complete. It reports false for a frame that must not
// reach the wire client, before the last byte of it does.
func (in *inbound) feed(p []byte, onHead func(head []byte, first bool) (body []field, ok bool)) bool {
	for len(p) > 0 {
		if want := in.want(); in.have < want {
			n := copy(in.head[in.have:want], p)
			in.have += n
			p = p[n:]
			if in.have < 4 {
				continue
			}
			if size := in.size(); size < 0 || size > in.limit() {
				return false
			}
			if in.have < in.want() {
				continue
			}
		}
		if !in.seen {
			in.seen = true
			in.body = 4 + in.size() - in.have
			body, ok := onHead(in.head[:in.have], !in.later)
			if !ok || !in.check.begin(body, in.body) {
				return false
			}
		}
		n := min(len(p), in.body)
		if !in.check.feed(p[:n]) {
			return false
		}
		p, in.body = p[n:], in.body-n
		if in.body <= 0 {
			in.have, in.seen, in.later = 0, false, true
		}
	}
	return true
}

// rest returns how many bytes of the present frame are still to come, as far as
// is known.
func (in *inbound) rest() int {
	switch {
	case in.have < 4:
		return 4 - in.have
	case in.seen:
		return in.body
	}
	return 4 + in.size() - in.have
}

func (in *inbound) size() int { return int(int32(binary.BigEndian.Uint32(in.head[:]))) }

func (in *inbound) limit() int {
	if in.later {
		return MaxAnswer
	}
	return maxConnectAnswer
}

// want returns how many bytes the head of the current frame has, as far as is
// known.
func (in *inbound) want() int {
	if in.have < 4 {
		return 4
	}
	whole := frameAnswerHead
	if !in.later {
		whole = connectAnswerHead
	}
	return min(whole, 4+in.size())
}
