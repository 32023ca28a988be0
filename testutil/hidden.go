package testutil

import (
	"time"

	"github.com/zkrecipes/zkrecipes/internal/seam"
)

func init() { seam.Testutil = forTests{} }

// forTests makes the options that only the tests of this module use: the
// package internal/test/hidden says what each does.
type forTests struct{}

func (forTests) WithTouchDelays(delay func(member int) time.Duration) Option {
	return func(c *config) { c.touchDelay = delay }
}

func (forTests) WithReportDelays(delay func(member int) time.Duration) Option {
	return func(c *config) { c.reportDelay = delay }
}

func (forTests) WithSecondHop(member, through int) Option {
	return func(c *config) {
		if c.secondHops == nil {
			c.secondHops = map[int]int{}
		}
		c.secondHops[member] = through
	}
}

func (forTests) WithClockRates(rate func(session int64) float64) Option {
	return func(c *config) { c.clockRate = rate }
}

func (forTests) WithCommits(told func(zxid, session int64, op Op, path string, data []byte, owner int64)) Option {
	return func(c *config) { c.committed = told }
}

func (forTests) WithoutLastingWatches() Option { return func(c *config) { c.oneShotOnly = true } }

func (forTests) WithWatchPaths() Option { return func(c *config) { c.watchPaths = true } }

func (forTests) Provisioned(s *Snapshot, by int64) *Snapshot { return s.provisioned(by) }

func (forTests) WithStaleLists() Option { return func(c *config) { c.staleLists = true } }
