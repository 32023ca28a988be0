/*
The heartbeat: with a healthy ensemble no lease is lost, and none is lost because
one member is.

Proves
    - While each round trip to the leader takes at most TRIP, the deadline stays
      further away than the stop margin: Lost is never closed, although a member
      may stop to make round trips at any time, and go on to answer pings. The
      client then reaches another one within DIAL (run held).
    - So it is for a lease that begins with T/3 ahead of it, after an idle time
      (run granted), with WithProof(ProofWrite) (run write), and with the longest
      time that WithServerTick allows (run tick).

What is proven is that of deadline.pml. A heartbeat is two round trips, one after
the other. The first one reports each contact that was answered at least F before
it, and the second one proves these. Here it is the whole of the client's clock:
the heartbeats that it sends, and when it leaves a member.

Code
    in the model               | in the code
    client: sends              | framework/heartbeat.go: (*session).beatLocked, framework/heartbeat.go: (*session).sendHeartbeat
    client: has the first half | framework/proof.go: (*proof).count
    client: is answered        | framework/heartbeat.go: (*session).onHeartbeat, framework/proof.go: (*proof).answer
    INTERVAL, PATIENCE         | framework/heartbeat.go: (*session).beatLocked
    F                          | framework/proof.go: newProof
    client: leaves             | framework/heartbeat.go: (*session).beatLocked, framework/heartbeat.go: (*session).checkClock, framework/session_core.go: (*session).suspend
    client: connects           | framework/dial.go: (*session).dial, framework/link.go: newLink
    client: is connected       | framework/session_core.go: (*session).onConnectAnswer, framework/session_core.go: (*session).onConnected
    Lost                       | framework/heartbeat.go: (*session).whyUnprovenLocked, framework/heartbeat.go: (*session).loseHolds

Bounds
    The unit of time is T/120, and all times are the client's. TRIP is 1 and DIAL
    is 3: with a session timeout of 10s that is 83ms and 250ms. There is little
    more: from the last proof that a failing member lets through, 5/6 of T and
    up to four round trips pass until the client leaves it, and the stop margin
    begins after 9/10 of T. So BROKEN_SLOW is refuted. Rounding hides nothing,
    as in deadline.pml. Members may stop as often as they like; with ProofWrite
    not before the first heartbeat on a connection was answered, since the
    connect proves nothing.

Leaves out
    - Other requests, which prove more: writes and syncs are round trips too. Nor
      is the second half of a heartbeat counted as a contact.
    - Two members that fail at once, and a member that fails while the client
      connects to it.
    - Throttled heartbeats, which are sent again.

Runs
    run    | checks     | small                                   | large
    held   | assertions | INTERVAL=SIXTH PATIENCE=THIRD           | INTERVAL=SIXTH PATIENCE=THIRD
    granted | assertions | INTERVAL=SIXTH PATIENCE=THIRD START=80 | INTERVAL=SIXTH PATIENCE=THIRD START=80
    write  | assertions | INTERVAL=SIXTH PATIENCE=THIRD WRITE     | INTERVAL=SIXTH PATIENCE=THIRD WRITE
    tick   | assertions | INTERVAL=SIXTH PATIENCE=SIXTH F=HALF    | INTERVAL=SIXTH PATIENCE=SIXTH F=HALF

Broken
    variant           | run  | what is wrong
    BROKEN_STAY       | held | The client leaves a member only when that closes the connection.
    BROKEN_PATIENCE   | held | The client leaves a member T/2 after it has sent a heartbeat.
    BROKEN_INTERVAL   | held | While a lease is held a heartbeat is sent each T/3 only.
    BROKEN_NEXT_ONLY  | held | A heartbeat proves the one before it only, however short before.
    BROKEN_ONE_HALF   | held | A heartbeat is one round trip, which proves what the one before it has reported.
    BROKEN_PATIENT    | granted | The client is as patient where T/6 is left as at other times.
    BROKEN_SLOW       | held | A round trip takes three units.
    BROKEN_TICK       | tick | F is T/2, and a member is left after T/3 as if F were T/3.

Unreached
    where            | statement | why
    proctype Client  | -end-     | it never ends

Measured
    run    | bounds | states | depth | seconds
    held   | small  | 2,926  | 1,890 | 0.1
    granted | small | 3,207  | 1,803 | 0.1
    write  | small  | 2,464  | 1,974 | 0.1
    tick   | small  | 4,126  | 2,948 | 0.1
    held   | large  | 2,926  | 1,890 | 0.1
    granted | large | 3,207  | 1,803 | 0.1
    write  | large  | 2,464  | 1,974 | 0.1
    tick   | large  | 4,126  | 2,948 | 0.1
*/

#define T 120
#define HALF 60
#define THIRD 40
#define SIXTH 20
#define LOST (T - T / 10)

#ifdef BROKEN_SLOW
#define TRIP 3
#else
#define TRIP 1
#endif
#define DIAL 3
#ifndef F
#define F THIRD
#endif
#ifdef BROKEN_PATIENCE
#undef PATIENCE
#define PATIENCE HALF
#endif
#ifdef BROKEN_INTERVAL
#undef INTERVAL
#define INTERVAL THIRD
#endif
#ifdef BROKEN_TICK
#undef PATIENCE
#define PATIENCE THIRD
#endif

