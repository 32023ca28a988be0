/*
The heartbeat: with a healthy ensemble no lease is lost, and none is lost because
one member is.

Proves
    - While each round trip to the leader takes at most TRIP, the deadline stays
      further away than the stop margin: Lost is never closed, although a member
      may stop to make round trips at any time, and go on to answer pings. The
      client then reaches another one within DIAL (run held).
    - So it is for a lease that begins with from T/3 to 2/3 T ahead of it, after an
      idle time (run granted), and with WithProof(ProofWrite) (run write).
    - So it is with the longest stop margin, T/3 (run margin), and with the longest
      time that WithServerTick allows, T/2, and a stop margin of T/4 (run tick).
      Then the client has less time to reach another member.
    - If WithServerTick says that a tick is T/5, heartbeats are rarer, and the client
      has as much time as by default (run known).
    - A member that answers within TRIP is never left.

What is proven is that of deadline.pml. A heartbeat is two round trips, one after
the other. The first one reports each contact that was answered at least F before
it, and the second one proves these. One begins every (F + TRIP) / N, or every T/4 if
F + TRIP is no more. Here it is the whole of the client's clock: the heartbeats that
it sends, and when it leaves a member. It leaves one that has not answered a sync
for T/3, and where only T/6 is left until the stop margin, one that has not
answered for T/12.

Code
    in the model               | in the code
    client: sends              | internal/managed/proof/heartbeats.go: (*heartbeats).next, internal/managed/proof/heartbeats.go: (*heartbeats).begin, internal/managed/session/heartbeat.go: (*Session).sendHeartbeat
    client: has the first half | internal/managed/proof/proof.go: (*proof).count
    client: is answered        | internal/managed/session/heartbeat.go: (*Session).onHeartbeat, internal/managed/proof/proof.go: (*proof).answer
    INTERVAL, N                | internal/managed/proof/cadence.go: (*proof).interval
    early                      | internal/managed/proof/heartbeats.go: (*heartbeats).plan, internal/managed/proof/cadence.go: (*proof).reportable, internal/managed/proof/cadence.go: (*proof).usuallyLeft
    F                          | internal/managed/proof/proof.go: waitFor
    client: begins             | internal/managed/proof/heartbeats.go: (*heartbeats).planFirst, internal/managed/session/life.go: (*life).isFarAhead
    since                      | internal/managed/proof/silence.go: (*proof).silence
    impatient, hurry           | internal/managed/proof/silence.go: (*proof).patience
    client: leaves             | internal/managed/session/heartbeat.go: (*Session).checkClock, internal/managed/session/session.go: (*Session).suspend
    client: connects           | internal/managed/session/dial.go: (*Session).dial, internal/managed/link/connect.go: newLink
    client: is connected       | internal/managed/link/connect.go: (*Chain).onConnectAnswer, internal/managed/session/run.go: (*Session).onConnected
    Lost                       | internal/managed/proof/evidence.go: (*Evidence).Suffices, internal/managed/session/life.go: (*life).loseHolds

Bounds
    The unit of time is T/120, and all times are the client's. TRIP is 1: with a
    session timeout of 10s that is 83ms. In each run DIAL is the longest time for
    which no lease is lost: 1.6s in runs held and known, 1.2s in granted, 1.5s in
    write, 1s in margin, and 0.4s in tick. N is what the code computes for such
    round trips. The interval is rounded up. Rounding hides nothing else, as in
    deadline.pml. Members may stop as often as they like; with ProofWrite not
    before the first heartbeat on a connection was answered, since the connect
    proves nothing.

Leaves out
    - Heartbeats under way beside each other, and round trips that take longer or
      vary more. The tests of framework search these in virtual time:
      TestProveEndsAtEveryRoundTrip and TestSlowEnsemblesKeepTheirLeases.
    - Leases that begin after an idle time, in runs margin and tick: these follow a
      lease that begins with a connect.
    - Other requests. Writes and syncs are round trips too, and prove more. A
      heartbeat behind a request that takes long is not judged after T/3, but
      that request is after 2/3 T. Nor is the second half of a heartbeat
      counted as a contact.
    - Two members that fail at once, and a member that fails while the client
      connects to it.
    - Throttled heartbeats, which are sent again.

Runs
    run     | checks     | small                               | large
    held    | assertions | N=2 MARGIN=TENTH DIAL=19            | N=2 MARGIN=TENTH DIAL=19
    granted | assertions | N=2 MARGIN=TENTH DIAL=15 IDLE       | N=2 MARGIN=TENTH DIAL=15 IDLE
    write   | assertions | N=2 MARGIN=TENTH DIAL=18 WRITE      | N=2 MARGIN=TENTH DIAL=18 WRITE
    margin  | assertions | N=4 MARGIN=THIRD DIAL=12            | N=4 MARGIN=THIRD DIAL=12
    tick    | assertions | N=7 MARGIN=QUARTER DIAL=5 F=HALF    | N=7 MARGIN=QUARTER DIAL=5 F=HALF
    known   | assertions | N=2 MARGIN=TENTH DIAL=19 F=KNOWN    | N=2 MARGIN=TENTH DIAL=19 F=KNOWN

Broken
    variant          | run     | what is wrong
    BROKEN_STAY      | held    | The client leaves a member only when that closes the connection.
    BROKEN_NEXT_ONLY | held    | A heartbeat proves the one before it only, however short before.
    BROKEN_PATIENT   | granted | The client is as patient where T/6 is left as at other times.
    BROKEN_DEADLINE  | margin  | T/6 is counted until the deadline, not until the stop margin.
    BROKEN_FEW       | margin  | A heartbeat is sent every T/6, however long the stop margin is.
    BROKEN_ONE_HALF  | margin  | A heartbeat is one round trip, which proves what the one before it has reported.
    BROKEN_FAR       | margin  | It takes one unit longer to reach another member.
    BROKEN_TICK      | tick    | F is T/2, and N is chosen as if F were T/3.
    BROKEN_RARE      | known   | A heartbeat is sent every T/3, since F allows it.
    BROKEN_HASTY     | tick    | Where T/6 is left, the client leaves a member that has not answered yet.

Unreached
    where            | statement | why
    proctype Client  | -end-     | it never ends

Measured
    run     | bounds | states  | depth  | seconds
    held    | small  | 2,170   | 1,001  | 0.2
    granted | small  | 85,495  | 4,367  | 0.3
    write   | small  | 2,265   | 1,547  | 0.2
    margin  | small  | 5,079   | 1,917  | 0.2
    tick    | small  | 34,402  | 16,002 | 0.3
    known   | small  | 1,068   | 863    | 0.2
    held    | large  | 2,170   | 1,001  | 0.2
    granted | large  | 85,495  | 4,367  | 0.3
    write   | large  | 2,265   | 1,547  | 0.2
    margin  | large  | 5,079   | 1,917  | 0.2
    tick    | large  | 34,402  | 16,002 | 0.3
    known   | large  | 1,068   | 863    | 0.2
*/

