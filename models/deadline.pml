/*
The deadline of a lease: until then no leader has expired the client's session.

Proves
    - While a request of the client is proven and T has not passed since it was
      sent, no leader has expired the session (run follower). It does not matter
      that the round trip is made over a later connection than the contact: that
      begins with a connect, which the leader validates. (The code does not count
      such a round trip.)
    - So it is with WithProof(ProofWrite) beside a leader that has lost its
      quorum and does not know it (run write).
    - If the client's clock goes wrong by one unit in twelve, slow or fast, that
      holds until the stop margin, at which Lost is closed (run rates).
    - It does not matter how long messages between members take, since a proof
      has two round trips: R0, sent at least F after the contact was answered, and
      R1, sent after R0 was answered.
    - Behind an observer master it holds if F is longer than a whole tick by more
      than the master's question and the observer's report take together (run
      observer). How long the leader's question takes does not matter.
    - So it is with a shorter F, where WithServerTick says how long a tick is
      (run known).
    - Where members grant different timeouts, T is the least that was granted in the
      session so far: a member that was connected before may report the session at
      any time, with the timeout that it has granted, and the leader then sets the
      expiry to that, be it sooner or later (run members). So does a connect that is
      left unanswered and reaches the leader late, at a member that the client knows
      nothing of. It asks for T, so it is granted less only if that member's
      maxSessionTimeout (20 of its ticks by default) is below T. That this is not so
      is an assumption: see BROKEN_LOWER_MAXIMUM.
    - That the leader expires a session, and that it closes it, are two steps. Others
      are granted only after the second. A sync that arrives in between is answered,
      too, but behind the closing, which is ahead of it in the leader's pipeline.
      ProofSync assumes that no request throttle delays the closing there
      (request_throttle_max_requests, off by default): see BROKEN_THROTTLE.

A lease rests on the latest proven contact. So it is enough to look at any single
contact, and at any two round trips after it. What else the client sends can only make
the session live longer. So nothing else is sent, and the session may expire at
any tick but for that contact.

Code
    in the model           | in the code
    client: sends          | internal/managed/proof/proof.go: (*proof).send, internal/managed/link/write.go: (*Link).beforeSend
    client: has the answer | internal/managed/proof/proof.go: (*proof).answer, internal/managed/link/read.go: (*Link).onHead
    client: is connected   | internal/managed/proof/proof.go: (*proof).connect, internal/managed/proof/evidence.go: (*Evidence).Connect
    F                      | internal/managed/proof/proof.go: waitFor
    a round trip           | internal/managed/proof/proof.go: (*proof).tripOf, internal/managed/proof/proof.go: (*proof).count, internal/managed/session/heartbeat.go: (*Session).sendHeartbeat
    age                    | internal/clock/clock.go: Elapsed
    believes               | internal/managed/proof/evidence.go: (*Evidence).Suffices, internal/managed/session/heartbeat.go: (*Session).checkClock
    the stop margin        | internal/managed/config.go: (*Config).margin
    member: answers        | testutil/touches.go: (*member).reportLocked
    member: is asked       | testutil/touches.go: (*member).hearLocked, testutil/touches.go: (*member).receivedLocked
    member: reports        | testutil/touches.go: (*member).reportLocked
    member: forwards       | testutil/requests.go: (*member).sendOutboxLocked
    two hops               | testutil/touches.go: (*member).betweenLocked, testutil/member.go: (*member).syncedLocked
    leader: asks           | testutil/election.go: (*Embedded).tickLocked, testutil/touches.go: (*member).askLocked
    leader: is told        | testutil/touches.go: (*report).deliverLocked, testutil/leader.go: (*leadership).touchLocked
    expiry                 | testutil/leader.go: (*trackedSession).touch
    leader: expires        | testutil/leader.go: (*leadership).expireLocked
    leader: closes         | testutil/leader.go: (*leadership).closeLocked, testutil/leader.go: (*leadership).prepareLocked
    an earlier member      | testutil/touches.go: (*report).deliverLocked, testutil/leader.go: (*leadership).revalidateLocked, testutil/connect.go: (*conn).connectLocked
    leader: confirms       | testutil/leader.go: (*leadership).revalidateLocked
    leader: answers        | testutil/leader.go: (*leadership).drainLocked, testutil/leader.go: (*leadership).syncLocked
    another member leads   | testutil/leader.go: (*member).leadLocked

Bounds
    The unit of time is a twelfth of a tick. The client's member grants TICKS ticks,
    and an earlier one EARLIER ticks. T is the lesser of the two, F is T/3, or in run
    known a tick and T/40, rounded up. A member is asked for its sessions each half
    tick. With ALIGNED the leader asks at whole and half ticks of its clock, as the
    embedded ensemble does. From the question of an observer master until the
    observer's report has arrived there, at most LATE units pass. All other
    messages take any time, and the connections between servers may end at any
    time: a message that never arrives is one that takes longer than the run. A run
    ends T/10 after T.

    Rounding hides nothing, except in run rates. All bounds on time are whole
    units, and none is strict ("at least F", "at most half a tick"). A run in
    real time can then be moved to whole units, such that no order of two events
    changes; events may become simultaneous, and these happen here in any order.
    That is also why an equality that a real ensemble hardly ever meets is
    refuted here: LATE must be less than F minus a tick, not equal to it.
    Servers expire a session at a tick that is more than T after the touch; here
    it may be exactly T after it.

    In run rates a clock loses or gains one whole unit at once, at most once in
    twelve units: no clock with a rate from 11/12 to 13/12 is wrong by more
    within any span of whole units. The stop margin, T/10, is 2.4 units, and 2
    here.

Leaves out
    - Why the session would be kept alive: heartbeat.pml.
    - The time that the client needs to notice that its deadline has passed.
    - A leader that sends a question late.
    - Two leaders that both have a quorum, which the ensemble's protocol excludes.
    - The time from the closing of a session to the next grant: here all others are
      granted in the same instant.
    - A member that leads: its table is the leader's.

Runs
    run        | checks     | small                              | large
    follower   | assertions | MOVES=1 ALIGNED                    | MOVES=1 TICKS=3
    write      | assertions | OLD_LEADER=1 WRITE=1 ALIGNED       | OLD_LEADER=1 WRITE=1 TICKS=3
    rates      | assertions | RATE=12 BELIEF=LOST ALIGNED        | RATE=12 BELIEF=LOST
    observer   | assertions | TICK=6 HOPS=2 TICKS=3 F=9 ALIGNED  | HOPS=2 TICKS=3 F=15 ALIGNED
    known      | assertions | TICKS=4 F=14 ALIGNED               | HOPS=2 TICKS=4 F=14 ALIGNED
    members    | assertions | TICKS=3 EARLIER=2 ALIGNED          | TICKS=3 EARLIER=2 MOVES=1

Broken
    variant                  | run      | what is wrong
    BROKEN_PING_IS_PROOF     | follower | An answer of the member alone is a proof.
    BROKEN_NO_WAIT           | follower | F is 0: the round trip may follow the contact at once.
    BROKEN_FROM_ANSWER       | follower | The deadline is counted from the answer to the contact.
    BROKEN_WAIT_FROM_SENDING | follower | F is counted from the sending of the contact.
    BROKEN_ONE_ROUND         | follower | One round trip is enough.
    BROKEN_HALF_A_TICK       | follower | F is half a tick.
    BROKEN_LATE_QUESTION     | observer | The observer master's question, and the report, take F minus a tick.
    BROKEN_ROUNDED_DOWN      | follower | The leader rounds the expiry down to a whole tick.
    BROKEN_OLD_LEADER        | follower | ProofSync, and a leader that has lost its quorum answers it.
    BROKEN_CONNECT_IS_PROOF  | write    | ProofWrite, and a connect to an old session is a proof by itself.
    BROKEN_SYNC_IS_PROOF     | write    | ProofWrite, and R1 is a sync.
    BROKEN_NO_MARGIN         | rates    | The client believes until T by a clock that may be slow.
    BROKEN_THIRD             | observer | F is a third of T behind an observer master.
    BROKEN_LATEST_TIMEOUT    | members  | T is the timeout that the latest member has granted.
    BROKEN_LOWER_MAXIMUM     | members  | A connect that is left unanswered reaches a member whose maxSessionTimeout is below T.
    BROKEN_THROTTLE          | follower | A request throttle delays the closing of an expired session, and not a sync.

Unreached
    where           | statement      | why
    proctype Client | -end-          | it may do anything at any time
    proctype Member | -end-          | it serves forever
    proctype Leader | -end-          | it serves forever
    proctype Time   | -end-          | it never ends

Measured
    run        | bounds | states    | depth | seconds
    follower   | small  | 203,340   | 878   | 0.7
    write      | small  | 382,085   | 895   | 0.9
    rates      | small  | 2,211,173 | 1,141 | 5.3
    observer   | small  | 749,363   | 745   | 2.3
    known      | small  | 560,167   | 1,128 | 0.9
    members    | small  | 221,513   | 878   | 0.6
    follower   | large  | 2,425,861 | 1,048 | 5.5
    write      | large  | 4,607,691 | 1,181 | 11.7
    known      | large  | 7,399,938 | 1,382 | 15.1
    members    | large  | 1,576,250 | 923   | 3.9
*/

