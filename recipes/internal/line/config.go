package line

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
)

// Config is what the options of every recipe have in common.
type Config struct {
	Data    []byte        // of the znode in line
	ACL     []zk.ACL      // of the znode in line; nil: the client's
	MaxHold time.Duration // 0: no limit
	// Handover is how often a znode that has its turn is handed over at home while
	// others stand in line; 0: never, not even while nobody does.
	Handover int
	// Linger is for how long it is kept after the last caller has left, while nobody
	// stands in line.
	Linger time.Duration
	// Closed is closed when nothing lingers any more; nil: never.
	Closed <-chan struct{}
	// StayUntilLeft keeps the znode of a hold that was lost, while its session
	// lives, until its last place has left, however long that takes. Otherwise it
	// goes at the deadline at the latest.
	StayUntilLeft bool
}

// DefaultHandover keeps others waiting for some milliseconds at most, where the work
// is short.
const DefaultHandover = 16

// lingers is for how long what is left now is kept.
func (c *Config) lingers() time.Duration {
	select {
	case <-c.Closed:
		return 0
	default:
		return c.Linger
	}
}

// validate checks what is to be used with a client that sends requests of at most
// maxRequest bytes.
func (c *Config) validate(maxRequest int) error {
	var errs []error
	if most := maxRequest - restOfRequest; len(c.Data) > most {
		errs = append(errs, fmt.Errorf("data of %d bytes: at most %d", len(c.Data), most))
	}
	if string(c.Data) == Revocation {
		errs = append(errs, fmt.Errorf("data %q: means a request to release", Revocation))
	}
	if c.ACL != nil && len(c.ACL) == 0 {
		errs = append(errs, errors.New("ACL: empty, nobody could remove the znode"))
	}
	if c.MaxHold < 0 {
		errs = append(errs, fmt.Errorf("longest hold %v: must not be negative", c.MaxHold))
	}
	if c.Handover < 0 {
		errs = append(errs, fmt.Errorf("handing over %d times: must not be negative", c.Handover))
	}
	if c.Linger < 0 {
		errs = append(errs, fmt.Errorf("linger %v: must not be negative", c.Linger))
	}
	return errors.Join(errs...)
}

// restOfRequest is the room that is left for all but the data in a request.
const restOfRequest = 4 << 10

// sameZnode reports whether both make the same znode. How long it may be held is
// each caller's own.
func (c *Config) sameZnode(other *Config) bool {
	return bytes.Equal(c.Data, other.Data) && slices.Equal(c.ACL, other.ACL)
}
