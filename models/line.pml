/*
The line: clients join, wait for the znode ahead, are granted, hand off, linger,
lose their grant and leave, while connections are cut, answers are lost, members
lag behind, sessions end, and somebody else removes znodes.

Proves
    - Two callers never believe at one moment that they hold: a grant is held,
      or lost with its work still stopping before the deadline. This is asserted
      at each grant, and so is the next one:
    - Each grant has a greater token than all before it.
    - Both hold until a stranger removes a znode that is first in line; from then
      on they cannot.
    - A client that holds finds its znode missing only if a stranger removed one.
    - When nothing can happen any more, no caller waits, and no znode is left in
      a session that lives, except one that lingers. So no wake-up is lost.
    - served: under weak fairness, each caller that waits is granted, or gives up.

Code
    in the model                      | in the code
    a caller comes                    | recipes/internal/line/localqueue.go: (*localQueue).join, recipes/internal/line/handoff.go: (*localQueue).expectLocked
    a caller gives up                 | recipes/internal/line/localqueue.go: (*localQueue).giveUp, recipes/internal/line/departure.go: (*contender).depart
    step OUT to JOIN                  | recipes/internal/line/localqueue.go: (*localQueue).serveLocked, recipes/internal/line/acquisition.go: (*acquisition).run
    joins                             | recipes/internal/line/acquisition.go: (*acquisition).join, internal/managed/writes/protected.go: (*Writes).CreateProtected
    looks for its znode               | internal/managed/writes/protected.go: (*protectedCreate).findAgain
    gives its id up                   | internal/managed/writes/strays.go: (*strays).expect
    sees, is gone                     | recipes/internal/line/contender.go: (*contender).blocker, recipes/internal/line/rule.go: (*Rule).blocker
    watches, have left already        | recipes/internal/line/outlook.go: (*contender).watch, internal/managed/watches/armed.go: (*Watches).armTogether
    has heard                         | recipes/internal/line/outlook.go: (*contender).news, internal/managed/watches/armed.go: (*Armed).GoneBehind
    looks again                       | recipes/internal/line/contender.go: (*contender).wait, internal/managed/watches/hub.go: (*hub).onEvent
    is granted                        | recipes/internal/line/contender.go: (*contender).claim, recipes/internal/line/contender.go: (*grant).claim, recipes/internal/line/acquisition.go: (*acquisition).admit
    token                             | recipes/internal/line/contender.go: (*contender).rank, recipes/internal/line/share.go: (*Share).Rank
    releases                          | recipes/internal/line/share.go: (*Share).leaveLocked, recipes/internal/line/handoff.go: (*localQueue).keepLocked
    resume                            | recipes/internal/line/handoff.go: (*grant).resumeLocked, recipes/internal/line/handoff.go: (*grant).mayServeLocked
    looks at the line behind          | recipes/internal/line/contention.go: (*grant).watchContention, recipes/internal/line/contention.go: (*grant).foundContention
    deletes its znode                 | recipes/internal/line/departure.go: (*grant).departLocked, recipes/internal/line/departure.go: (*grant).awaitDeparture
    cannot delete, in the background  | internal/managed/writes/strays.go: (*strays).discard
    lose                              | recipes/internal/line/grant.go: (*grant).loseLocked
    is told that its znode was removed | recipes/internal/line/node_watch.go: (*grant).watchNode, recipes/internal/line/grant.go: (*grant).loseDeletedLocked
    its work has stopped, or ...      | recipes/internal/line/grant.go: (*grant).discard
    its stop margin has come          | internal/managed/session/heartbeat.go: (*Session).checkClock, internal/managed/session/life.go: (*life).loseHolds
    its session is over               | internal/managed/session/session.go: (*Session).End
    is connected again                | internal/managed/session/run.go: (*Session).onConnected, internal/managed/watches/hub.go: (*hub).reset
    has a new session                 | recipes/internal/line/acquisition.go: (*acquisition).run
    expires                           | internal/managed/servers/close.go: (*Servers).CloseLost

Bounds
    CLIENTS processes, each with CALLS callers that come at any time; ZNODES, of
    which no run may need more; HANDOFFS to other callers of a process while
    others stand in line; LINGER=1: znodes linger, without an end of their own.
    How often each fault may happen, at any moment: LOST answers (to creates and
    deletes), CUTS of a connection, DOUBTS (the stop margin comes), EXPIRIES of
    sessions in doubt, CANCELS of a wait, STRANGERS that remove a znode of
    client 0, REVOKES: writes to a znode by somebody who asks for its release.

Leaves out
    - Time. The model of the deadline shows that the ensemble expires a session
      only after the client has passed its deadline. Here that is assumed: a
      session expires only after its client knows that it is over.
    - What makes up for a lost event: the look after a session timeout, and the
      looks of a holder each quarter of it. The model does without them.
    - How a given-up id is found: creates.pml shows that it is deleted in time.
    - The watches at the server: a watch that is lost with its connection counts
      as fired when the client is connected again.
    - Where a view is old, it is the whole line of an earlier moment, however
      old. A client catches up when it gets an answer to a write or a sync.
    - Tries, readers that share, permits, guards, what a holder does about a
      revocation, other layouts, an end of the client. A call that fails has the
      effects of one that gives up.
    - Callers of a process are a number: their order is not looked at.

Runs
    run       | checks     | small | large
    faults    | assertions | CLIENTS=2 ZNODES=7 CALLS=1 LOST=1 CUTS=1 DOUBTS=1 EXPIRIES=1 CANCELS=1 | CLIENTS=2 ZNODES=7 CALLS=1 LOST=1 CUTS=1 DOUBTS=1 EXPIRIES=1 CANCELS=1 STRANGERS=1
    handoffs  | assertions | CLIENTS=2 ZNODES=7 CALLS=2 HANDOFFS=1 LINGER=1 LOST=1 DOUBTS=1 CANCELS=1 | CLIENTS=2 ZNODES=8 CALLS=2 HANDOFFS=1 LINGER=1 LOST=1 CUTS=1 DOUBTS=1 EXPIRIES=1
    strangers | assertions | CLIENTS=2 ZNODES=7 CALLS=2 CUTS=1 STRANGERS=1 REVOKES=1 | CLIENTS=2 ZNODES=7 CALLS=2 HANDOFFS=1 LOST=1 CUTS=1 STRANGERS=2 REVOKES=1
    three     | assertions | CLIENTS=3 ZNODES=7 CALLS=1 CUTS=1 DOUBTS=1 EXPIRIES=1 | CLIENTS=3 ZNODES=7 CALLS=1 CUTS=1 DOUBTS=1 EXPIRIES=1 CANCELS=1
    served    | ltl served | CLIENTS=2 ZNODES=7 CALLS=1 CUTS=1 LOST=1 | CLIENTS=2 ZNODES=7 CALLS=1 CUTS=1 LOST=1 DOUBTS=1 EXPIRIES=1

Broken
    variant               | run      | bounds | what is wrong
    BROKEN_LIST_FIRST     | faults   | CLIENTS=2 ZNODES=7 CALLS=1 | The line is listed before the create.
    BROKEN_NO_RECHECK     | faults   | CLIENTS=2 ZNODES=7 CALLS=1 | A watch is set without a look whether the znode still exists.
    BROKEN_NO_RESET       | faults   | CLIENTS=2 ZNODES=7 CALLS=1 CUTS=1 | After a reconnect nobody looks again, and the watch is gone.
    BROKEN_KEEP_LOST      | faults   | CLIENTS=2 ZNODES=7 CALLS=1 DOUBTS=1 | The znode of a lost grant is not removed while the session lives.
    BROKEN_REMOVE_AT_LOSS | faults   | CLIENTS=2 ZNODES=7 CALLS=1 DOUBTS=1 | The znode of a lost grant is removed while its work may still be stopping.
    BROKEN_FORGET_ID      | faults   | CLIENTS=2 ZNODES=7 CALLS=1 LOST=1 | An id that was given up is not remembered.
    BROKEN_DEADLINE       | faults   | CLIENTS=2 ZNODES=7 CALLS=1 DOUBTS=1 EXPIRIES=1 | A grant is still held when the deadline has passed.
    BROKEN_CANCEL         | faults   | CLIENTS=2 ZNODES=7 CALLS=1 CANCELS=1 | A caller that gives up leaves its znode in line.
    BROKEN_LINGER         | handoffs | CLIENTS=2 ZNODES=7 CALLS=1 LINGER=1 | A znode lingers without a look at the line.
    BROKEN_NO_OWN_WATCH   | strangers | CLIENTS=2 ZNODES=7 CALLS=2 STRANGERS=1 | Who waits does not watch its own znode.
    BROKEN_REVOKED        | strangers | CLIENTS=2 ZNODES=7 CALLS=2 STRANGERS=1 REVOKES=1 | The watch of its own znode is used up by a write, and is not set again.
    BROKEN_RECONNECT      | faults   | CLIENTS=2 ZNODES=7 CALLS=1 CUTS=1 | That a reconnect fires the watch is taken for the event.
    BROKEN_TWO_AHEAD      | three    | CLIENTS=3 ZNODES=7 CALLS=1 CANCELS=1 | The event of the nearest ahead grants although there were others.
    BROKEN_NO_RECHECK     | served   | CLIENTS=2 ZNODES=7 CALLS=1 | The same, and who waits is never served.

Measured
    run       | bounds | states     | depth | seconds
    faults    | small  | 440,641    | 122   | 4.1
    faults    | large  | 3,030,373  | 64    | 18.4
    handoffs  | small  | 1,029,232  | 183   | 10.3
    handoffs  | large  | 5,095,060  | 83    | 31.2
    strangers | small  | 182,975    | 180   | 2.0
    strangers | large  | 21,435,072 | 78    | 183
    three     | small  | 1,173,147  | 178   | 13.5
    three     | large  | 2,931,983  | 81    | 20.4
    served    | small  | 23,300     | 143   | 0.9
    served    | large  | 480,319    | 102   | 15.9
*/