#ifndef TICK
#define TICK 12
#endif
#ifndef TICKS
#define TICKS 2 /* in T: servers demand at least two */
#endif
#ifndef EARLIER
#define EARLIER 0 /* what a member has granted that was connected before; 0: there was none */
#endif
#define HALF (TICK / 2)
#define GRANTED (TICKS * TICK) /* by the client's member */
#if EARLIER > 0 && EARLIER < TICKS && !defined(BROKEN_LATEST_TIMEOUT)
#define T (EARLIER * TICK)
#else
#define T GRANTED
#endif
#ifdef BROKEN_LOWER_MAXIMUM
#define LATE_TOUCH (T - HALF)
#else
#define LATE_TOUCH (EARLIER * TICK)
#endif
#define LOST (T - T / 10)

#ifdef BROKEN_THIRD
#undef F
#endif
#ifndef F
#define F (T / 3)
#endif
#ifdef BROKEN_NO_WAIT
#define WAIT 0
#elif defined(BROKEN_HALF_A_TICK)
#define WAIT HALF
#else
#define WAIT F
#endif

#ifdef BROKEN_LATE_QUESTION
#undef LATE
#define LATE (F - TICK)
#endif
#ifndef LATE
#define LATE 1
#endif

#ifdef BROKEN_NO_MARGIN
#undef BELIEF
#endif
#ifndef BELIEF
#define BELIEF T /* how old a proven contact may be */
#endif
#ifdef BROKEN_OLD_LEADER
#define OLD_LEADER 1
#endif

