/*
The semaphore: never more permits than the limit, whatever becomes of it.

Proves
    - taken: whenever permits are taken there are then no more of them than the
      limit that is recorded at that moment. Each permit that somebody believes
      to hold has its own znode. Who waits for room, while there is some, has
      been told of a change, and looks again.
    - lost: the same, when a session is lost, and its client goes on in another
      one while the old znodes still stand.
    - three: the same for three clients.
    - told: under weak fairness, who waits gets its permits or an error: there is
      no event that a waiter misses. A permit whose taker has given up, or does
      not know that it has it, is removed at last: none is lost forever.

Code
    in the model            | in the code
    joins                   | recipes/internal/line/acquisition.go: (*acquisition).join
    waits for another       | recipes/internal/line/contender.go: (*contender).wait
    counts, reads the limit | recipes/semaphore/semaphore.go: permits.lookOnce, recipes/semaphore/limit.go: count, recipes/semaphore/limit.go: (*Semaphore).limit
    room                    | recipes/semaphore/semaphore.go: fits
    sets its watches        | recipes/semaphore/semaphore.go: permits.look, recipes/semaphore/limit.go: (*Semaphore).watch
    waits for room          | recipes/internal/line/permits.go: (*acquisition).awaitRoom
    is refused              | recipes/internal/line/permits.go: (*acquisition).takePermits, recipes/internal/line/acquisition.go: (*acquisition).refuse
    sends a multi           | recipes/internal/line/permits.go: (*contender).take, internal/managed/writes/protected_batch.go: (*batchCreate).create
    looks for its permits   | internal/managed/writes/protected_batch.go: (*batchCreate).findAgain, internal/managed/writes/protected_batch.go: (*batchCreate).find
    condemn                 | internal/managed/writes/protected_batch.go: (*batchCreate).expectStrays
    session: removes        | internal/managed/writes/strays.go: (*strays).onList, recipes/internal/line/departure.go: departAll
    is granted              | recipes/internal/line/acquisition.go: (*acquisition).admit
    releases                | recipes/internal/line/share.go: (*Share).leaveLocked, recipes/internal/line/departure.go: (*grant).awaitDeparture
    gives up                | recipes/internal/line/localqueue.go: (*localQueue).giveUp
    operator: sets          | recipes/semaphore/limit.go: (*Semaphore).setMax, recipes/semaphore/limit.go: (*Semaphore).record
    ensemble: executes      | testutil/leader.go: (*leadership).prepareLocked

Bounds
    CLIENTS processes of one goroutine each; number 1 wants two permits at once,
    the others one; again and again. The limit begins with 2 and is set CHANGES
    times, to 1, 2 or 3. CUTS answers, or multis, are lost: a multi that was sent
    may be executed at any time later, or never. (Of two that a client has lost,
    one is not executed any more, either of them: both check the same znode, so
    only one can be.) With LOSSES=1 client 0 loses its session, at any moment.
    With GIVE_UP=1 who waits may give up at any moment.

Leaves out
    - TryAcquire; how the first limit is recorded (here it is), and a path that
      vanishes; clients that were made with different limits.
    - The watches of semaphore and line are not lost; if they were, each waiter
      looks again after about a session timeout.
    - Other lost answers: creates.pml. When a session is known to be lost:
      deadline.pml.

Runs
    run   | checks     | small                                | large
    taken | assertions | CLIENTS=2 CUTS=1 CHANGES=1 GIVE_UP=1 | CLIENTS=2 CUTS=2 CHANGES=2 GIVE_UP=1
    lost  | assertions | CLIENTS=2 CUTS=1 CHANGES=1 LOSSES=1  | CLIENTS=2 CUTS=1 CHANGES=2 LOSSES=1
    three | assertions | CLIENTS=3 CUTS=0 CHANGES=2           | CLIENTS=3 CUTS=1 CHANGES=1
    told  | ltl told   | CLIENTS=2 CUTS=1 CHANGES=1           | CLIENTS=2 CUTS=2 CHANGES=2

Broken
    variant                    | run   | what is wrong
    BROKEN_NOT_FIRST           | taken | Who is not first in line takes permits too.
    BROKEN_LINE_NOT_CHECKED    | taken | The multi does not check that its znode is still in line.
    BROKEN_LIMIT_NOT_CHECKED   | taken | The multi does not check that the limit is the one that was read.
    BROKEN_STALE_PERMITS       | lost  | Permits survive the loss of their session.
    BROKEN_FORGET              | told  | The ids of a multi that was given up are not remembered.
    BROKEN_ONE_LOOK            | told  | The watches are set, and nobody looks after that.
    BROKEN_LIMIT_NOT_WATCHED   | taken | Who waits for room does not watch the limit.
    BROKEN_PERMITS_NOT_WATCHED | taken | Who waits for room does not watch the permits.
    BROKEN_NOT_REFUSED         | told  | Who wants more than the limit waits.

Unreached
    where             | statement | why
    proctype Client   | -end-     | it wants permits again and again
    proctype Search   | -end-     | it waits for ids
    proctype Ensemble | -end-     | it serves forever
    proctype Network  | -end-     | it may fail at any time
    proctype Operator | -end-     | it may come at any time

Measured
    run   | bounds | states    | depth | seconds
    taken | small  | 147,938   | 2,220 | 0.9
    lost  | small  | 172,769   | 256   | 0.7
    three | small  | 243,932   | 1,155 | 1.4
    told  | small  | 67,347    | 517   | 1.0
    taken | large  | 1,655,385 | 2,268 | -
    lost  | large  | 906,160   | 267   | -
    three | large  | 461,414   | 1,453 | -
    told  | large  | 1,432,696 | 713   | -
*/