/* Contacts that were answered and are not proven, the oldest first. One more than
   are ever needed. */
#define CONTACTS 5
byte n;
byte sentAgo[CONTACTS];
byte answeredAgo[CONTACTS];
bool reported[CONTACTS];

byte proven;              /* how long ago the latest proven contact was sent */

mtype = { resting, beating, proving, dialing };
mtype client = resting;
byte since;               /* since the first half was answered, or since what it does began */
byte took;                /* the first half */
bool cut;                 /* its member makes no round trips */
bool first;               /* ProofWrite: the first heartbeat after a connect */

/* The first half, sent since units ago, is answered. */
inline report() {
	i = 0;
	do
#ifdef BROKEN_NEXT_ONLY
	:: i < n -> reported[i] = (i == n - 1 && answeredAgo[i] >= since + F); i++
#else
	:: i < n -> reported[i] = (reported[i] || answeredAgo[i] >= since + F); i++
#endif
	:: i == n -> break
	od;
	i = 0
}

/* The second half is answered, or with BROKEN_ONE_HALF the only one. */
inline prove() {
	i = n;
	do
	:: i > 0 && !reported[i - 1] -> i--
	:: i == 0 -> break
	:: i > 0 && reported[i - 1] ->
		proven = (sentAgo[i - 1] < proven -> sentAgo[i - 1] : proven);
		forget(i);
		break
	od;
	i = 0
}

/* Forgets the i oldest contacts. */
inline forget(i) {
	j = 0;
	do
	:: j + i < n ->
		sentAgo[j] = sentAgo[j + i];
		answeredAgo[j] = answeredAgo[j + i];
		reported[j] = reported[j + i];
		j++
	:: else -> break
	od;
	do
	:: j < n -> sentAgo[j] = 0; answeredAgo[j] = 0; reported[j] = false; j++
	:: else -> break
	od;
	n = n - i;
	j = 0
}

inline forget_all() {
	do
	:: n > 0 -> n--; sentAgo[n] = 0; answeredAgo[n] = 0; reported[n] = false
	:: else -> break
	od
}

inline note(sent, answered) {
	assert(n < CONTACTS);
	sentAgo[n] = sent;
	answeredAgo[n] = answered;
	n++
}

#define due (since >= INTERVAL)
/* The client leaves a member earlier where little is left. Only run granted needs
   that. */
#if !defined(START) || defined(BROKEN_PATIENT)
#define hurry false
#else
#define hurry (proven >= T - SIXTH && took + since >= SIXTH / 2)
#endif
#define impatient ((client == beating || client == proving) && (took + since >= PATIENCE || hurry))
#ifdef BROKEN_STAY
#define leaves false
#else
#define leaves true
#endif

active proctype Client() {
	byte i, j;
#ifdef START /* the latest proof is so old; the ping after it can be reported now */
	proven = START;
	note(START - THIRD, F);
	client = beating;
#endif
end:	do
	:: atomic { client == resting && due ->
		client = beating;
		since = 0;
		printf("client: sends a heartbeat; the latest proof is %d units old\n", proven) }
	:: atomic { client == beating && !cut ->
#ifdef BROKEN_ONE_HALF
		prove();
		client = resting;
		first = false;
#else
		client = proving;
#endif
		report();
		note(since, 0);
		took = since;
		printf("client: has the first half after %d units\n", since);
		since = 0 }
	:: atomic { client == proving && !cut ->
		prove();
		client = resting;
		took = 0;
		first = false;
		printf("client: is answered after %d units; the latest proof is %d units old\n", since, proven) }
#ifndef BROKEN_STAY
	:: atomic { impatient ->
		client = dialing;
		took = 0;
		since = 0;
		forget_all();
		printf("client: leaves the member; the latest proof is %d units old\n", proven) }
#endif
	:: atomic { client == dialing ->
		cut = false;
		i = (since < TRIP -> since : TRIP); /* the connect takes so much of DIAL */
		note(i, 0);
#ifdef WRITE
		reported[n - 1] = true;
		first = true;
		client = proving; /* at once, and needs no first half */
#else
		proven = i;
		client = resting;
#endif
		i = 0;
		printf("client: is connected to another member %d units later\n", since);
		since = 0 }
	/* The member stops, or loses its leader. */
	:: atomic { !cut && client != dialing && !first ->
		cut = true;
		printf("member: makes no more round trips, and answers pings\n") }

	/* Time passes while nothing is due. */
	:: atomic { !(client == resting && due) &&
			!((client == beating || client == proving) && !cut && since == TRIP) &&
			!(impatient && leaves) &&
			!(client == dialing && since == DIAL) ->
		proven++;
		since++;
		i = 0;
		do
		:: i < n -> sentAgo[i]++; answeredAgo[i]++; i++
		:: else -> break
		od;
		i = 0;
		printf("    (a unit of time passes)\n");
		assert(proven < LOST) }
	od
}