/* What a run does not mention does not happen. */
#ifndef LINGER
#define LINGER 0
#endif
#ifndef HANDOFFS
#define HANDOFFS 0
#endif
#ifndef LOST
#define LOST 0
#endif
#ifndef CUTS
#define CUTS 0
#endif
#ifndef DOUBTS
#define DOUBTS 0
#endif
#ifndef EXPIRIES
#define EXPIRIES 0
#endif
#ifndef CANCELS
#define CANCELS 0
#endif
#ifndef STRANGERS
#define STRANGERS 0
#endif
#ifndef REVOKES
#define REVOKES 0
#endif

#define NONE 15
#define bit(k) (1 << (k))
#define has(set, k) (((set) >> (k)) & 1)

/* ---- the ensemble: a znode is its number, sets of znodes are bits ---- */

byte next;                /* the next number */
byte mine[CLIENTS];       /* those of the session that the client has now */
byte old[CLIENTS];        /* those of its sessions that are over, until the ensemble knows */
byte line;                /* all of them */

/* What its member has shown a client: the line as it was at some moment, not
   before what the client has seen already. */
byte view[CLIENTS];

/* ---- a client's session ---- */

#define PROVEN 0
#define DOUBT  1          /* less than the stop margin is left */
#define OVER   2          /* the deadline has passed */
byte session[CLIENTS];
bool down[CLIENTS];       /* it has no connection */
byte deleting[CLIENTS];   /* set of znodes that it deletes in the background */
bool late[CLIENTS];       /* a create whose id was given up may still be executed */

