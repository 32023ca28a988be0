// Package wire encodes and decodes the ZooKeeper client protocol in both
// directions: frames, messages, operation codes and error codes.
//
// It works on slices. Encoding appends to a slice. Decoding reads a slice with
// a [Decoder], which checks every length and count against the bytes that are
// left before it allocates anything. So no message makes its reader allocate
// more than a small multiple of its size, and decoding never panics, whatever
// the bytes.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// MaxFrame is the size of the largest frame that a server accepts by default
// (its jute.maxbuffer). It closes a connection that sends a longer one.
const MaxFrame = 1<<20 - 1

// ErrMalformed is wrapped by every decoding error.
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

// AppendBuffer appends a length and the bytes. nil becomes the null buffer,
// with length -1.
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

// Decoder reads a message from a slice. After the first error every read
// returns the zero value, and Err returns that error. So a message is read
// field by field without checks, and the error is checked once at the end.
type Decoder struct {
	buf []byte
	err error
}

// NewDecoder returns a decoder of b. Its results may alias b.
func NewDecoder(b []byte) *Decoder { return &Decoder{buf: b} }

// Err returns the first error, nil if there was none. It wraps ErrMalformed.
func (d *Decoder) Err() error { return d.err }

// Len returns the number of bytes not yet read.
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
		d.fail("need %d bytes, have %d", n, len(d.buf))
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

// Buffer reads a buffer: nil for the null buffer. The result aliases the
// message.
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

// String reads a string: "" for the null string.
func (d *Decoder) String() string { return string(d.Buffer()) }

// Count reads the length of a vector whose elements take at least size bytes
// each: 0 for the null vector.
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

// Appender is a message, or part of one, that can be encoded.
type Appender interface {
	// Append appends the encoded message to b and returns the result, like
	// the built-in append.
	Append(b []byte) []byte
}

// Message is a message that can be encoded and decoded.
type Message interface {
	Appender
	// Decode decodes the message. Errors are left in d.
	Decode(d *Decoder)
}

// Unmarshal decodes one message from b. The message may alias b. Bytes after
// the message are ignored, as the server does.
func Unmarshal(b []byte, m Message) error {
	d := NewDecoder(b)
	m.Decode(d)
	return d.Err()
}

// AppendFrame appends one frame that contains the parts in order, usually a
// header and a body. A nil part is skipped.
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

// ReadFrame reads one frame of at most limit bytes and returns its payload, in
// buf if that is large enough. It returns io.EOF if the stream ends before the
// frame, io.ErrUnexpectedEOF if it ends inside the frame, and an error that
// wraps ErrMalformed if the length is negative or over the limit. In these
// cases it allocates nothing for the payload.
func ReadFrame(r io.Reader, limit int, buf []byte) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	return ReadPayload(r, head, limit, buf)
}

// ReadPayload is ReadFrame after the caller has read the four bytes of the
// length.
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