#ifndef LOSSES
#define LOSSES 0
#endif
#ifndef GIVE_UP
#define GIVE_UP 0
#endif
#define OLD CLIENTS          /* the lost session of client 0 */
#define ALL (CLIENTS + LOSSES)
#define NONE 255
#define GONE 254
#define wants(c) ((c) == 1 -> 2 : 1)

/* The ensemble. */
byte limit = 2;
byte version;
byte at[ALL];             /* the place of the client's znode in line, from 1 */
byte last;
byte permits[ALL];        /* that the client knows, or can still find */
byte strays[ALL];         /* that it has given up */

/* Multis: the one that the client waits for, and one that was sent on a connection
   that is lost. */
mtype = { none, under_way, taken, not_in_line, changed, unknown };
mtype multi[CLIENTS] = none;
byte checks[CLIENTS];     /* the version of the limit that it checks */
bool late[ALL];           /* executed at any time, or never */
byte late_checks[ALL];
bool given_up[ALL];       /* nobody looks for its permits any more */

/* The clients. */
mtype = { idle, joins, looks, watches, counts, waits, sends, finds, holds, releases, leaves, gone };
mtype client[CLIENTS] = idle;
byte watched[CLIENTS];    /* what its znode waits for: NONE, or GONE once that has left */
byte counted[CLIENTS];    /* permits; NONE: not yet in this look */
byte limits[CLIENTS];     /* the limit; 0: not read yet in this look */
bool armed[CLIENTS];      /* this look is made with watches */
bool fired[CLIENTS];      /* one of them has fired */
bool remembers[CLIENTS];  /* the ids of permits that may be strays */
byte cuts;
byte changes;

#ifdef BROKEN_NOT_FIRST
#define must_wait(c) false
#else
#define must_wait(c) (at[c] > 1)
#endif

inline append(c) {
	last++;
	at[c] = last
}

/* Removes the znode of c. A multi that checks it will fail. */
inline remove(c) {
	do
	:: n < ALL -> at[n] = (n != c && at[n] > at[c] -> at[n] - 1 : at[n]); n++
	:: else -> break
	od;
	n = 0;
	at[c] = 0;
	last--;
	do
	:: n < CLIENTS -> watched[n] = (watched[n] == c -> GONE : watched[n]); n++
	:: else -> break
	od;
	n = 0;
#ifndef BROKEN_LINE_NOT_CHECKED
	late[c] = false; /* it checks that znode */
	given_up[c] = false
#endif
}

/* Whoever watches the permits or the limit is told. */
inline fire() {
	do
	:: n < CLIENTS -> fired[n] = armed[n]; n++
	:: else -> break
	od;
	n = 0
}

