/*
Protected creates: a create whose answer is lost, or whose caller has gone,
leaves nothing behind.

Proves
    - quiet: a znode that its caller has is never deleted by the session. Once
      nothing can happen any more, no znode of a caller that failed, has gone or
      has given its znode up is left in the session.
    - told: under weak fairness the caller gets a znode or an error.

Code
    in the model                    | in the code
    caller: sends create            | internal/managed/writes/protected.go: (*protectedCreate).create
    now++: another id               | internal/random/random.go: ID
    caller: is given the znode      | internal/managed/writes/protected.go: (*protectedCreate).create, internal/managed/writes/readbehind.go: (*groupCommit).read
    caller: has lost the answer     | internal/managed/writes/protected.go: (*protectedCreate).findAgain
    caller: finds, does not find    | internal/managed/writes/protected.go: (*protectedCreate).find
    caller: goes                    | internal/managed/ops/call.go: Detach
    session: gets, has lost         | internal/managed/writes/protected.go: (*protectedCreate).discardLate
    condemn                         | internal/managed/writes/strays.go: (*strays).expect
    session: finds the znode        | internal/managed/writes/strays.go: (*strays).onList, internal/managed/writes/strays.go: (*straySearch).search
    session: has looked ... enough  | internal/managed/writes/strays.go: (*straySearch).search
    session: deletes                | internal/managed/writes/strays.go: (*strays).discard, internal/managed/writes/strays.go: (*Writes).deleteUntilGone

Bounds
    TRIES creates, each with its id; CUTS requests or answers that are lost;
    MAY_GO=1: the caller may go at any moment.

Leaves out
    - Other clients, and members that lag: each search begins with a sync.
    - The end of the session, with which all its znodes go.
    - Time. The search for an id ends after about 85 session timeouts. The model
      assumes that no create is executed later than that.
    - Refused creates and deletions (ACLs).

Runs
    run    | checks       | small                     | large
    quiet  | assertions   | TRIES=4 CUTS=4 MAY_GO=1  | TRIES=6 CUTS=7 MAY_GO=1
    told   | ltl answered | TRIES=3 CUTS=3 MAY_GO=1  | TRIES=5 CUTS=5 MAY_GO=1

Broken
    variant            | run   | what is wrong
    BROKEN_FORGET      | quiet | An id that was given up is not remembered.
    BROKEN_ONE_LOOK    | quiet | An id that was given up is looked for once only.
    BROKEN_SAME_ID     | quiet | The create is repeated with the same id.
    BROKEN_LATE_ANSWER | quiet | The answer to a caller that has gone is dropped.
    BROKEN_DELETE_ONCE | quiet | A deletion whose answer was lost is not repeated.
    BROKEN_LOOK_ON     | told  | A znode that is not found is looked for on and on.

Measured
    run   | bounds | states     | depth | seconds
    quiet | small  | 9,358      | 69    | 0.2
    quiet | large  | 377,119    | 88    | 3.0
    told  | small  | 784        | 60    | 0.2
    told  | large  | 22,366     | 89    | 0.6
*/

/* What has become of each create. */
#define UNSENT    0
#define UNDER_WAY 1   /* sent on the present connection */
#define EXECUTED  2   /* and its answer is on its way */
#define LATE      3   /* its connection is lost; it may still be executed */
#define OVER      4   /* answered, or its answer is lost, or never executed */

byte request[TRIES];
bool znode[TRIES];    /* it exists */
bool searched[TRIES]; /* its id was given up, and is looked for */
bool deleting[TRIES]; /* it is deleted until it is gone */
byte cuts;            /* how many connections were lost */

/* Where the caller is. */
#define CREATES   0   /* about to send a create */
#define WAITS     1   /* for the answer */
#define LOOKS     2   /* for the znode whose answer was lost */
#define HAS       3   /* a znode */
#define LEFT      4   /* it has given its znode up */
#define FAILED    5   /* it was told an error */
#define GONE      6   /* it waits no longer, but the answer may come */
#define GONE_EVEN 7   /* and that is settled */

byte caller = CREATES;
byte now;             /* the latest create */

#ifdef BROKEN_SAME_ID
#define id(i) 0
#else
#define id(i) i
#endif

/* The search for an id ends when its create cannot be executed any more. */
#ifdef BROKEN_ONE_LOOK
#define MAY_STOP_LOOKING(i) true
#else
#define MAY_STOP_LOOKING(i) (request[i] == OVER)
#endif

/* An id is given up. */
inline condemn(i) {
#ifndef BROKEN_FORGET
	searched[id(i)] = true
#else
	skip
#endif
}