#define online(c) (!down[c] && session[c] != OVER)

/* ---- its callers ---- */

byte calls[CLIENTS] = CALLS;   /* how many will still come */
byte waiting[CLIENTS];         /* how many are in the local queue */

/* ---- its acquisition ---- */

#define OUT    0          /* there is none */
#define JOIN   1          /* about to create its znode */
#define SEARCH 2          /* for that znode: the answer was lost */
#define LIST   3          /* about to list the line */
#define WATCH  4          /* about to watch its znode, and those ahead */
#define WAIT   5          /* for an event */
#define CLAIM  6          /* nobody is ahead */
byte step[CLIENTS];
byte own[CLIENTS] = NONE;
byte ahead[CLIENTS];      /* set of the nearest two ahead, by the latest list, that are not known to have left */
bool whole[CLIENTS];      /* there were no others ahead */
byte watched[CLIENTS];    /* set of those whose watch the member has */
bool guarded[CLIENTS];    /* the member has the watch of its own znode */
bool heard[CLIENTS];      /* one ahead has left */
bool fired[CLIENTS];      /* a watch has fired for another reason */
bool crowded[CLIENTS];    /* others stand in line, as far as is known */

/* ---- its grant ---- */

#define FREE    0         /* there is none */
#define HELD    1
#define IDLE    2         /* kept for the next caller */
#define LEAVING 3         /* being removed */
byte grant[CLIENTS];
byte znode[CLIENTS] = NONE;
byte handoffs[CLIENTS];   /* in all: a part of the token */
byte more[CLIENTS];       /* since others are known to stand in line */

