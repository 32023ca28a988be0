/*
Cache: a view of a tree that never goes back, and misses nothing.

Proves
    - true: no znode is shown in an earlier state after a later one, whichever
      member serves the cache. A view shows every change up to its zxid. Fresh
      shows at least what was committed when it was called. Once nothing can
      happen any more, the view shows the last state of each znode.
    - again: the same, where a cache has watches of a single event and sets them
      again after a reconnect.
    - ends: under weak fairness Fresh returns.

Code
    in the model                         | in the code
    cache: asks for the watch            | recipes/cache/follow.go: (*Cache).follow, internal/managed/watches/tree.go: (*Watches).WatchTree
    cache: begins to read                | recipes/cache/follow.go: (*Cache).walk
    cache: begins to read what is marked | recipes/cache/follow.go: (*Cache).readMarks
    cache: sets its watches again        | recipes/cache/rearm.go: (*Cache).rearm, recipes/cache/rearm.go: armed.after
    cache: hears                         | recipes/cache/follow.go: (*watch).on
    cache: has read                      | recipes/cache/round.go: (*round).apply, recipes/cache/marks.go: (*marks).settle
    cache: shows                         | recipes/cache/follow.go: (*Cache).finish, recipes/cache/round.go: (*round).zxid
    Fresh                                | recipes/cache/cache.go: (*Cache).Fresh

Bounds
    Two znodes; CHANGES transactions; a leader and a follower that lags; LOSSES
    of the connection; one call of Fresh; ONE_SHOT: whether it has a watch of a
    single event for each znode, and sets them again after a reconnect, or a
    recursive one.

Leaves out
    - The shape of the tree: a znode that is missing has a state as any other.
    - Watches that the member loses. A recheck finds what they would have told.
    - Several reads in one request: each has its place in the order.
    - Several requests of setWatches: each names its znodes as of their reads.
    - Reads before the present round and the one before. The code counts only
      the last one of that: all that is unsettled came after it.
    - Events that come while an answer waits to be applied. In the code a mark
      that is settled in part does not count that answer: it claims less.

Runs
    run   | checks       | small                         | large
    true  | assertions   | CHANGES=2 LOSSES=1 ONE_SHOT=0 | CHANGES=3 LOSSES=2 ONE_SHOT=0
    again | assertions   | CHANGES=2 LOSSES=1 ONE_SHOT=1 | CHANGES=3 LOSSES=2 ONE_SHOT=1
    ends  | ltl returns  | CHANGES=1 LOSSES=1 ONE_SHOT=0 | CHANGES=2 LOSSES=1 ONE_SHOT=0

Broken
    variant              | run   | bounds | what is wrong
    BROKEN_WALK_FIRST    | true  | CHANGES=2 LOSSES=1 ONE_SHOT=0 | The tree is read before it is watched.
    BROKEN_NO_WALK       | true  | CHANGES=2 LOSSES=1 ONE_SHOT=0 | After a reconnect the tree is watched, and not read.
    BROKEN_BY_EVENT      | true  | CHANGES=2 LOSSES=1 ONE_SHOT=0 | What an event says is shown without a read.
    BROKEN_FORGET        | true  | CHANGES=2 LOSSES=1 ONE_SHOT=0 | The next connection does not name what was read.
    BROKEN_MARKS         | true  | CHANGES=2 LOSSES=1 ONE_SHOT=0 | The end of a round forgets marks that came meanwhile.
    BROKEN_ZXID          | true  | CHANGES=2 LOSSES=1 ONE_SHOT=0 | A view claims the zxid of the last answer, though something is marked.
    BROKEN_NO_SYNC       | true  | CHANGES=2 LOSSES=1 ONE_SHOT=0 | Fresh does not sync.
    BROKEN_NO_ROUND      | true  | CHANGES=2 LOSSES=1 ONE_SHOT=0 | Fresh does not wait for what is marked.
    BROKEN_SINCE         | again | CHANGES=1 LOSSES=1 ONE_SHOT=1 | setWatches names the latest transaction that the session has seen.
    BROKEN_DROP          | again | CHANGES=1 LOSSES=1 ONE_SHOT=1 | Marks do not outlive the connection.
    BROKEN_OPEN          | again | CHANGES=1 LOSSES=1 ONE_SHOT=1 | What was being read is not marked after a loss.
    BROKEN_UNREAD        | again | CHANGES=1 LOSSES=1 ONE_SHOT=1 | What setWatches names is not read.

Measured
    run   | bounds | states    | depth | seconds
    true  | small  | 270,435   | 180   | 1.2
    true  | large  | 4,805,742 | 70    | 13.5
    again | small  | 184,704   | 167   | 0.9
    again | large  | 3,481,606 | 61    | 10.2
    ends  | small  | 15,951    | 174   | 0.5
    ends  | large  | 253,725   | 97    | 4.1
*/