active proctype Caller() {
	do
	:: d_step { caller == CREATES ->
		request[now] = UNDER_WAY; caller = WAITS;
		printf("caller: sends create %d\n", now) }

	:: d_step { caller == WAITS && request[now] == EXECUTED ->
		request[now] = OVER; caller = HAS;
		printf("caller: is given the znode of create %d\n", now) }
	:: d_step { caller == WAITS && request[now] >= LATE ->
		caller = LOOKS;
		printf("caller: has lost the answer to create %d\n", now) }

	:: d_step { caller == LOOKS && znode[now] ->
		caller = HAS;
		printf("caller: finds the znode of create %d\n", now) }
	:: d_step { caller == LOOKS && !znode[now] ->
#ifndef BROKEN_LOOK_ON
		condemn(now);
#endif
		printf("caller: does not find the znode of create %d\n", now);
#ifndef BROKEN_LOOK_ON
		if
		:: now + 1 < TRIES -> now++; caller = CREATES
		:: else -> caller = FAILED
		fi
#endif
		}
	:: d_step { caller == LOOKS && cuts < CUTS ->
		cuts++; condemn(now); caller = FAILED;
		printf("caller: cannot look for create %d, and fails\n", now) }

	:: d_step { caller == WAITS && MAY_GO ->
		caller = GONE;
		printf("caller: goes, and does not wait for create %d\n", now) }
	:: d_step { caller == LOOKS && MAY_GO ->
		condemn(now); caller = GONE_EVEN;
		printf("caller: goes while it looks for create %d\n", now) }
	:: d_step { caller == GONE && request[now] == EXECUTED ->
		request[now] = OVER; caller = GONE_EVEN;
#ifndef BROKEN_LATE_ANSWER
		deleting[now] = true;
#endif
		printf("session: gets the answer to create %d, whose caller has gone\n", now) }
	:: d_step { caller == GONE && request[now] >= LATE ->
		condemn(now); caller = GONE_EVEN;
		printf("session: has lost the answer to create %d, whose caller has gone\n", now) }

	:: d_step { caller == HAS ->
		deleting[now] = true; caller = LEFT;
		printf("caller: gives its znode up\n") }

	:: caller == LEFT || caller == FAILED || caller == GONE_EVEN -> break
	od
}

/* Executes create i, in time, late, or never. */
proctype Ensemble(byte i) {
end:	do
	:: d_step { request[i] == UNDER_WAY ->
		request[i] = EXECUTED; znode[i] = true;
		printf("ensemble: executes create %d\n", i) }
	:: d_step { request[i] == LATE ->
		request[i] = OVER; znode[i] = true;
		printf("ensemble: executes create %d, late\n", i) }
	:: d_step { request[i] == LATE ->
		request[i] = OVER;
		printf("ensemble: will never execute create %d\n", i) }
	od
}

/* The connection is lost, and with it the answer that is under way. */
active proctype Network() {
end:	do
	:: d_step { cuts < CUTS && request[now] == UNDER_WAY ->
		cuts++; request[now] = LATE;
		printf("network: loses the connection, create %d may be under way\n", now) }
	:: d_step { cuts < CUTS && request[now] == EXECUTED ->
		cuts++; request[now] = OVER;
		printf("network: loses the connection, and the answer to create %d\n", now) }
	od
}

/* Looks for the id of create i if that was given up, and deletes its znode. */
proctype Session(byte i) {
end:	do
	:: d_step { searched[id(i)] && znode[i] ->
		searched[id(i)] = false; deleting[i] = true;
		printf("session: finds the znode of create %d, which was given up\n", i) }
	:: d_step { searched[id(i)] && !znode[i] && MAY_STOP_LOOKING(i) ->
		searched[id(i)] = false;
		printf("session: has looked for the znode of create %d often enough\n", i) }
	:: d_step { deleting[i] ->
		assert(caller != HAS || now != i);
		deleting[i] = false; znode[i] = false;
		printf("session: deletes the znode of create %d\n", i) }
	:: d_step { deleting[i] && cuts < CUTS ->
		cuts++;
#ifdef BROKEN_DELETE_ONCE
		deleting[i] = false;
#endif
		printf("network: loses the deletion of the znode of create %d\n", i) }
	od
}

/* When nothing can happen any more, no znode is left. */
active proctype Quiet() {
	timeout ->
	byte i;
	for (i : 0 .. TRIES - 1) {
		assert(!znode[i])
	}
}

init {
	byte i;
	atomic {
		for (i : 0 .. TRIES - 1) {
			run Ensemble(i);
			run Session(i)
		}
	}
}

ltl answered { <> (caller >= HAS) }
