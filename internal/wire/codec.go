// Package wire is the ZooKeeper client protocol, both directions of it: frames, messages, operation and error codes.
//
// It works on slices. Encoding appends to one; decoding walks one with a Decoder, which checks every length and every count
// against the bytes that are really there before it allocates anything, so that no message can make its reader allocate more
// than a small multiple of its own size. Decoding never panics, whatever the bytes.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// MaxFrame is the largest frame a server accepts (its jute.maxbuffer); a longer one makes it close the connection.
const MaxFrame = 1<<20 - 1

// ErrMalformed is what every error of decoding wraps.
var ErrMalformed = errors.New("wire: malformed message")

// AppendInt32 appends a big-endian int.
func AppendInt32(b []byte, v int32) []byte { return binary.BigEndian.AppendUint32(b, uint32(v)) }

// AppendInt64 appends a big-endian long.
func AppendInt64(b []byte, v int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }

// AppendBool appends one byte.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// AppendBuffer appends a length and the bytes; nil becomes the null buffer, length -1.
func AppendBuffer(b, v []byte) []byte {
	if v == nil {
		return AppendInt32(b, -1)
	}
	return append(AppendInt32(b, int32(len(v))), v...)
}

// AppendString appends a length and the bytes.
func AppendString(b []byte, v string) []byte { return append(AppendInt32(b, int32(len(v))), v...) }

// AppendStrings appends a count and the strings.
func AppendStrings(b []byte, v []string) []byte {
	b = AppendInt32(b, int32(len(v)))
	for _, s := range v {
		b = AppendString(b, s)
	}
	return b
}

// Decoder reads a message from a slice. The first thing that does not fit ends it: from then on every read returns the zero
// value, and Err says what was wrong. So a message is read field by field without looking, and judged at the end.
type Decoder struct {
	buf []byte
	err error
}

// NewDecoder returns a decoder of b. What it returns may alias b.
func NewDecoder(b []byte) *Decoder { return &Decoder{buf: b} }

// Err reports the first thing that was wrong, nil if nothing was. It wraps ErrMalformed.
func (d *Decoder) Err() error { return d.err }

// Len returns the number of bytes not read yet.
func (d *Decoder) Len() int { return len(d.buf) }

func (d *Decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
	}
	d.buf = nil
}

func (d *Decoder) take(n int) []byte {
	if d.err != nil {
		return nil
	}
	if len(d.buf) < n {
		d.fail("%d bytes wanted, %d left", n, len(d.buf))
		return nil
	}
	b := d.buf[:n:n]
	d.buf = d.buf[n:]
	return b
}

// Int32 reads an int.
func (d *Decoder) Int32() int32 {
	if b := d.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

// Int64 reads a long.
func (d *Decoder) Int64() int64 {
	if b := d.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// Bool reads one byte.
func (d *Decoder) Bool() bool {
	b := d.take(1)
	return b != nil && b[0] != 0
}

// Buffer reads a buffer, nil for the null one. The result aliases the message.
func (d *Decoder) Buffer() []byte {
	n := d.Int32()
	switch {
	case d.err != nil || n == -1:
		return nil
	case n < 0:
		d.fail("buffer of length %d", n)
		return nil
	case n == 0:
		return []byte{}
	}
	return d.take(int(n))
}

// String reads a string; the null one reads as "".
func (d *Decoder) String() string { return string(d.Buffer()) }

// Count reads the length of a vector whose elements take at least size bytes each; a null vector reads as empty.
func (d *Decoder) Count(size int) int {
	n := d.Int32()
	switch {
	case d.err != nil || n == -1:
		return 0
	case n < 0:
		d.fail("vector of length %d", n)
		return 0
	case int(n) > len(d.buf)/size:
		d.fail("vector of length %d in %d bytes", n, len(d.buf))
		return 0
	}
	return int(n)
}

// Strings reads a vector of strings.
func (d *Decoder) Strings() []string {
	n := d.Count(4)
	if n == 0 {
		return nil
	}
	v := make([]string, 0, n)
	for range n {
		v = append(v, d.String())
	}
	if d.err != nil {
		return nil
	}
	return v
}

// Appender is a message, or part of one, that can be written.
type Appender interface {
	// Append appends the encoded message to b and returns the result, as the built-in append does.
	Append(b []byte) []byte
}

// Message is a message that can be written and read.
type Message interface {
	Appender
	// Decode reads the message; what is wrong with it is left in d.
	Decode(d *Decoder)
}

// Unmarshal decodes one message from b, which it may go on to alias. Bytes behind the message are ignored, as the server does.
func Unmarshal(b []byte, m Message) error {
	d := NewDecoder(b)
	m.Decode(d)
	return d.Err()
}

// AppendFrame appends one frame that holds the parts one behind the other: a header and a body, usually. A nil part is skipped.
func AppendFrame(b []byte, parts ...Appender) []byte {
	at := len(b)
	b = AppendInt32(b, 0)
	for _, p := range parts {
		if p != nil {
			b = p.Append(b)
		}
	}
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}

// ReadFrame reads one frame of at most limit bytes and returns its payload, in buf if that is large enough. It returns io.EOF
// if the stream ends before a frame begins, io.ErrUnexpectedEOF if it ends inside one, and an error that wraps ErrMalformed for
// a length that is negative or over the limit; for those nothing is allocated.
func ReadFrame(r io.Reader, limit int, buf []byte) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	return ReadPayload(r, head, limit, buf)
}

// ReadPayload is ReadFrame for a reader that has the four bytes of the length already.
func ReadPayload(r io.Reader, head [4]byte, limit int, buf []byte) ([]byte, error) {
	n := int32(binary.BigEndian.Uint32(head[:]))
	if n < 0 || int(n) > limit {
		return nil, fmt.Errorf("%w: frame of length %d, the limit is %d", ErrMalformed, n, limit)
	}
	if cap(buf) < int(n) {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(r, buf); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return buf, nil
}