inline count_all() {
	k = 0;
	do
	:: n < ALL -> k = k + permits[n] + strays[n]; n++
	:: else -> break
	od;
	n = 0
}

/* Nobody waits for room without a watch that has fired, though there is some. */
inline check_waiters() {
	count_all();
	do
	:: n < CLIENTS ->
		assert(!(client[n] == waits && !fired[n] && (k + wants(n) <= limit || wants(n) > limit)));
		n++
	:: else -> break
	od;
	n = 0; k = 0
}

#define counts_done(c) (counted[c] != NONE && limits[c] != 0)

inline forget_look(c) {
	counted[c] = NONE;
	limits[c] = 0
}

inline disarm(c) {
	armed[c] = false;
	fired[c] = false
}

/* What was asked for under the ids of a batch is removed when it is seen. */
inline condemn(c) {
	given_up[c] = late[c];
#ifndef BROKEN_FORGET
	remembers[c] = true
#endif
}

proctype Client(byte c) {
	byte n, k;
end:	do
	:: d_step { client[c] == idle ->
		client[c] = joins;
		printf("client %d: wants %d\n", c, wants(c)) }
	:: d_step { client[c] == joins ->
		append(c);
		client[c] = looks;
		printf("client %d: joins the line\n", c) }
	:: d_step { client[c] == looks && must_wait(c) ->
		do
		:: n < ALL -> watched[c] = (at[n] == at[c] - 1 -> n : watched[c]); n++
		:: else -> break
		od;
		n = 0;
		client[c] = watches;
		printf("client %d: waits for another in line\n", c) }
	:: d_step { client[c] == watches && watched[c] == GONE ->
		watched[c] = NONE;
		client[c] = looks;
		printf("client %d: sees that the other has left\n", c) }
	:: d_step { client[c] == looks && !must_wait(c) ->
		client[c] = counts;
		printf("client %d: is first in line\n", c) }

	/* A look for room: two reads, in any order. */
	:: d_step { client[c] == counts && counted[c] == NONE ->
		count_all();
		counted[c] = k;
		k = 0;
		printf("client %d: counts %d permits\n", c, counted[c]) }
	:: d_step { client[c] == counts && limits[c] == 0 ->
		limits[c] = limit;
		checks[c] = version;
		printf("client %d: reads that the limit is %d\n", c, limits[c]) }
	:: d_step { client[c] == counts && counts_done(c) ->
		if
#ifndef BROKEN_NOT_REFUSED
		:: wants(c) > limits[c] ->
			disarm(c);
			client[c] = leaves;
			printf("client %d: is refused: it wants more than the limit\n", c)
#endif
		:: counted[c] + wants(c) <= limits[c] ->
			disarm(c);
			client[c] = sends
		:: else ->
			if
			:: armed[c] ->
				client[c] = waits;
				printf("client %d: finds no room, and waits\n", c)
			:: else ->
				armed[c] = true;
				fired[c] = false;
#ifdef BROKEN_ONE_LOOK
				client[c] = waits;
#endif
				printf("client %d: sets its watches\n", c)
			fi
		fi;
		forget_look(c) }
	:: d_step { client[c] == waits && fired[c] ->
		disarm(c);
		client[c] = counts;
		printf("client %d: sees that permits or limit have changed\n", c) }

	/* The multi. */
	:: d_step { client[c] == sends && multi[c] == none ->
		multi[c] = under_way;
		printf("client %d: sends a multi that takes %d\n", c, wants(c)) }
	:: d_step { client[c] == sends && multi[c] == taken ->
		multi[c] = none;
		client[c] = holds;
		printf("client %d: is granted %d\n", c, permits[c]);
		assert(permits[c] == wants(c)) }
	:: d_step { client[c] == sends && multi[c] == changed ->
		multi[c] = none;
		client[c] = counts;
		printf("client %d: is told that the limit has changed\n", c) }
	:: d_step { client[c] == sends && multi[c] == not_in_line ->
		multi[c] = none;
		client[c] = joins;
		printf("client %d: is told that it is not in line any more\n", c) }
	:: d_step { client[c] == sends && multi[c] == unknown ->
		multi[c] = none;
		client[c] = finds;
		printf("client %d: has lost the answer, and looks for its permits\n", c) }
	:: d_step { client[c] == finds && permits[c] > 0 ->
		client[c] = holds;
		printf("client %d: finds its permits, and is granted\n", c) }
	:: d_step { client[c] == finds && permits[c] == 0 ->
		condemn(c);
		client[c] = sends;
		printf("client %d: does not find permits, and tries again with other ids\n", c) }

	:: d_step { client[c] == holds ->
		client[c] = releases;
		printf("client %d: releases\n", c) }
	:: d_step { client[c] == releases && permits[c] > 0 ->
		permits[c]--;
#ifndef BROKEN_PERMITS_NOT_WATCHED
		fire();
#endif
		check_waiters();
		printf("client %d: has removed a permit\n", c) }
	:: d_step { client[c] == releases && permits[c] == 0 ->
		client[c] = idle }

#if GIVE_UP
	:: d_step { client[c] == looks || client[c] == watches || client[c] == counts || client[c] == waits ->
		watched[c] = NONE;
		forget_look(c);
		disarm(c);
		client[c] = leaves;
		printf("client %d: gives up\n", c) }
	:: d_step { client[c] == finds ->
		condemn(c);
		strays[c] = strays[c] + permits[c];
		permits[c] = 0;
		client[c] = leaves;
		printf("client %d: gives up while it looks for its permits\n", c) }
	:: d_step { client[c] == sends && multi[c] != none ->
		client[c] = gone;
		printf("client %d: gives up while its multi is under way\n", c) }
	:: d_step { client[c] == gone && multi[c] != under_way ->
		if
		:: multi[c] == taken || multi[c] == unknown -> condemn(c)
		:: else
		fi;
		strays[c] = strays[c] + permits[c];
		permits[c] = 0;
		multi[c] = none;
		client[c] = leaves;
		printf("client %d: has the answer after it has given up\n", c) }
#endif
	:: d_step { client[c] == leaves ->
		if
		:: at[c] > 0 -> remove(c)
		:: else
		fi;
		client[c] = idle;
		printf("client %d: is not in line any more\n", c) }
	od
}