#define NOT_LOOKED  0     /* nobody looks at the line behind it */
#define UNKNOWN     1     /* a look is due */
#define UNCONTESTED 2     /* and a watch of the directory is armed */
#define CONTESTED   3
byte known[CLIENTS];

byte lost[CLIENTS] = NONE;   /* the znode of a lost grant whose work may still be stopping */

#define believes(c)  (grant[c] == HELD || lost[c] != NONE)

/* ---- what may happen, and how often ---- */

byte answers = LOST;         /* answers that are lost */
byte cuts = CUTS;            /* connections that are lost */
byte doubts = DOUBTS;        /* sessions in doubt */
byte expiries = EXPIRIES;    /* sessions that end */
byte cancels = CANCELS;      /* callers that give up */
byte strangers = STRANGERS;  /* znodes removed by somebody else */
byte revokes = REVOKES;      /* znodes written to */
bool disturbed;              /* a stranger has removed one that was first in line */

byte token;                  /* the latest */
byte k, z;                   /* of one step: 0 behind it */

/* ---- parts of steps ---- */

inline no_grant(c) {
	grant[c] = FREE; znode[c] = NONE; known[c] = NOT_LOOKED; more[c] = 0; handoffs[c] = 0
}

inline no_acquisition(c) {
	step[c] = OUT; own[c] = NONE; ahead[c] = 0; whole[c] = false; crowded[c] = false;
	watched[c] = 0; guarded[c] = false; heard[c] = false; fired[c] = false
}

/* The grant of client c ends before it was released. A removal goes on. */
inline lose(c) {
	if
	:: grant[c] == HELD ->
		lost[c] = znode[c];
#ifdef BROKEN_REMOVE_AT_LOSS
		deleting[c] = deleting[c] | bit(znode[c]);
#endif
		no_grant(c)
	:: grant[c] == IDLE ->
		deleting[c] = deleting[c] | (bit(znode[c]) & mine[c]);
		no_grant(c)
	:: else
	fi
}

/* The member of client c shows it the line as it is now. */
inline catch_up(c) {
	known[c] = (known[c] == UNCONTESTED && view[c] != line -> UNKNOWN : known[c]);
	view[c] = line;
	heard[c] = heard[c] || (watched[c] & ~line) != 0;
	ahead[c] = ahead[c] & ~(watched[c] & ~line);
	watched[c] = watched[c] & line;
	fired[c] = fired[c] || guarded[c] && !has(line, own[c]);
	guarded[c] = guarded[c] && has(line, own[c])
}

inline create(c) {
	assert(next < ZNODES);
	z = next;
	mine[c] = mine[c] | bit(z);
	line = line | bit(z);
	next++
}

inline remove(c, nodes) {
	line = line & ~(nodes);
	mine[c] = mine[c] & ~(nodes);
	old[c] = old[c] & ~(nodes)
}

/* A caller of client c is given the grant. */
#define new_token(c)  (1 + 8 * znode[c] + handoffs[c])
inline begin(c) {
	for (k : 0 .. CLIENTS - 1) {
		assert(!believes(k) || disturbed)
	}
	k = 0;
	assert(token < new_token(c) || disturbed);
	token = new_token(c);
	grant[c] = HELD;
	waiting[c]--
}

/* An idle grant goes to a caller that waits, or is kept, or leaves. */
#define may_serve(c)  (!down[c] && session[c] == PROVEN)
#define leaves(c)     (known[c] == CONTESTED && (waiting[c] == 0 || more[c] == HANDOFFS) || waiting[c] == 0 && !LINGER)
inline resume(c) {
	if
	:: grant[c] != IDLE
#ifdef BROKEN_DEADLINE
	:: grant[c] == IDLE && leaves(c) ->
#else
	:: grant[c] == IDLE && (!may_serve(c) || leaves(c)) ->
#endif
		grant[c] = LEAVING; known[c] = NOT_LOOKED;
		printf("client %d: its znode %d begins to leave\n", c, znode[c])
	:: else ->
		if
		:: known[c] == NOT_LOOKED -> known[c] = UNKNOWN
		:: known[c] >= UNCONTESTED && waiting[c] > 0 ->
			more[c] = more[c] + (known[c] == CONTESTED);
			printf("client %d: hands znode %d off\n", c, znode[c]);
			begin(c)
		:: else
		fi
	fi
}

