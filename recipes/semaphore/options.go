package semaphore

import (
	"bytes"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
)

// Option configures a Semaphore. A bad value is an error of New.
type Option func(*config)

type config struct {
	line.Config
	adopt bool
}

func newConfig(opts []Option) config {
	var cfg config
	for _, opt := range opts {
		opt(&cfg)
	}
	return cfg
}

// WithRecordedLimit has the limit that is recorded at the path hold, whatever this
// process was made with: its own number counts only where none is recorded. Default:
// another number is ErrLimit.
func WithRecordedLimit() Option { return func(c *config) { c.adopt = true } }

// WithData sets the data of the znodes in line and of the permits, by which others
// see who it is. Default: none.
func WithData(data []byte) Option {
	data = bytes.Clone(data)
	return func(c *config) { c.Data = data }
}

// WithACL sets the ACL of the znodes in line and of the permits; their directories
// have the client's. Default: the client's.
func WithACL(acl ...zk.ACL) Option {
	return func(c *config) { c.ACL = append([]zk.ACL{}, acl...) }
}

// WithMaxHold sets for how long a lease is held at most: it is declared lost then,
// with recipes.ErrMaxHold, and its permits go when it is released, or else at the
// deadline that the session has by then, at most a session time-out later. Default
// 0: for as long as the session lives.
func WithMaxHold(d time.Duration) Option { return func(c *config) { c.MaxHold = d } }
