package line

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/identity"
	"github.com/zkrecipes/zkrecipes/internal/least"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
)

// Config is what the options of a line set.
type Config struct {
	Data    []byte        // of the znode in line
	ACL     []zk.ACL      // of the znode in line; nil: the client's
	MaxHold time.Duration // 0: no limit
	// Handoffs is how often a znode is handed off in-process while others wait in
	// line; 0: never hand off.
	Handoffs int
	// Linger is for how long a znode is kept after its last release, while nobody
	// else is in line.
	Linger time.Duration
	// AsyncRelease has neither Left nor the next caller of the local queue wait
	// until the znode is removed.
	AsyncRelease bool
	// StopLinger is closed when lingering must stop; nil: never.
	StopLinger <-chan struct{}
}

// DefaultHandoffs keeps others waiting for some milliseconds at most, where the
// work is short.
const DefaultHandoffs = 16

// lingerNow returns for how long a znode that is released now is kept.
func (c *Config) lingerNow() time.Duration {
	if closed.Is(c.StopLinger) {
		return 0
	}
	return c.Linger
}

// validate checks what is to be used with a client that sends requests of at
// most maxRequest bytes.
func (c *Config) validate(maxRequest int) error {
	var errs []error
	if most := maxRequest - restOfRequest; len(c.Data) > most {
		errs = append(errs, fmt.Errorf("data of %d bytes: must be at most %d", len(c.Data), most))
	}
	if identity.IsRequest(c.Data) {
		errs = append(errs, fmt.Errorf("data %q: means a request to release", c.Data))
	}
	if c.ACL != nil && len(c.ACL) == 0 {
		errs = append(errs, errors.New("ACL: empty, nobody could remove the znode"))
	}
	errs = append(errs, least.OrZero("maximum hold time", c.MaxHold, time.Millisecond), least.OrZero("linger", c.Linger, time.Millisecond))
	if c.Handoffs < 0 {
		errs = append(errs, fmt.Errorf("%d handoffs: must not be negative", c.Handoffs))
	}
	return oneline.Join(errs...)
}

// restOfRequest is the room that is left for all but the data in a request.
const restOfRequest = 4 << 10

// sameZnode reports whether both make the same znode. For how long it may be
// held is each caller's own choice.
func (c *Config) sameZnode(other *Config) bool {
	return bytes.Equal(c.Data, other.Data) && slices.Equal(c.ACL, other.ACL)
}