/* Looks for what was given up, as long as it may appear. */
proctype Search(byte c) {
	byte n, k;
end:	do
	:: d_step { remembers[c] && strays[c] > 0 ->
		strays[c]--;
		fire();
		check_waiters();
		printf("session of %d: removes a permit that was given up\n", c) }
	:: d_step { remembers[c] && strays[c] == 0 && !late[c] ->
		remembers[c] = false;
		printf("session of %d: has looked for permits often enough\n", c) }
	od
}

#ifdef BROKEN_LIMIT_NOT_CHECKED
#define same_limit(v) true
#else
#define same_limit(v) (version == v)
#endif
#ifdef BROKEN_LINE_NOT_CHECKED
#define in_line(c) true
#else
#define in_line(c) (at[c] > 0)
#endif

/* The multi of c takes its permits: there is room for them. */
inline take(c, found) {
	do
	:: n < CLIENTS -> k = k + (client[n] == holds -> wants(n) : 0); n++
	:: else -> break
	od;
	n = 0;
	assert(k + wants(c) <= limit); /* by what all others believe */
	k = 0;
	if
	:: found -> permits[c] = permits[c] + wants(c)
	:: else -> strays[c] = strays[c] + wants(c)
	fi;
	if
	:: at[c] > 0 -> remove(c)
	:: else
	fi;
	fire();
	count_all();
	assert(k <= limit);            /* by the znodes */
	k = 0
}

/* What the ensemble does with the multis of client c. */
proctype Ensemble(byte c) {
	byte n, k;
end:	do
	:: d_step { c < CLIENTS && multi[c] == under_way ->
		if
		:: !in_line(c) -> multi[c] = not_in_line
		:: in_line(c) && !same_limit(checks[c]) -> multi[c] = changed
		:: else ->
			take(c, true);
			multi[c] = taken
		fi;
		printf("ensemble: executes the multi of client %d\n", c) }
	:: d_step { late[c] && in_line(c) && same_limit(late_checks[c]) ->
		late[c] = false;
		if
		:: c < CLIENTS && !given_up[c] -> take(c, true)
		:: else -> take(c, false)
		fi;
		given_up[c] = false;
		printf("ensemble: executes a multi of client %d, late\n", c) }
	:: d_step { late[c] ->
		late[c] = false;
		given_up[c] = false;
		printf("ensemble: will never execute the late multi of client %d\n", c) }
	od
}

