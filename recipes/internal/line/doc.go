// Package line is the one algorithm behind every recipe: join a line, wait until
// nobody I must wait for is ahead, check that I am still in it in this session,
// hold, leave. What makes a recipe that recipe is its [Rule]. The package knows
// nothing of recipes.
//
// # Who does what
//
// A [Line] is what a recipe's value is made of: a client, a directory, a rule and
// a [Config]. All lines of one client over the same directory and rule share one
// gate, where the goroutines of this process queue first. The znode in line
// belongs to the gate, not to a goroutine: a caller that gives up does not cost
// the others their turn.
//
//	caller          gate                    znode in line        ensemble
//	Wait ---------> waiter queued
//	                driver started -------> contender joins ---> create (and list)
//	                                        it is not first ---> watch, list, ...
//	                the first waiter <----- it is first: a hold
//	<-- Place ----- chosen
//	Leave --------------------------------> removed -----------> delete
//	                driver started, if somebody waits
//
// The driver is a goroutine that exists only while somebody waits and nobody of
// this process holds; drive.go is its program. A hold is a znode that has its
// turn; a [Place] is one caller's share of it, and the znode goes with the last
// one, unless the hold serves another first.
//
// # Serving others at home
//
// When the last place on a hold leaves, the next waiter at home may have the znode,
// a later reader may share it, and it may linger for who comes next:
// handover.go. The znode stands all the while, so none of this touches exclusion;
// the question is for how long those behind it are kept waiting. A goroutine beside
// the hold watches the directory, from when somebody first waits at home, or at once
// if the hold is to linger, until somebody stands behind; since a watch can be lost,
// it lists it every T/4:
//
//	nobody stands behind   -> served without limit, at the cost of no request
//	somebody does          -> Config.Handover more, for a session time-out at most
//	not known, or not      -> neither served nor given up until a look at the line
//	known freshly (T/3)       is answered
//	not connected          -> the znode leaves
//
// What lingers leaves as soon as somebody joins the line. A try looks before it joins,
// and must not join behind what is in use; so a znode that may linger says so in its
// name, is written once when it lingers for the first time, and once more when it has
// to refuse a try: invite.go.
//
//	try                       what lingers, elsewhere
//	list, read it  ---------> has it lingered? no: ErrBusy
//	join, watch it ---------> sees that somebody has come
//	granted        <--------- idle: it leaves
//	ErrBusy        <--------- in use again: it writes
//	ErrBusy                   no answer in T/3
//
// A hold is bound, and serves nobody else, once it has given out a guard or a read
// stands beside it: both rely on this very holder. While strangers to the line, or
// others who share, come and go all the time, the goroutine rests between its looks,
// for T/40 at most, unless somebody waits for one: no herd, but one who comes then
// waits for so much longer behind what lingers.
//
// Two kinds of rule have several holds at once in one gate, and a driver beside
// them while somebody waits. Where the rule's mode is Shared, all who wait at home
// when the turn comes are chosen together, and who comes later and may not share it
// stands in line anew. Where the rule has a [Take], the first in line waits for room
// and takes znodes elsewhere, which hold; its own leaves the line in the same Multi:
// take.go.
//
// # The life of a hold
//
//	   +----> idle: it serves the next, or lingers
//	   |       |
//	   | <-----+----------------------+
//	   |     Leave, the last Place    v     the delete was answered
//	held ------------------------> leaving ----------------------> left
//	  |                               |
//	  | the session cannot be proven  | session lost, or the znode
//	  | alive, the znode was deleted, | was not there any more
//	  | MaxHold, Close                v
//	  +----------------------------> lost
//
// Lost is final, whatever becomes of the session: what was told to stop has
// stopped, or is about to. The znode of a lost hold stays in line until its last
// Place has left or the deadline known at the loss has passed, and is removed
// then if the session survived: nobody may be let in while the work is still
// stopping, nor be kept out for longer.
//
// # What is guaranteed
//
//   - A hold is given out only after a list of the directory, made in the same
//     session after the create, showed the own znode and nobody to wait for. By
//     then the session is proven alive and its loss is already being watched for.
//   - Callers of one gate are served in the order in which they came.
//   - Whoever leaves early leaves no znode, no goroutine and no watch behind that
//     outlives the znode it watches.
//
// Less formally: the ensemble decides who is next, this process decides which of
// its goroutines that is, and the clock can only make either of them stop earlier.
// It must not be concluded that a hold excludes others at the instant of any look
// at it: it excludes others until its deadline, as far as was known then.
package line
