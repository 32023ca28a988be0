package framework

import (
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
)

const (
	// defaultMaxRequest is the servers' default jute.maxbuffer: 1 MiB less a
	// byte.
	defaultMaxRequest = 1<<20 - 1
	// leastMaxRequest leaves room for a path, an ACL and some data.
	leastMaxRequest = 16 << 10
	// mostMaxRequest keeps what is written readable: no answer is longer than
	// maxAnswer.
	mostMaxRequest = maxAnswer / 2
)

// fits returns an error if a request whose body has size bytes is too large.
func (cfg *config) fits(size int) error { return request.Fits(size, cfg.maxRequest) }

// MaxRequest returns the size of the largest request that the client sends, in
// bytes: what WithMaxRequest has set, or its default.
func (c *Client) MaxRequest() int { return c.core().cfg.maxRequest }