#define T 120
#define TENTH 12
#define QUARTER 30
#define THIRD 40
#define HALF 60
#define SIXTH 20
#define KNOWN 27 /* F, where a tick is T/5 */

#define TRIP 1
#ifndef F
#define F THIRD
#endif
#if defined(BROKEN_FEW) || defined(BROKEN_TICK)
#undef N
#define N 2
#endif
#define LOST (T - MARGIN)
#if F + TRIP > T / 4
#define INTERVAL ((F + TRIP + N - 1) / N) /* rounded up */
#define REPORTED (F + TRIP) /* how old a contact usually is when a heartbeat begins that proves it */
#else
#ifdef BROKEN_RARE
#define INTERVAL THIRD
#else
#define INTERVAL (T / 4)
#endif
#define REPORTED INTERVAL
#endif
#ifdef BROKEN_FAR
#define WITHIN (DIAL + 1)
#else
#define WITHIN DIAL
#endif

/* Contacts that were answered and are not proven, the oldest first. More than are
   ever needed. */
#define CONTACTS (N + 5)
byte n;
byte sentAgo[CONTACTS];
byte answeredAgo[CONTACTS];
bool reported[CONTACTS];

byte proven;              /* how long ago the latest proven contact was sent */

mtype = { resting, beating, proving, dialing };
mtype client = resting;
byte last;                /* how long ago the latest heartbeat began, or the connection */
byte since;               /* since the request was sent that it waits for, or since it dials */
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

/* A heartbeat is sent earlier if it can report a contact and clearly less is left
   than usual. Only run granted needs that. */
#ifdef BROKEN_NEXT_ONLY
#define early false /* it proves nothing more */
#else
#define early (n > 0 && answeredAgo[0] >= F && proven >= REPORTED + INTERVAL + T / 24)
#endif
#define due (client == resting && (last >= INTERVAL || early))

#define waits (client == beating || client == proving)
#ifdef BROKEN_PATIENT
#define hurry false
#elif defined(BROKEN_DEADLINE)
#define hurry (proven >= T - SIXTH && since >= T / 12)
#elif defined(BROKEN_HASTY)
#define hurry (proven >= LOST - SIXTH)
#else
#define hurry (proven >= LOST - SIXTH && since >= T / 12)
#endif
#ifdef BROKEN_STAY
#define impatient false
#else
#define impatient (waits && (since >= THIRD || hurry))
#endif

active proctype Client() {
	byte i, j;
#ifdef IDLE /* the lease begins when the latest proof is so old; a ping came T/3 later */
	select(i : THIRD .. T - THIRD);
	atomic {
		proven = i;
		note(i - THIRD, i - THIRD);
		i = 0;
		printf("client: begins the lease; the latest proof is %d units old\n", proven)
	}
#endif
end:	do
	:: atomic { due ->
		client = beating;
		last = 0;
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
		printf("client: has the first half after %d units\n", since);
		since = 0 }
	:: atomic { client == proving && !cut ->
		prove();
		client = resting;
		first = false;
		printf("client: is answered after %d units; the latest proof is %d units old\n", since, proven);
		since = 0 }
	:: atomic { impatient ->
		assert(cut); /* a member that answers within TRIP is not left */
		client = dialing;
		last = 0;
		since = 0;
		forget_all();
		printf("client: leaves the member; the latest proof is %d units old\n", proven) }
	:: atomic { client == dialing ->
		cut = false;
		i = (since < TRIP -> since : TRIP); /* the connect takes so much of DIAL */
#ifdef WRITE
		note(i, 0);
		reported[n - 1] = true;
		first = true;
		client = proving; /* at once, and needs no first half */
#else
		proven = i;
		client = resting;
#endif
		i = 0;
		printf("client: is connected to another member %d units later\n", since);
		last = 0;
		since = 0 }
	/* The member stops, or loses its leader. */
	:: atomic { !cut && client != dialing && !first ->
		cut = true;
		printf("member: makes no more round trips, and answers pings\n") }

	/* Time passes while nothing is due. */
	:: atomic { !due &&
			!(waits && !cut && since == TRIP) &&
			!impatient &&
			!(client == dialing && since == WITHIN) ->
		proven++;
		last = (client == dialing || last >= INTERVAL -> last : last + 1);
		since = (client == resting -> 0 : since + 1);
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