inline lose_multi(c) {
	d_step { cuts < CUTS && multi[c] == under_way ->
		cuts++;
		multi[c] = unknown;
		late[c] = in_line(c);
		late_checks[c] = checks[c];
		given_up[c] = false;
		printf("network: loses the connection of client %d, its multi may be under way\n", c) }
}
inline lose_for_good(c) {
	d_step { cuts < CUTS && multi[c] == under_way ->
		cuts++;
		multi[c] = unknown;
		printf("network: loses the multi of client %d for good\n", c) }
}
inline lose_answer(c) {
	d_step { cuts < CUTS && (multi[c] == taken || multi[c] == not_in_line || multi[c] == changed) ->
		cuts++;
		multi[c] = unknown;
		printf("network: loses the answer to the multi of client %d\n", c) }
}

proctype Network() {
end:	do
	:: lose_multi(0)
	:: lose_multi(1)
	:: lose_for_good(0)
	:: lose_for_good(1)
	:: lose_answer(0)
	:: lose_answer(1)
	od
}

inline set_limit(value) {
	d_step { changes < CHANGES && limit != value ->
		changes++;
		limit = value;
		version++;
#ifndef BROKEN_LIMIT_NOT_WATCHED
		fire();
#endif
		check_waiters();
		printf("operator: sets the limit to %d\n", limit) }
}

proctype Operator() {
	byte n, k;
end:	do
	:: set_limit(1)
	:: set_limit(2)
	:: set_limit(3)
	od
}

#if LOSSES
/* Client 0 loses its session: what it believes at once, its znodes at any time
   later. It goes on in another session. */
proctype Session() {
	byte n;
end:	d_step { true ->
		at[OLD] = at[0]; at[0] = 0;
		permits[OLD] = permits[0]; permits[0] = 0;
		strays[OLD] = strays[0]; strays[0] = 0;
		late_checks[OLD] = (multi[0] == under_way -> checks[0] : late_checks[0]);
		late[OLD] = late[0] || multi[0] == under_way; late[0] = false;
		given_up[0] = false;
		multi[0] = none;
		remembers[0] = false;
		watched[0] = NONE;
		do
		:: n < CLIENTS -> watched[n] = (watched[n] == 0 -> OLD : watched[n]); n++
		:: else -> break
		od;
		n = 0;
		forget_look(0);
		disarm(0);
		if
#ifdef BROKEN_STALE_PERMITS
		:: client[0] == holds
#else
		:: client[0] == holds -> client[0] = idle
#endif
		:: client[0] == idle || client[0] == releases || client[0] == leaves || client[0] == gone -> client[0] = idle
		:: else -> client[0] = joins
		fi;
		printf("client 0: has lost its session, and with it what it held\n") };
	d_step {
		permits[OLD] = 0;
		strays[OLD] = 0;
		late[OLD] = false;
		if
		:: at[OLD] > 0 -> remove(OLD)
		:: else
		fi;
		fire();
		printf("ensemble: removes the znodes of the lost session\n") }
}
#endif

init {
	byte c;
	atomic {
		do
		:: c < CLIENTS ->
			watched[c] = NONE;
			counted[c] = NONE;
			run Client(c);
			run Search(c);
			run Ensemble(c);
			c++
		:: else -> break
		od;
		run Network();
		run Operator();
#if LOSSES
		run Ensemble(OLD);
		run Session();
#endif
		c = 0
	}
}

#define waiting(c) (client[c] == joins || client[c] == looks || client[c] == watches || client[c] == counts || client[c] == waits || client[c] == sends || client[c] == finds)

ltl told { []((waiting(0) -> <>!waiting(0)) && (waiting(1) -> <>!waiting(1)) && (strays[0] > 0 -> <>(strays[0] == 0))) }
