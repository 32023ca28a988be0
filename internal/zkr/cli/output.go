package cli

import (
	"errors"
	"io"
	"slices"
	"sync"
	"time"
)

// lastWords is for how long zkr still prints after a signal has asked it to
// end.
const lastWords = time.Second

var errNobodyReads = errors.New("nobody reads what is printed")

// output is stdout or stderr. Its reader may be stuck, so a write fails
// lastWords after the channel of until is closed.
type output struct {
	io.Writer

	mu    sync.Mutex // guards what follows
	ended <-chan struct{}
	stuck bool // a write has not returned: there is no other beside it
}

// until makes writes fail after ended is closed. nil: they do not fail.
func (o *output) until(ended <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = ended
}

func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	ended, stuck := o.ended, o.stuck
	o.mu.Unlock()
	switch {
	case stuck:
		return 0, errNobodyReads
	case ended == nil:
		return o.Writer.Write(text)
	}
	type result struct {
		n   int
		err error
	}
	written := make(chan result, 1)
	text = slices.Clone(text)
	go func() { // ends when somebody reads, or with the process
		n, err := o.Writer.Write(text)
		written <- result{n, err}
	}()
	select {
	case r := <-written:
		return r.n, r.err
	case <-ended:
	}
	select {
	case r := <-written:
		return r.n, r.err
	case <-time.After(lastWords):
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stuck = true
	return 0, errNobodyReads
}