/* Features, which the runs combine. */
#ifndef RATE
#define RATE 0       /* the client's clock may be wrong once in so many units */
#endif
#ifndef HOPS
#define HOPS 1       /* between the client's member and the leader */
#endif
#ifndef OLD_LEADER
#define OLD_LEADER 0 /* 1: a leader may have lost its quorum, and not know it */
#endif
#ifndef WRITE
#define WRITE 0      /* 1: ProofWrite, 0: ProofSync */
#endif
#ifndef MOVES
#define MOVES 0      /* 1: the round trip may be made over a later connection */
#endif

#ifdef BROKEN_ONE_ROUND
#define ROUNDS 1
#else
#define ROUNDS 2     /* round trips that make a proof */
#endif

/* Whether a leader without a quorum can answer what the client takes for a proof,
   and whether a connect proves itself. */
#if !WRITE || defined(BROKEN_SYNC_IS_PROOF)
#define OLD_LEADER_ANSWERS true
#else
#define OLD_LEADER_ANSWERS false
#endif
#if !WRITE || defined(BROKEN_CONNECT_IS_PROOF)
#define CONNECT_IS_PROOF true
#else
#define CONNECT_IS_PROOF false
#endif

mtype = { unsent, sent, forwarded, executed, answered };
mtype = { question, report, trip, answer, join, joined, closed };

/* The client. */
mtype contact = unsent; /* the request whose sending is to be proven */
mtype proof = unsent;   /* the round trip that is to prove it */
byte rounds;            /* round trips that were answered */
bool connects;          /* the contact is a connect */
bool connected = true;
byte age;               /* since the contact was sent, by the client's clock */
byte waited;            /* since it was answered, at most F; the same clock */
byte rated;             /* until that clock may be wrong again */

/* Whether a round trip is answered between the expiry of a session and its
   closing: not where the closing is ahead of it. */
#if defined(BROKEN_THROTTLE)
#define overtakes true
#else
#define overtakes replaced
#endif

#define believes (proof == answered && age < BELIEF)

/* Member HOPS-1 is the client's. With two hops, member 0 is between it and the
   leader. The channels keep their order, as TCP does. */
#define MINE (HOPS - 1)
chan down[HOPS] = [4] of { mtype };
chan up[HOPS] = [3] of { mtype };
bool touched[HOPS];     /* its table of sessions that it has heard from */
byte asksIn[HOPS];      /* until it is asked for that table again */
bool asking[HOPS];      /* the question is on its way, or an observer's report */
byte late;              /* an observer master's question and the report to it: for so long */

