// Package line is the algorithm of locks and elections: join a line, wait until
// no contender ahead conflicts, check that its znode is still in line in this
// session, hold, leave. What makes a recipe that recipe is its [Rule]. The
// package knows nothing of recipes, and only packages recipes and bridge import
// it.
//
// # Who does what
//
// A [Line] is a client, a directory, a rule and a [Config]. All Lines of one
// client over the same directory, kind and name share one local queue, where
// the goroutines of this process wait first; each Election has its own. The
// znode in line belongs to the queue, not to a goroutine: a caller that gives
// up does not cost the others their place.
//
//	caller           local queue             znode in line        ensemble
//	Acquire -------> waiter joins
//	                 acquisition begins ---> contender joins ---> create (and list)
//	                                         somebody is ahead -> watch, wait, list if needed
//	                 the first waiter <----- nobody is: a grant
//	<-- Share ------ chosen
//	Leave ---------------------------------> departs -----------> delete
//	                 acquisition begins, if somebody waits
//
// An acquisition is a goroutine. It exists only while a caller waits for a new
// znode. A [Share] is one caller's part of a grant; the znode goes with the
// last share, unless the grant serves another caller first.
//
// A local queue, its acquisition and its grants have sessions and paths in one
// view of the client, that of the first Line that used the queue. A share, and
// what a caller gets, is in the view of the caller's Line.
//
// # In which order to read it
//
// Package recipes calls in from its line.go, and makes a lease of the shares in
// lease.go.
//
//	line.go          a Line, Acquire; with config.go, rule.go, errors.go
//	registry.go      finds the local queue
//	localqueue.go    where callers wait; wait_error.go says what for
//	acquisition.go   takes a contender to the front of the line
//	contender.go     a znode in line; outlook.go: what it watches
//	grant.go         a znode that is first in line; its life in grant_state.go
//	share.go         one caller's part of it
//	departure.go     how a znode leaves the line
//	node_watch.go    how a holder learns that its znode is gone
//	revoke.go        or that somebody asks for its release
//	handoff.go       the next caller of this process; contention.go: when
//	linger.go        a grant without callers is kept
//	try.go           what only TryAcquire needs
//	permits.go       what only a semaphore needs
//	downgrade.go     what only a read/write lock needs
//	participants.go  who holds and who waits, in all processes
//
// # Serving other callers of the process
//
// When the last share of a grant is left, the next waiter may have the znode (a
// handoff), a later reader may share it, and it may linger for a later caller.
// The znode stays in line, so none of this touches exclusion. The question is
// for how long it keeps others in line waiting. A goroutine of the grant
// watches the directory, from when somebody first waits in-process, or
// immediately if the grant is to linger, until somebody is behind. Since a
// watch can be lost, it lists the directory every T/4 (T is the session
// timeout):
//
//	nobody is behind       -> served without limit, without a request
//	somebody is            -> Config.Handoffs more, for T at most
//	unknown, or older      -> neither served nor given up until a look at the line
//	than T/3                  is answered
//	not connected, or not  -> the znode leaves
//	proven
//
// Behind a grant by an event, which has seen no list, somebody counts as
// standing, until a look shows otherwise. It looks when it would leave for
// that.
//
// A znode that lingers leaves as soon as somebody joins the line. A try looks
// before it joins, so it finds the line busy where a znode of another process
// lingers.
//
// A grant is bound, and serves no other caller, once it has given out a guard
// or was downgraded: both rely on this very holder. While unrelated children,
// or contenders that share, come and go all the time, the watcher backs off
// between its looks, for T/40 at most, unless a caller waits for a look: no
// herd, but a newcomer may wait up to T/40 longer behind a znode that lingers.
//
// With two kinds of rule one local queue has several grants at the same time,
// and an acquisition while somebody waits. Where the name does not conflict
// with itself, all who wait when the znode is first are chosen together; for a
// later caller that may not share another contender joins the line. Where the
// rule has [Permits], the first in line waits for room and takes znodes
// elsewhere, which are granted; its own leaves the line in the same Multi:
// permits.go.
//
// # A release that is not waited for
//
// With Config.AsyncRelease a share has its result when Leave returns: nil if it
// was not lost before. The delete of the znode is on its way then, and the
// grant is no longer among those of its local queue. So the next acquisition
// begins without waiting. A session's requests are executed in order, so its
// contender normally does not find the old znode ahead. If the delete had to be
// sent again, it may: then it waits for that departure, and so does a try,
// which is not busy because of it. The registry has the departures that are
// under way. An acquisition notes them before each look at the line: the old
// znode may be gone when the answer is read. If that was alone in line when it
// was granted, and the new znode replaces it, the number of the new one can say
// that it is also alone: internal/managed/writes/replace.go. Then there is no
// list. If the delete fails, the session tries again, and the znode is like any
// other ahead. The old grant and the new one share nothing else.
//
// A contender departs when its last waiter gives up, even if its create is
// still under way. So a try that the same caller makes next is not busy because
// of it. EndLinger waits for all departures below a path.
//
// # After a loss
//
// The znode of a lost grant stays in line until its last share was left or the
// deadline known at the loss has passed, and is removed then if the session
// survived: nobody may be granted while the work is still stopping, nor be kept
// waiting for longer. An election keeps the znode until the work has returned,
// while the session lives (Rule.KeepUntilReleased).
//
// # What is guaranteed
//
//   - A grant is given out only after a list of the directory, made in the same
//     session after the create, showed its znode and nobody ahead that
//     conflicts, or after all of those were heard to leave while its znode
//     stood: outlook.go. The session is proven alive then, and its loss is
//     already being watched for.
//   - Callers of one local queue are served in the order in which they came.
//   - A caller that leaves early leaves no znode, no goroutine and no watch
//     behind that outlives the znode it watches.
//
// Less formally: the ensemble decides which process is next, this process
// decides which of its goroutines that is, and the clock can only make either
// of them stop earlier. A look at a grant does not show that others are
// excluded now: they are until the deadline that was known at the look.
package line