#define NOBODY 2

byte znode[CHANGES + 1];  /* which znode each transaction has changed */
byte length;              /* transactions so far */
byte applied[2];          /* by the leader and the follower */
byte states[4];           /* by member and znode: the transaction that has changed it last */
byte losses;

/* What the cache's member sends, in order. */
#define EVENT    0
#define ARMED    1
#define SYNCED   2
#define READ_0   3        /* the answer to a read of znode 0 */
#define READ_1   4
#define ANSWERED 5
chan answers = [3] of { byte, byte, byte }

byte member = NOBODY;     /* that the cache is connected to */
bool watched;             /* the member has the watch */
bool watch[2];            /* the member has the watch of a single event */
byte request;             /* of the cache, 0: none */
bool sync;                /* asked for, and not answered */

/* The cache. */
#define DOWN  0
#define ARMS  1
#define READS 2
#define IDLE  3
byte cache;
byte shown[2];
byte got[2];              /* in this round */
bool todo[2];             /* in this round */
bool marked[2];
byte floor[2];            /* by mark: the zxid of the last read before it */
bool was[2];              /* to be read in this round when it began */
byte at[2];               /* the zxid of the last read */
bool whole;               /* the round reads everything */
bool have;                /* all that is shown was watched in this session */
byte since[2];            /* which transaction setWatches names */
byte last;                /* the zxid of the last read since the watch was armed */
byte seen;                /* the greatest zxid of an answer in this session */
byte zxid;                /* of the view */
byte upto;                /* scratch */
bool synced;              /* not stale */

/* Fresh. */
#define NEVER   0
#define CALLED  1
#define SYNCS   2
#define WAITS   3         /* the sync was answered */
#define RETURNS 4
byte fresh;
byte target;              /* what was committed when it was called */
bool later;               /* a round has begun since the sync */

#define STATE(m, k) states[2 * (m) + (k)]

/* The view shows all changes up to z. */
inline check(z) {
	byte i;
	for (i : 1 .. CHANGES) {
		if
		:: i <= length && i <= z -> assert(shown[znode[i]] >= i)
		:: else
		fi
	}
	i = 0
}

inline reveal(k, value) {
	assert(value >= shown[k]);
	shown[k] = value
}

inline begin_round(all) {
	cache = READS;
	todo[0] = all || marked[0];
	todo[1] = all || marked[1];
	was[0] = todo[0]; was[1] = todo[1]; whole = all;
	later = fresh == WAITS
}

inline end_round() {
	reveal(0, got[0]);
	reveal(1, got[1]);
#ifdef BROKEN_MARKS
	marked[0] = false; marked[1] = false;
#endif
#ifndef BROKEN_ZXID
	if
	:: marked[0] -> upto = floor[0]
	:: else -> upto = last
	fi;
	if
	:: marked[1] && floor[1] < upto -> upto = floor[1]
	:: else
	fi;
#else
	upto = last;
#endif
	if
	:: upto > zxid -> zxid = upto
	:: else
	fi;
	upto = 0;
	check(zxid);
	synced = true; have = true;
	since[0] = (whole -> last : (was[0] -> at[0] : since[0]));
	since[1] = (whole -> last : (was[1] -> at[1] : since[1]));
	was[0] = false; was[1] = false; at[0] = 0; at[1] = 0; whole = false;
	if
	:: fresh == WAITS && (later || !marked[0] && !marked[1]) ->
		fresh = RETURNS;
		check(target)
	:: else
	fi;
	if
	:: marked[0] || marked[1] -> begin_round(false)
	:: else -> cache = IDLE
	fi
}