/* ---- the actors ---- */

proctype Callers(byte c) {
end:	do
	:: d_step { calls[c] > 0 ->
		calls[c]--; waiting[c]++;
		printf("client %d: a caller comes\n", c);
		if
		:: grant[c] == IDLE -> resume(c)
		:: grant[c] == HELD && HANDOFFS > 0 && known[c] == NOT_LOOKED -> known[c] = UNKNOWN
		:: else
		fi }
	:: d_step { waiting[c] > 0 && cancels > 0 ->
		cancels--; waiting[c]--;
		printf("client %d: a caller gives up\n", c);
		if
		:: waiting[c] == 0 && step[c] != OUT ->
#ifndef BROKEN_CANCEL
			deleting[c] = deleting[c] | (bit(own[c]) & mine[c]);
#endif
			no_acquisition(c)
		:: waiting[c] == 0 && step[c] == OUT -> resume(c)
		:: else
		fi }
	:: d_step { grant[c] == HELD ->
		printf("client %d: releases\n", c);
		grant[c] = IDLE; handoffs[c]++;
		if
		:: waiting[c] > 0 && HANDOFFS == 0 -> grant[c] = LEAVING; known[c] = NOT_LOOKED
		:: else -> resume(c)
		fi }
	:: d_step { lost[c] != NONE ->
		printf("client %d: its work has stopped, or the deadline of its lost grant has passed\n", c);
#ifndef BROKEN_KEEP_LOST
		deleting[c] = deleting[c] | (bit(lost[c]) & mine[c]);
#endif
		lost[c] = NONE }
	od
}

/* The nearest of a set of znodes ahead. */
#define highest(set) ((set) >= 128 -> 128 : ((set) >= 64 -> 64 : ((set) >= 32 -> 32 : ((set) >= 16 -> 16 : ((set) >= 8 -> 8 : ((set) >= 4 -> 4 : ((set) >= 2 -> 2 : (set))))))))

#ifdef BROKEN_NO_OWN_WATCH
#define may_wait(c) true
#define may_guard false
#else
#define may_wait(c) has(view[c], own[c])
#define may_guard true
#endif

