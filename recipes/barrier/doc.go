// Package barrier has barriers: a [Barrier] holds back all who wait until it is
// removed, and a [Double] lets n members begin together and end together.
//
//	d, err := barrier.NewDouble(client, "/jobs/nightly", 3)
//	if err != nil { ... }
//	inside, err := d.Enter(ctx)
//	if err != nil { ... }
//	// all three are here
//	err = inside.Leave(ctx) // all three have ended
//
// Both use the znodes of Apache Curator and of Kazoo, so members of all three
// can be in one barrier.
//
// # What is promised
//
//   - No member enters alone: a round is opened by one transaction that checks
//     the znodes of n members. A ready that a crashed round has left is told
//     from one of a round that goes on, without a clock, and is removed: see
//     ready.go.
//   - A member that has come once a round is open enters that round. So more
//     than n can be inside. It counts for no other round.
//   - Leave returns when all members of the round have left, or have died. The
//     barrier can be used again at once.
//   - An Enter that fails or is canceled leaves nothing. If no server answers
//     then, its znode counts for others until it is removed. So does that of a
//     process that has died, for a session timeout.
//   - A member that has lost its session is no longer inside, and Leave says
//     so. It is no lease: nothing tells the member meanwhile. For exclusion use
//     a lock.
//   - All must be allowed to read each other's znodes.
//
// # Beside Curator and Kazoo
//
// Their members keep their faults, also beside ours:
//
//   - A neighbor that comes before a ready was removed that a crash has left
//     passes at once.
//   - They count every znode in the directory, those of members that are about
//     to leave or were late as well.
//   - A member of Kazoo removes ready as soon as it leaves, while others are
//     inside. A member of ours that waits, and hears of ready only later, as
//     after a reconnect, is stranded until its context ends or another round
//     begins. One that comes then belongs to the next round. If it comes before
//     a member of the old round has called Leave, that waits for it.
//   - A member of Curator removes ready once all others have left. If it is
//     slow it removes that of the next round.
//
// # Costs
//
// The layout makes a herd: each member watches ready, and all but one watch the
// last one that leaves. A round of n members makes n events and n lists of n
// names to enter, and again n events and n lists for those who leave first and
// up to n events and n lists for the one that stays. So 100 members read about
// 30,000 names in a round. The transaction that opens the round names n znodes,
// which bounds n to some thousands: see framework.WithMaxRequest.
package barrier
