// Package hidden has options of testutil that only the tests of this module
// use: they make an embedded ensemble as slow, as uneven and as odd as a real
// one may be.
package hidden

import (
	"time"

	"github.com/zkrecipes/zkrecipes/internal/seam"
	"github.com/zkrecipes/zkrecipes/testutil"
)

var options = seam.Testutil.(interface {
	WithTouchDelays(delay func(member int) time.Duration) testutil.Option
	WithReportDelays(delay func(member int) time.Duration) testutil.Option
	WithSecondHop(member, through int) testutil.Option
	WithClockRates(rate func(session int64) float64) testutil.Option
	WithCommits(told func(zxid, session int64, op testutil.Op, path string, data []byte, owner int64)) testutil.Option
	WithoutLastingWatches() testutil.Option
	WithWatchPaths() testutil.Option
	WithStaleLists() testutil.Option
	Provisioned(s *testutil.Snapshot, by int64) *testutil.Snapshot
})

// WithTouchDelays makes followers report late to the leader which sessions they
// have heard from, as over a slow network. delay is called for each follower at
// each half tick, when the leader asks for that report, and returns how much
// later the question arrives. Whatever the leader sends after the question
// arrives after it: answers to writes and syncs wait. delay is called with the
// ensemble's lock held, so it must not call the ensemble. By default there is
// no delay.
func WithTouchDelays(delay func(member int) time.Duration) testutil.Option {
	return options.WithTouchDelays(delay)
}

// WithReportDelays makes those reports arrive late. delay is called when a
// follower sends one, and returns how long it is on its way. The requests that
// the follower forwards after it arrive after it. delay is called with the
// ensemble's lock held, so it must not call the ensemble. By default there is
// no delay.
func WithReportDelays(delay func(member int) time.Duration) testutil.Option {
	return options.WithReportDelays(delay)
}

// WithSecondHop connects a member to the others only through one of them, as an
// observer behind an ObserverMaster is. Its session reports pass through that
// member and wait there until the next half tick, so the leader may receive
// them a whole tick late. Requests are forwarded at once. While the member
// between is stopped, paused or cut off, so is this one. This one never leads.
// The ensemble needs at least three members.
func WithSecondHop(member, through int) testutil.Option {
	return options.WithSecondHop(member, through)
}

// WithClockRates sets how fast the members' clocks run compared with the clock
// of each session's client, as far as the session's timeout is concerned: at
// 1.1 a session of 11 s expires like one of 10 s. By default all clocks run
// alike. A rate of 0 or less counts as 1. rate is called with the ensemble's
// lock held, so it must not call the ensemble.
func WithClockRates(rate func(session int64) float64) testutil.Option {
	return options.WithClockRates(rate)
}

// WithCommits calls told with each operation of each write as it is committed,
// in order: with the transaction, the session that has asked for it, the path
// with the number of a sequential znode, and the data and the owner that the
// znode gets. The end of a session is a delete of each of its znodes. told is
// called with the ensemble's lock held, so it must not call the ensemble.
func WithCommits(told func(zxid, session int64, op testutil.Op, path string, data []byte, owner int64)) testutil.Option {
	return options.WithCommits(told)
}

// WithoutLastingWatches makes members refuse addWatch with code -5, as servers
// with the watch manager WatchManagerOptimized do. They do not close the
// connection.
func WithoutLastingWatches() testutil.Option { return options.WithoutLastingWatches() }

// WithWatchPaths makes an event carry the path of the watch that it has fired,
// as ClickHouse Keeper does for recursive watches, and not that of the znode
// that has changed.
func WithWatchPaths() testutil.Option { return options.WithWatchPaths() }

// WithStaleLists makes members forget, as those before 3.6 may after a restart,
// that a list of children has changed when one ended with its session: its
// pzxid stays as it was.
func WithStaleLists() testutil.Option { return options.WithStaleLists() }

// Provisioned returns what a rebuilt ensemble has when the script that has made
// the znodes of a snapshot has run there, after so many transactions more: the
// znodes that no session owns, with the ids of their transactions moved by
// that, at the present time and with other data.
func Provisioned(s *testutil.Snapshot, by int64) *testutil.Snapshot {
	return options.Provisioned(s, by)
}
