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
//   - No member enters alone. One transaction checks the znodes of n members
//     and opens the round: it creates <path>/ready, which exists until the
//     round ends. If a crashed round has left its ready behind, the next member
//     recognizes that without a clock and removes it: see ready.go.
//   - A member that comes while a round is open enters that round, and counts
//     for no other one. So more than n members can be inside.
//   - Leave returns when all members of the round have left, or have died. The
//     barrier can be used again at once.
//   - An Enter that fails or is canceled leaves nothing. If no server answers
//     at that time, other members count its znode until it is removed. The
//     znode of a process that has died counts for up to one session timeout.
//   - A member that has lost its session is no longer inside. Only Leave
//     reports that. For exclusion use a lock.
//   - Only an ephemeral znode counts as a member. Members of this library count
//     nothing else in the directory, such as a persistent znode of another
//     program.
//   - Every member must be allowed to read all znodes in the directory.
//
// # Beside Curator and Kazoo
//
// Members of Curator and Kazoo keep these faults in a shared barrier:
//
//   - If a crash has left a ready behind, a neighbor that comes before it is
//     removed passes at once.
//   - Neighbors count every znode in the directory, including those of members
//     that are leaving or came late.
//   - A member of Kazoo removes ready as soon as it leaves, while others are
//     inside. If one of our members is waiting and misses ready, for example
//     during a reconnect, it waits until its context ends or another round
//     begins. A member that comes now belongs to the next round. Later, Leave
//     in the old round also waits for that member.
//   - A member of Curator removes ready when all others have left. If it is
//     slow, it removes the ready of the next round.
//
// # Costs
//
// A round is expensive (a thundering herd): all members watch ready, and all
// but one watch the member that leaves last. To enter, a round of n members
// makes n events and n lists of n names. To leave, it makes up to twice as
// many. A list costs one more request if it has names that are not of this
// library, or, when the round begins, if it has n names. That request reads
// those znodes. So 100 members read about 30,000 names in a round. The
// transaction that opens the round names n znodes, which limits n to some
// thousands: see framework.WithMaxRequest.
package barrier
