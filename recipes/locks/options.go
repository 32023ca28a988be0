package locks

import (
	"bytes"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
)

// Option configures a recipe of this package. A bad value is an error of its
// constructor.
type Option func(*config)

type config struct {
	line.Config
}

func newConfig(opts []Option) config {
	var cfg config
	for _, opt := range opts {
		opt(&cfg)
	}
	return cfg
}

// WithData sets the data of the znode in line, by which others see who it is.
// Default: none.
func WithData(data []byte) Option {
	data = bytes.Clone(data)
	return func(c *config) { c.Data = data }
}

// WithACL sets the ACL of the znode in line; its directories have the client's.
// Default: the client's.
func WithACL(acl ...zk.ACL) Option {
	return func(c *config) { c.ACL = append([]zk.ACL{}, acl...) }
}

// WithMaxHold sets for how long a lease, with all that re-enters it, is held at
// most: it is declared lost then, with ErrMaxHold, and its znode removed when it is
// released, or else at the deadline that the session has by then, at most a
// session time-out later. Default 0: for as long as the session lives.
func WithMaxHold(d time.Duration) Option { return func(c *config) { c.MaxHold = d } }