proctype Acquisition(byte c) {
end:	do
	:: d_step { step[c] == OUT && waiting[c] > 0 && grant[c] == FREE ->
		step[c] = JOIN }

	:: d_step { step[c] == JOIN && online(c) ->
		create(c);
#ifdef BROKEN_LIST_FIRST
		view[c] = view[c] | bit(z);
#else
		catch_up(c);
#endif
		own[c] = z;
		printf("client %d: joins with znode %d\n", c, z);
		z = 0;
		step[c] = LIST }
	:: d_step { step[c] == JOIN && online(c) && answers > 0 ->
		answers--;
		create(c);
		own[c] = z;
		printf("client %d: joins with znode %d, but the answer is lost\n", c, z);
		z = 0;
		step[c] = SEARCH }
	:: d_step { step[c] == JOIN && online(c) && answers > 0 && !late[c] ->
		answers--;
		late[c] = true;
		printf("client %d: has lost the answer to a create, cannot find the znode, and gives its id up\n", c) }

	:: d_step { step[c] == SEARCH && online(c) ->
		catch_up(c);
		printf("client %d: looks for its znode %d\n", c, own[c]);
		step[c] = LIST }

	:: d_step { step[c] == LIST && online(c) ->
		if
		:: !has(view[c], own[c]) -> catch_up(c)
		:: else
		fi;
		z = view[c] & (bit(own[c]) - 1);
		ahead[c] = 0;
		for (k : 0 .. 1) {
			ahead[c] = ahead[c] | highest(z & ~ahead[c])
		}
		k = 0;
		whole[c] = z == ahead[c];
#ifdef BROKEN_TWO_AHEAD
		ahead[c] = highest(z);
		whole[c] = true;
#endif
		z = 0;
		watched[c] = watched[c] & ahead[c];
		heard[c] = false;
		crowded[c] = view[c] != bit(own[c]);
		if
		:: !has(view[c], own[c]) ->
			printf("client %d: its znode %d is gone, it joins again\n", c, own[c]);
			no_acquisition(c); step[c] = JOIN
		:: has(view[c], own[c]) && ahead[c] == 0 ->
			printf("client %d: sees nobody ahead of its znode %d\n", c, own[c]);
			step[c] = CLAIM
		:: else ->
			printf("client %d: sees others ahead of its znode %d\n", c, own[c]);
			step[c] = WATCH
		fi }

	:: d_step { step[c] == WATCH && online(c) ->
		if
#ifndef BROKEN_NO_OWN_WATCH
		:: !has(view[c], own[c]) ->
			printf("client %d: its znode %d has left already\n", c, own[c]);
			step[c] = LIST
#endif
#ifndef BROKEN_NO_RECHECK
		:: may_wait(c) && (ahead[c] & ~view[c]) != 0 ->
			printf("client %d: one ahead has left already\n", c);
			ahead[c] = ahead[c] & view[c];
			watched[c] = ahead[c]; guarded[c] = may_guard; crowded[c] = true;
			step[c] = (!whole[c] -> LIST : (ahead[c] == 0 -> CLAIM : WAIT))
#endif
		:: else ->
			printf("client %d: watches those ahead, and its znode %d\n", c, own[c]);
			watched[c] = ahead[c] & view[c]; guarded[c] = may_guard; step[c] = WAIT
		fi }

	:: d_step { step[c] == WAIT && fired[c] ->
		printf("client %d: a watch has fired, it looks again\n", c);
		fired[c] = false; step[c] = LIST }
	:: d_step { step[c] == WAIT && !fired[c] && heard[c] && !whole[c] ->
		printf("client %d: has heard that one ahead has left, and looks again\n", c);
		step[c] = LIST }
	:: d_step { step[c] == WAIT && !fired[c] && heard[c] && whole[c] && ahead[c] == 0 ->
		printf("client %d: has heard that nobody is ahead\n", c);
		crowded[c] = true; step[c] = CLAIM }

	:: d_step { step[c] == CLAIM && session[c] == PROVEN ->
		znode[c] = own[c];
		known[c] = (crowded[c] -> CONTESTED : (LINGER || waiting[c] > 1 && HANDOFFS > 0 -> UNKNOWN : NOT_LOOKED));
		no_acquisition(c);
		printf("client %d: is granted znode %d\n", c, znode[c]);
		begin(c) }
	od
}

/* The grant: the watch of its znode, the look at the line behind it, and its
   removal. */
proctype Grant(byte c) {
end:	do
	:: d_step { (grant[c] == HELD || grant[c] == IDLE) && online(c) && !has(view[c], znode[c]) ->
		assert(disturbed);
		printf("client %d: is told that its znode %d was removed\n", c, znode[c]);
		lose(c);
		lost[c] = NONE /* others may be granted already */ }
	:: d_step { known[c] == UNKNOWN && online(c) && has(view[c], znode[c]) ->
#ifdef BROKEN_LINGER
		known[c] = UNCONTESTED;
#else
		known[c] = (view[c] == bit(znode[c]) -> UNCONTESTED : CONTESTED);
#endif
		printf("client %d: looks at the line behind its znode %d\n", c, znode[c]);
		resume(c) }
	:: d_step { grant[c] == LEAVING && online(c) ->
		printf("client %d: deletes its znode %d\n", c, znode[c]);
		remove(c, bit(znode[c]));
		no_grant(c);
		catch_up(c) }
	:: d_step { grant[c] == LEAVING && online(c) && answers > 0 ->
		answers--;
		printf("client %d: deletes its znode %d, but the answer is lost\n", c, znode[c]);
		remove(c, bit(znode[c])) }
	:: d_step { grant[c] == LEAVING && online(c) && answers > 0 ->
		answers--;
		printf("client %d: cannot delete its znode %d now, and deletes it in the background\n", c, znode[c]);
		deleting[c] = deleting[c] | (bit(znode[c]) & mine[c]);
		no_grant(c) }
	od
}