/* The leader. */
byte bucket;            /* since the last whole tick of its clock */
byte expiresIn;         /* until it expires the session */
bool expired;           /* it takes no touch of the session any longer */
bool over;              /* it has closed the session, and others may be granted */
bool replaced;          /* another member leads, and the client's member does not know */

/* A touch moves the expiry to the first whole tick that is at least the granted
   timeout from now. */
#ifdef BROKEN_ROUNDED_DOWN
#define expiry(timeout) (((bucket + timeout) / TICK) * TICK - bucket)
#else
#define expiry(timeout) (((bucket + timeout + TICK - 1) / TICK) * TICK - bucket)
#endif

inline touch() {
	if
	:: !expired && !replaced -> expiresIn = expiry(GRANTED)
	:: else
	fi
}

init {
	byte n;
	select(bucket : 0 .. TICK - 1);
	select(expiresIn : 1 .. TICKS + 1);
	expiresIn = expiresIn * TICK - bucket;
#ifdef ALIGNED /* the leader asks at whole and half ticks of its clock */
	asksIn[0] = HALF - bucket % HALF;
#else
	select(n : 1 .. HALF);
	asksIn[0] = n;
#endif
#if HOPS == 2
	select(n : 1 .. HALF);
	asksIn[1] = n;
#endif
	if
	:: connects = false
	:: connects = true
	fi;
	if
	:: replaced = false
	:: OLD_LEADER ->
		replaced = true;
		printf("another member: leads; the client's member does not know that\n")
	fi;
	atomic {
		n = 0;
		run Client();
		run Member(MINE);
#if HOPS == 2
		run Member(0);
#endif
		run Leader();
		run Time()
	}
}

proctype Client() {
end:	do
	:: atomic { contact == unsent && !connects ->
		contact = sent;
		printf("client: sends the contact, a ping or a read\n") }
	:: atomic { contact == unsent && connects ->
		contact = sent;
		printf("client: sends the contact, a connect\n") }
	:: atomic { contact == executed && connected ->
		contact = answered;
#ifdef BROKEN_FROM_ANSWER
		age = 0;
#endif
#ifdef BROKEN_WAIT_FROM_SENDING
		waited = (age < F -> age : F);
#endif
#ifdef BROKEN_PING_IS_PROOF
		proof = answered;
#endif
		if
		:: connects ->
			waited = F;
			rounds = ROUNDS - 1;
			if
			:: CONNECT_IS_PROOF -> proof = answered
			:: else
			fi
		:: else
		fi;
		printf("client: has the answer to the contact, %d units after it was sent\n", age) }
	:: atomic { contact == answered && proof == unsent && waited >= WAIT && connected ->
		proof = sent;
		printf("client: begins a round trip, %d units after that answer\n", waited) }
	:: atomic { proof == executed && connected ->
		rounds++;
		proof = (rounds == ROUNDS -> answered : unsent);
		printf("client: the round trip is answered; the contact was sent %d units ago, of %d\n", age, BELIEF) }
#if MOVES
	:: atomic { contact == answered && proof == unsent && connected && !replaced && !expired ->
		touch();
		connected = false;
		proof = answered;
		printf("client: connects to another member, and makes a round trip there\n") }
#endif
	od
}

/* A question that meets another one on its way is none: fewer are asked. */
inline ask(m) {
	asksIn[m] = HALF;
	if
	:: !asking[m] ->
		down[m]!question;
		asking[m] = true
	:: else
	fi
}

inline no_longer_asked(m) {
	asking[m] = false;
	late = (m == 1 -> 0 : late)
}