#ifdef BROKEN_FORGET
#define SEES(z) true
#else
#define SEES(z) (z >= seen)
#endif

active proctype Cache() {
	byte what, k, z;
end:	do
	:: d_step { cache == DOWN && SEES(applied[0]) ->
		member = 0; cache = ARMS;
		printf("cache: connects to the leader\n") }
	:: d_step { cache == DOWN && SEES(applied[1]) ->
		member = 1; cache = ARMS;
		printf("cache: connects to the follower\n") }
#ifdef BROKEN_WALK_FIRST
	:: d_step { cache == ARMS && request == 0 -> begin_round(true);
		printf("cache: begins to read\n") }
	:: d_step { cache == IDLE && !watched && request == 0 -> request = ARMED;
		printf("cache: asks for the watch\n") }
#else
	:: d_step { !ONE_SHOT && cache == ARMS && request == 0 -> request = ARMED;
		printf("cache: asks for the watch\n") }
#endif
	:: d_step { ONE_SHOT && have && cache == ARMS && request == 0 -> request = ARMED;
#ifdef BROKEN_SINCE
		since[0] = seen; since[1] = seen;
#endif
		printf("cache: sets its watches again\n") }
	:: d_step { ONE_SHOT && !have && cache == ARMS && request == 0 -> begin_round(true);
		printf("cache: begins to read\n") }
	:: d_step { cache == READS && request == 0 && (todo[0] || todo[1]) ->
		if
		:: todo[0] -> request = READ_0
		:: else -> request = READ_1
		fi;
		printf("cache: reads znode %d\n", request == READ_1) }
	:: d_step { cache == READS && request == 0 && !todo[0] && !todo[1] ->
		end_round();
		printf("cache: shows %d and %d, zxid %d\n", shown[0], shown[1], zxid) }
	:: d_step { cache == IDLE && (marked[0] || marked[1]) ->
		begin_round(false);
		printf("cache: begins to read what is marked\n") }

	:: d_step { answers ? [EVENT, k, z] -> answers ? EVENT, k, z;
		if
		:: !marked[k] -> marked[k] = true; floor[k] = last
		:: else
		fi;
#ifdef BROKEN_BY_EVENT
		reveal(k, z); got[k] = z; marked[k] = false;
#endif
		printf("cache: hears that znode %d has changed\n", k) }
	:: d_step { answers ? [ARMED, k, z] -> answers ? ARMED, k, z;
		request = 0; seen = z;
		if
		:: ONE_SHOT -> since[0] = z; since[1] = z; last = z
		:: else
		fi;
#ifdef BROKEN_WALK_FIRST
		skip;
#else
#ifdef BROKEN_UNREAD
		marked[0] = false; marked[1] = false;
#endif
#ifdef BROKEN_NO_WALK
		if
		:: zxid > 0 -> cache = IDLE; synced = true
		:: else -> begin_round(true)
		fi;
#else
		begin_round(!ONE_SHOT);
#endif
#endif
		printf("cache: has the watch\n") }
	:: d_step { answers ? [READ_0, k, z] -> answers ? READ_0, k, z;
		request = 0; got[0] = k; at[0] = z; todo[0] = false; marked[0] = false; floor[0] = 0; last = z; seen = z;
		printf("cache: has read %d, zxid %d\n", k, z) }
	:: d_step { answers ? [READ_1, k, z] -> answers ? READ_1, k, z;
		request = 0; got[1] = k; at[1] = z; todo[1] = false; marked[1] = false; floor[1] = 0; last = z; seen = z;
		printf("cache: has read %d, zxid %d\n", k, z) }
	:: d_step { answers ? [SYNCED, k, z] -> answers ? SYNCED, k, z;
		seen = z; fresh = WAITS; later = false;
		printf("Fresh: is synced\n") }

	:: d_step { fresh == CALLED && member != NOBODY ->
#ifdef BROKEN_NO_SYNC
		fresh = WAITS; later = false;
#else
		fresh = SYNCS; sync = true;
#endif
		printf("Fresh: syncs\n") }
#ifdef BROKEN_NO_ROUND
	:: d_step { fresh == WAITS && synced ->
#else
	:: d_step { fresh == WAITS && synced && cache == IDLE && !marked[0] && !marked[1] ->
#endif
		fresh = RETURNS;
		check(target);
		printf("Fresh: returns\n") }

	:: d_step { member != NOBODY && losses < LOSSES ->
		losses++; member = NOBODY; cache = DOWN; synced = false; watched = false; request = 0; sync = false;
#ifndef BROKEN_OPEN
		marked[0] = marked[0] || was[0]; marked[1] = marked[1] || was[1];
#endif
#ifndef BROKEN_DROP
		marked[0] = marked[0] && ONE_SHOT && have; marked[1] = marked[1] && ONE_SHOT && have;
#else
		marked[0] = false; marked[1] = false;
#endif
		watch[0] = false; watch[1] = false; was[0] = false; was[1] = false; at[0] = 0; at[1] = 0; whole = false;
		got[0] = shown[0]; got[1] = shown[1]; todo[0] = false; todo[1] = false;
		floor[0] = 0; floor[1] = 0; last = 0;
		do
		:: len(answers) > 0 -> answers ? what, k, z
		:: else -> break
		od;
		what = 0; k = 0; z = 0;
		if
		:: fresh == SYNCS -> fresh = CALLED
		:: else
		fi;
		printf("network: loses the connection\n") }
	od
}

active proctype Caller() {
	d_step { fresh = CALLED; target = length;
		printf("caller: calls Fresh, %d transactions are committed\n", target) }
}

active proctype Writers() {
end:	do
	:: d_step { length < CHANGES ->
		length++; znode[length] = 0;
		printf("writer: changes znode 0, transaction %d\n", length) }
	:: d_step { length < CHANGES ->
		length++; znode[length] = 1;
		printf("writer: changes znode 1, transaction %d\n", length) }
	od
}

proctype Member(byte m) {
end:	do
	:: d_step { applied[m] < length && nfull(answers) ->
		applied[m]++;
		STATE(m, znode[applied[m]]) = applied[m];
		if
		:: member == m && (watched || watch[znode[applied[m]]]) ->
			watch[znode[applied[m]]] = false;
			answers ! EVENT, znode[applied[m]], applied[m]
		:: else
		fi;
		printf("member %d: applies transaction %d\n", m, applied[m]) }
	:: d_step { ONE_SHOT && member == m && request == ARMED && empty(answers) ->
		request = ANSWERED;
		if
		:: marked[0]
		:: !marked[0] && STATE(m, 0) > since[0] -> answers ! EVENT, 0, STATE(m, 0)
		:: else -> watch[0] = true
		fi;
		if
		:: marked[1]
		:: !marked[1] && STATE(m, 1) > since[1] -> answers ! EVENT, 1, STATE(m, 1)
		:: else -> watch[1] = true
		fi;
		answers ! ARMED, 0, applied[m];
		printf("member %d: sets the watches\n", m) }
	:: d_step { !ONE_SHOT && member == m && request == ARMED && !watched && nfull(answers) ->
		watched = true; answers ! ARMED, 0, applied[m];
		printf("member %d: has the watch\n", m) }
	:: d_step { member == m && request == READ_0 && nfull(answers) ->
		request = ANSWERED; watch[0] = ONE_SHOT; answers ! READ_0, STATE(m, 0), applied[m];
		printf("member %d: answers a read\n", m) }
	:: d_step { member == m && request == READ_1 && nfull(answers) ->
		request = ANSWERED; watch[1] = ONE_SHOT; answers ! READ_1, STATE(m, 1), applied[m];
		printf("member %d: answers a read\n", m) }
	:: d_step { member == m && sync && applied[m] >= target && nfull(answers) ->
		sync = false; answers ! SYNCED, 0, applied[m];
		printf("member %d: answers the sync\n", m) }
	od
}

active proctype Quiet() {
	timeout ->
	assert(cache == IDLE && synced && shown[0] == STATE(0, 0) && shown[1] == STATE(0, 1));
	assert(fresh == RETURNS)
}

init {
	atomic { run Member(0); run Member(1) }
}

ltl returns { <> (fresh == RETURNS) }