proctype Session(byte c) {
end:	do
	:: d_step { online(c) && view[c] != line && (own[c] != NONE || znode[c] != NONE) ->
		printf("client %d: its member catches up\n", c);
		catch_up(c) }
	:: d_step { online(c) && cuts > 0 ->
		cuts--; down[c] = true; watched[c] = 0; guarded[c] = false;
		printf("client %d: is cut off\n", c) }
	:: d_step { down[c] && session[c] != OVER ->
		down[c] = false;
#ifdef BROKEN_RECONNECT
		heard[c] = (step[c] == WAIT);
		ahead[c] = (step[c] == WAIT -> 0 : ahead[c]);
#elif !defined(BROKEN_NO_RESET)
		fired[c] = (step[c] == WAIT);
#endif
#ifndef BROKEN_NO_RESET
		known[c] = (known[c] == UNCONTESTED -> UNKNOWN : known[c]);
#endif
		printf("client %d: is connected again\n", c) }
	:: d_step { session[c] == PROVEN && doubts > 0 ->
		doubts--; session[c] = DOUBT;
		printf("client %d: its stop margin has come\n", c);
#ifndef BROKEN_DEADLINE
		lose(c)
#endif
		}
	:: d_step { session[c] == DOUBT ->
		session[c] = PROVEN;
		printf("client %d: its session is proven again\n", c) }
	:: d_step { session[c] == DOUBT && expiries > 0 ->
		expiries--; session[c] = OVER; down[c] = false;
		printf("client %d: its deadline has passed, and its session is over\n", c);
		old[c] = old[c] | mine[c]; mine[c] = 0; deleting[c] = 0; late[c] = false;
		lost[c] = NONE;
#ifndef BROKEN_DEADLINE
		no_grant(c);
#endif
		no_acquisition(c) }
	:: d_step { session[c] == OVER ->
		session[c] = PROVEN;
		printf("client %d: has a new session\n", c) }
	:: d_step { deleting[c] != 0 && online(c) ->
		printf("client %d: deletes in the background what it has given up\n", c);
		remove(c, deleting[c]);
		deleting[c] = 0;
		catch_up(c) }
	od
}

proctype Ensemble(byte c) {
end:	do
	:: d_step { late[c] ->
		late[c] = false;
		create(c);
		printf("ensemble: executes a create that client %d has given up, as znode %d\n", c, z);
#ifndef BROKEN_FORGET_ID
		deleting[c] = deleting[c] | bit(z);
#endif
		z = 0 }
	:: d_step { late[c] ->
		late[c] = false;
		printf("ensemble: never executes the create that client %d has given up\n", c) }
	:: d_step { old[c] != 0 ->
		printf("ensemble: expires an old session of client %d\n", c);
		remove(c, old[c]) }
	od
}

#ifdef BROKEN_REVOKED
#define tells_of(c, nodes) ((watched[c] & (nodes)) != 0)
#else
#define tells_of(c, nodes) ((watched[c] & (nodes)) != 0 || guarded[c] && bit(own[c]) == (nodes))
#endif

/* A write to a znode uses up the watches of it. */
inline write_to(nodes) {
	revokes--;
	z = nodes;
	for (c : 0 .. CLIENTS - 1) {
		fired[c] = fired[c] || tells_of(c, z);
		watched[c] = watched[c] & ~z;
		guarded[c] = guarded[c] && bit(own[c]) != z
	}
	c = 0; z = 0
}

proctype Stranger() {
	byte c;
end:	do
	:: d_step { strangers > 0 && mine[0] != 0 ->
		strangers--;
		z = mine[0] & -mine[0];
		disturbed = disturbed || (line & (z - 1)) == 0;
		printf("a stranger: removes a znode of client 0\n");
		remove(0, z);
		z = 0 }
	:: d_step { revokes > 0 && line != 0 ->
		write_to(line & -line);
		printf("a stranger: writes to the first in line\n") }
	:: d_step { revokes > 0 && line != 0 ->
		write_to(highest(line));
		printf("a stranger: writes to the last in line\n") }
	od
}

/* When nothing can happen any more. */
active proctype Quiet() {
	byte c;
	timeout ->
	for (c : 0 .. CLIENTS - 1) {
		assert(waiting[c] == 0);
		assert(mine[c] == 0 || LINGER && grant[c] == IDLE && mine[c] == bit(znode[c]) )
	}
}

init {
	byte c;
	atomic {
		for (c : 0 .. CLIENTS - 1) {
			run Callers(c); run Acquisition(c); run Grant(c); run Session(c); run Ensemble(c)
		}
		run Stranger()
	}
}

ltl served { [] (waiting[0] > 0 -> <> (waiting[0] == 0)) }