proctype Member(byte m) {
end:	do
	:: atomic { m == MINE && contact == sent && connected && !connects ->
		touched[m] = true;
		contact = executed;
		printf("member: answers the contact by itself\n") }
	:: atomic { m == MINE && contact == sent && connected && connects && len(up[m]) < 3 ->
		up[m]!join;
		contact = forwarded;
		printf("member: forwards the connect\n") }
	:: atomic { m == MINE && proof == sent && connected && len(up[m]) < 3 ->
		up[m]!trip;
		proof = forwarded;
		printf("member: forwards the round trip\n") }
	:: atomic { down[m]?[question] ->
		down[m]?question;
		if
		:: touched[m] && len(up[m]) < 3 ->
			up[m]!report;
			touched[m] = false;
			printf("member: is asked, and reports the session\n")
		:: else -> no_longer_asked(m)
		fi;
		if
		:: m == 0 -> no_longer_asked(0) /* how long its report takes does not matter */
		:: else
		fi }
	:: atomic { down[m]?[answer] ->
		down[m]?answer;
		if
		:: m == MINE ->
			proof = executed;
			printf("member: answers the round trip\n")
		:: else -> down[MINE]!answer
		fi }
	:: atomic { down[m]?[joined] ->
		down[m]?joined;
		if
		:: m == MINE ->
			contact = executed;
			printf("member: answers the connect\n")
		:: else -> down[MINE]!joined
		fi }
	:: atomic { down[m]?[closed] ->
		down[m]?closed;
		if
		:: m == MINE ->
			connected = false;
			printf("member: closes the connection of the expired session\n")
		:: else -> down[MINE]!closed
		fi }
#if HOPS == 2
	:: atomic { m == 0 && up[1]?[report] ->
		up[1]?report;
		no_longer_asked(1);
		touched[0] = true;
		printf("observer master: is told of the session\n") }
	:: atomic { m == 0 && up[1]?[trip] && len(up[0]) < 3 ->
		up[1]?trip;
		up[0]!trip }
	:: atomic { m == 0 && up[1]?[join] && len(up[0]) < 3 ->
		up[1]?join;
		up[0]!join }
	:: atomic { m == 0 && asksIn[1] == 0 ->
		ask(1);
		printf("observer master: asks the observer\n") }
#endif
	od
}

proctype Leader() {
end:	do
	:: atomic { asksIn[0] == 0 ->
		ask(0);
		printf("leader: asks the member for its sessions\n") }
	:: atomic { up[0]?[report] ->
		up[0]?report;
		touch();
		printf("leader: is told of the session\n") }
	:: atomic { up[0]?[join] ->
		up[0]?join;
		if
		:: !expired || replaced ->
			touch();
			down[0]!joined;
			printf("leader: confirms the session\n")
		:: else
		fi }
	:: atomic { up[0]?[trip] && (!expired || over || overtakes) ->
		up[0]?trip;
		if
		:: !replaced ->
			down[0]!answer;
			printf("leader: answers the round trip\n")
		:: replaced && (OLD_LEADER_ANSWERS || rounds < ROUNDS - 1) ->
			down[0]!answer;
			printf("old leader: has no quorum, and answers the round trip\n")
		:: replaced
		fi }
	:: atomic { expiresIn == 0 && !expired ->
		expired = true;
		printf("leader: expires the session\n");
		assert(!believes) }
	:: atomic { expired && !over ->
		over = true;
		if
		:: !replaced -> down[0]!closed
		:: else
		fi;
		printf("leader: closes the session\n");
		assert(!believes) }
#if EARLIER > 0
	:: atomic { !expired && expiresIn != expiry(LATE_TOUCH) ->
		expiresIn = expiry(LATE_TOUCH);
		printf("leader: hears late of the session from an earlier member, or of a connect there\n") }
#endif
	:: atomic { OLD_LEADER && !replaced && !expired ->
		expiresIn = expiry(GRANTED);
		replaced = true;
		printf("another member: leads, and gives the session its whole timeout\n") }
	od
}

#define in_time(m) (asksIn[m] > 0 && (m == 0 || !asking[m] || late < LATE))
#if HOPS == 2
#define all_in_time (in_time(0) && in_time(1))
#else
#define all_in_time in_time(0)
#endif

inline pass(m) {
	asksIn[m]--;
	if
	:: m == 1 && asking[m] -> late++
	:: else
	fi
}

/* One unit of time passes for all servers; for the client's clock one too, or
   none or two. */
proctype Time() {
	byte units;
end:	do
	:: atomic { all_in_time && (expired || expiresIn > 0) && age <= T + T / 10 ->
		bucket = (bucket + 1) % TICK;
		if
		:: !expired -> expiresIn--
		:: else
		fi;
		pass(0);
#if HOPS == 2
		pass(1);
#endif
		if
		:: units = 1
		:: RATE > 0 && rated == 0 -> units = 0; rated = RATE
		:: RATE > 0 && rated == 0 -> units = 2; rated = RATE
		fi;
		if
		:: rated > 0 -> rated--
		:: else
		fi;
		if
		:: contact != unsent -> age = age + units
		:: else
		fi;
		if
		:: contact == answered -> waited = (waited + units < F -> waited + units : F)
		:: else
		fi;
		printf("    (a unit of time passes, %d on the client's clock)\n", units);
		units = 0 }
	od
}
