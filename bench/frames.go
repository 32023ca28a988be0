package main

import (
	"encoding/binary"
	"net"
	"slices"
	"sync"
	"time"
)

// frames counts what clients send: each request, heartbeats and handshakes
// included, is a frame, which begins with its length.
type frames struct {
	mu      sync.Mutex // guards what follows
	began   time.Time  // zero: they do not count yet
	seconds []int64    // in each second since it began
}

// dial connects, and counts what is sent.
func (f *frames) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	return &countedConn{Conn: conn, frames: f}, nil
}

func (f *frames) count() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.began.IsZero() {
		return
	}
	second := int(time.Since(f.began) / time.Second)
	if second >= len(f.seconds) {
		f.seconds = slices.Grow(f.seconds, second+1-len(f.seconds))[:second+1]
	}
	f.seconds[second]++
}

// begin starts to count from 0.
func (f *frames) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.began, f.seconds = time.Now(), nil
}

// sum returns how many frames were sent since begin, and how many of them in
// the largest second.
func (f *frames) sum() (all, largest int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.seconds {
		all += n
		largest = max(largest, n)
	}
	return all, largest
}

// countedConn counts the frames that are written to it.
type countedConn struct {
	net.Conn
	frames *frames
	length []byte // of the next frame, as far as it was written
	rest   int    // of the current frame
}

// Write is called by one goroutine at a time. It counts first: what was
// received has been counted.
func (c *countedConn) Write(b []byte) (int, error) {
	for left := b; len(left) > 0; {
		if c.rest > 0 {
			skipped := min(c.rest, len(left))
			left, c.rest = left[skipped:], c.rest-skipped
			continue
		}
		c.length = append(c.length, left[0])
		if left = left[1:]; len(c.length) == 4 {
			c.rest = int(binary.BigEndian.Uint32(c.length))
			c.length = c.length[:0]
			c.frames.count()
		}
	}
	return c.Conn.Write(b)
}
