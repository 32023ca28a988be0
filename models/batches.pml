/*
Group commit: the creates and deletes of a session that wait at the same moment
leave as one multi.

Each client has a few places. A place is what one local queue does: a caller
comes, a znode is created, waits in line, is held, and is deleted. Places 0 and
2 are in directory 0, place 1 is in directory 1.

Proves
    - No create is applied twice, alone or in a batch.
    - An error reaches the caller whose operation was refused, and nobody else.
    - A create never runs before a delete that its session asked for earlier, nor
      before an earlier create in its directory. Operations may run later if their
      answer was lost, or if the batch that they were in was refused.
    - Two callers never hold one directory at once, until a stranger removes a
      znode.
    - When nothing can happen any more, no caller waits, and no znode is left in
      a live session.
    - granted: under weak fairness, each caller that waits is granted, is told
      an error, or gives up.

Code
    in the model                      | in the code
    asks for a create                 | internal/managed/writes/protected.go: (*Writes).CreateProtected
    enqueue                           | internal/managed/writes/groupcommit.go: (*groupCommit).enqueue
    leave                             | internal/managed/writes/groupcommit.go: (*groupCommit).dispatchLocked, internal/managed/writes/groupcommit.go: (*groupCommit).takeLocked
    transmit, apply                   | internal/managed/writes/groupcommit.go: (*groupCommit).send
    answered                          | internal/managed/writes/groupcommit.go: (*groupCommit).landed, internal/managed/writes/groupcommit.go: (*groupCommit).answered
    catch_up, when answered           | internal/managed/writes/readbehind.go: (*groupCommit).readBehind, internal/managed/writes/readbehind.go: (*groupCommit).read
    refuse                            | internal/managed/request/multi.go: Refused
    is sent again, deletes again      | internal/managed/writes/groupcommit.go: (*groupCommit).sendAlone
    goes before the create is sent    | internal/managed/writes/groupcommit.go: (*groupCommit).takeLocked
    goes while it is under way        | internal/managed/writes/protected.go: (*protectedCreate).discardLate
    finds, does not find its znode    | internal/managed/writes/protected.go: (*protectedCreate).findAgain
    drop                              | internal/managed/writes/leave.go: (*Writes).leave, internal/managed/writes/leave.go: (*Writes).StartDelete
    CONDEMNED                         | internal/managed/writes/strays.go: (*strays).expect
    deletes its strays                | internal/managed/writes/strays.go: (*strays).onList
    its member catches up             | internal/managed/watches/hub.go: (*hub).onEvent

Bounds
    CLIENTS clients with PLACES places, and CALLS calls of each place; ZNODES in
    a directory. At most CUTS lost connections, REFUSALS of an operation, EXPIRIES
    of a session, CANCELS of a wait, STRANGERS that remove a znode of client 0.
    UNDER_WAY requests with creates, and as many with deletes, are under way at
    once: 1 if not mentioned, more in the code. ASYNC=1: the next caller comes before
    the delete is answered.

Leaves out
    - Time, and how large a batch may be.
    - A directory whose last create was refused: its next create is alone.
    - Handoffs, and leases that are lost by the clock: line.pml has them. The
      ensemble ends a session only after its client knows that it is over.
    - How a stray is found: creates.pml shows that it is deleted in time.
    - The reads of a search. They begin with a sync, and are repeated until they
      are answered, or the caller goes.

Runs
    run     | checks      | small | large
    alone   | assertions  | CLIENTS=1 PLACES=3 CALLS=1 ZNODES=7 CUTS=1 REFUSALS=1 CANCELS=1 | CLIENTS=1 PLACES=3 CALLS=1 ZNODES=7 CUTS=1 REFUSALS=2 CANCELS=1 UNDER_WAY=2
    async   | assertions  | CLIENTS=1 PLACES=2 CALLS=2 ZNODES=8 REFUSALS=1 CANCELS=1 ASYNC=1 UNDER_WAY=2 | CLIENTS=1 PLACES=3 CALLS=2 ZNODES=8 REFUSALS=2 CANCELS=1 ASYNC=1 UNDER_WAY=2
    ends    | assertions  | CLIENTS=1 PLACES=2 CALLS=1 ZNODES=7 CUTS=1 REFUSALS=1 EXPIRIES=1 CANCELS=1 STRANGERS=1 | CLIENTS=1 PLACES=2 CALLS=2 ZNODES=8 CUTS=1 REFUSALS=1 EXPIRIES=1 CANCELS=1 STRANGERS=1
    two     | assertions  | CLIENTS=2 PLACES=2 CALLS=1 ZNODES=7 CUTS=1 | CLIENTS=2 PLACES=2 CALLS=1 ZNODES=7 CUTS=1 REFUSALS=1
    granted | ltl granted | CLIENTS=1 PLACES=3 CALLS=1 ZNODES=7 CUTS=1 REFUSALS=1 | CLIENTS=2 PLACES=2 CALLS=1 ZNODES=7 CUTS=1

Broken
    variant                | run     | bounds | what is wrong
    BROKEN_LEAK            | alone   | CLIENTS=1 PLACES=3 CALLS=1 ZNODES=7 CUTS=1 REFUSALS=1 | An operation that is refused fails all of its batch.
    BROKEN_SEND_TWICE      | alone   | CLIENTS=1 PLACES=2 CALLS=1 ZNODES=7 CUTS=1 | A batch whose answer was lost is sent again as it was.
    BROKEN_NO_LOOK         | alone   | CLIENTS=1 PLACES=2 CALLS=1 ZNODES=7 CUTS=1 | A lost answer is taken for a refusal: another create follows, and nobody looks for the first.
    BROKEN_CREATES_FIRST   | async   | CLIENTS=1 PLACES=3 CALLS=2 ZNODES=7 ASYNC=1 | A batch has its creates before its deletes.
    BROKEN_TWO_CREATES     | alone   | CLIENTS=1 PLACES=3 CALLS=1 ZNODES=7 CUTS=1 | A batch has two creates in one directory, not in the order in which they were asked for.
    BROKEN_FORGET_CANCELED | alone   | CLIENTS=1 PLACES=2 CALLS=1 ZNODES=7 CANCELS=1 | The answer to a create whose caller has gone is dropped.
    BROKEN_DROP_OTHERS     | alone   | CLIENTS=1 PLACES=2 CALLS=1 ZNODES=7 CUTS=1 REFUSALS=1 | The others of a batch that was refused are not sent again.
    BROKEN_DROP_OTHERS     | granted | CLIENTS=1 PLACES=3 CALLS=1 ZNODES=7 CUTS=1 REFUSALS=1 | The same, and who waits is never granted.
    BROKEN_NEXT_SESSION    | ends    | CLIENTS=1 PLACES=2 CALLS=1 ZNODES=7 CUTS=1 EXPIRIES=1 | What was queued in one session is sent in the next.

Measured
    run     | bounds | states     | depth | seconds
    alone   | small  | 630,837    | 857   | 4.9
    alone   | large  | 1,912,732  | 67    | 83.7
    async   | small  | 2,596      | 669   | 0.2
    async   | large  | 363,624    | 72    | 9.4
    ends    | small  | 257,150    | 726   | 1.6
    two     | small  | 509,934    | 776   | 4.4
    granted | small  | 203,861    | 907   | 5.6
*/

/* What a run does not mention does not happen. */
#ifndef CUTS
#define CUTS 0
#endif
#ifndef REFUSALS
#define REFUSALS 0
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
#ifndef UNDER_WAY
#define UNDER_WAY 1
#endif
#ifndef ASYNC
#define ASYNC 0
#endif

#define DIRS 2
#define OPS  (2 * PLACES)    /* the create of place p is p, its delete is PLACES + p */
#define NONE 15
#define bit(n)      (1 << (n))
#define has(set, n) (((set) >> (n)) & 1)
#define CREATES     (bit(PLACES) - 1)
#define DELETES     (CREATES << PLACES)
#define ALONE       7        /* a request of one operation, which holds nothing back */

/* A place of a client, and a directory as a client sees it. */
#define at(c, p)   ((c) * PLACES + (p))
#define dir(p)     ((p) & 1)
#define seen(c, d) ((c) * DIRS + (d))

/* ---- the ensemble: a znode is its number in its directory ---- */

byte next[DIRS];             /* the next number */
byte line[DIRS];             /* which znodes there are */
byte mine[CLIENTS * DIRS];   /* those of the session that the client has now */
byte old[CLIENTS * DIRS];    /* those of its sessions that are over, until the ensemble knows */
byte view[CLIENTS * DIRS];   /* what its member has shown a client */

/* ---- a session ---- */

bool down[CLIENTS];          /* it has no connection */
byte stray[CLIENTS * DIRS];  /* znodes that it deletes in the background */

/* What is queued, in order; what is under way, a set of operations for each
   request; and what was under way when the connection was lost. */
byte queue[CLIENTS * OPS];
byte queued[CLIENTS];
byte sent[CLIENTS * OPS];
byte under_way[CLIENTS];
byte late[CLIENTS * OPS];
byte lates[CLIENTS];

#define q(c, n) queue[(c) * OPS + (n)]
byte again[CLIENTS];         /* operations to send again, each alone */

#define s(c, n) sent[(c) * OPS + (n)]
#define l(c, n) late[(c) * OPS + (n)]

/* ---- a place ---- */

#define OUT    0   /* nobody calls */
#define ASKED  1   /* its create is queued */
#define SENT   2   /* its create is under way */
#define LOOKS  3   /* for its znode: the answer was lost */
#define WAITS  4   /* in line */
#define HOLDS  5
#define GONE   6   /* the caller waits no longer, and its create is under way */
byte place[CLIENTS * PLACES];
byte calls[CLIENTS * PLACES] = CALLS;
byte own[CLIENTS * PLACES] = NONE;       /* its znode */

#define SOUGHT    1   /* its create may be executed late, and its caller looks for it */
#define CONDEMNED 2   /* its create may be executed late, and its id was given up */
byte belated[CLIENTS * PLACES];

#define AGAIN  3   /* the answer to its delete was lost, or it was refused */
byte delete[CLIENTS * PLACES];           /* OUT, ASKED, SENT or AGAIN */
byte leaving[CLIENTS * PLACES] = NONE;   /* the znode that it deletes */

/* ---- what the assertions need ---- */

byte earlier[CLIENTS * PLACES];  /* the operations that its create must not overtake */
bool applied[CLIENTS * PLACES];  /* its create, with the present id */
bool refused[CLIENTS * PLACES];  /* its create was refused */
bool disturbed;                  /* a stranger has removed a znode */

/* ---- what may happen, and how often ---- */

byte cuts = CUTS;
byte refusals = REFUSALS;
byte expiries = EXPIRIES;
byte cancels = CANCELS;
byte strangers = STRANGERS;

byte i, n, set, dirs, creates, deletes, head;   /* of one step: 0 behind it */

/* ---- parts of steps ---- */

/* An operation need not be waited for any longer. */
inline settled(c, op) {
	for (i : 0 .. PLACES - 1) {
		earlier[at(c, i)] = earlier[at(c, i)] & ~bit(op)
	}
	i = 0
}

/* Operations leave as one request. */
inline transmit(c, ops) {
	s(c, under_way[c]) = ops; under_way[c]++;
	printf("client %d: sends operations %d\n", c, (ops) & (CREATES | DELETES))
}

#ifdef BROKEN_TWO_CREATES
#define fits(op) true
#else
#define fits(op) ((op) >= PLACES || !has(dirs, dir(op)))
#endif

/* If what is under way holds something back no longer, everything that is
   queued leaves. */
inline leave(c) {
	for (i : 0 .. OPS - 1) {
		set = set | (i < queued[c] -> bit(q(c, i)) : 0);
		creates = creates + (i < under_way[c] && !has(s(c, i), ALONE) && (s(c, i) & CREATES) != 0);
		deletes = deletes + (i < under_way[c] && !has(s(c, i), ALONE) && (s(c, i) & DELETES) != 0)
	}
	if
	:: !down[c] && ((set & CREATES) != 0 && creates < UNDER_WAY || (set & DELETES) != 0 && deletes < UNDER_WAY) ->
		set = 0;
		for (i : 0 .. OPS - 1) {
			if
			:: i < queued[c] && fits(q(c, i)) ->
				set = set | bit(q(c, i));
				if
				:: q(c, i) < PLACES -> dirs = dirs | bit(dir(q(c, i))); place[at(c, q(c, i))] = (place[at(c, q(c, i))] == ASKED -> SENT : place[at(c, q(c, i))])
				:: else -> delete[at(c, q(c, i) - PLACES)] = SENT
				fi
			:: i < queued[c] && !fits(q(c, i)) ->
				q(c, n) = q(c, i); n++
			:: else
			fi
		}
		for (i : 0 .. OPS - 1) {
			q(c, i) = (i < n -> q(c, i) : 0)
		}
		queued[c] = n;
		transmit(c, set)
	:: else
	fi;
	i = 0; n = 0; set = 0; creates = 0; deletes = 0; dirs = 0
}

inline enqueue(c, op) {
	q(c, queued[c]) = op; queued[c]++
}

/* The caller of a place asks for a create. */
inline ask(c, p) {
	place[at(c, p)] = ASKED; own[at(c, p)] = NONE; applied[at(c, p)] = false; refused[at(c, p)] = false;
	for (i : 0 .. PLACES - 1) {
		earlier[at(c, p)] = earlier[at(c, p)] | (delete[at(c, i)] == ASKED || delete[at(c, i)] == SENT -> bit(PLACES + i) : 0);
		earlier[at(c, p)] = earlier[at(c, p)] | (i != p && dir(i) == dir(p) && (place[at(c, i)] == ASKED || place[at(c, i)] == SENT) -> bit(i) : 0)
	}
	i = 0;
	earlier[at(c, p)] = earlier[at(c, p)] & ~again[c];
	enqueue(c, p)
}

/* A znode of a place is not needed any longer. */
inline drop(c, p, z) {
	if
	:: delete[at(c, p)] == OUT ->
		delete[at(c, p)] = ASKED; leaving[at(c, p)] = z; enqueue(c, PLACES + p)
	:: else ->
		stray[seen(c, dir(p))] = stray[seen(c, dir(p))] | bit(z)
	fi
}

inline catch_up(c) {
	view[seen(c, 0)] = line[0]; view[seen(c, 1)] = line[1]
}

inline remove(c, d, nodes) {
	line[d] = line[d] & ~(nodes);
	mine[seen(c, d)] = mine[seen(c, d)] & ~(nodes);
	old[seen(c, d)] = old[seen(c, d)] & ~(nodes);
	stray[seen(c, d)] = stray[seen(c, d)] & ~(nodes)
}

inline create(c, p) {
	assert(next[dir(p)] < ZNODES);
	line[dir(p)] = line[dir(p)] | bit(next[dir(p)]);
	mine[seen(c, dir(p))] = mine[seen(c, dir(p))] | bit(next[dir(p)]);
	next[dir(p)]++
}
#define latest(p) (next[dir(p)] - 1)

inline apply_creates(c, ops) {
	for (n : 0 .. PLACES - 1) {
		if
		:: has(ops, n) ->
			assert(earlier[at(c, n)] == 0);
			assert(!applied[at(c, n)]);
			create(c, n);
			printf("ensemble: creates znode %d of place %d of client %d\n", latest(n), n, c);
			applied[at(c, n)] = true;
			settled(c, n);
			if
			:: place[at(c, n)] == SENT -> own[at(c, n)] = latest(n); place[at(c, n)] = WAITS
			:: place[at(c, n)] == GONE ->
				place[at(c, n)] = OUT;
#ifndef BROKEN_FORGET_CANCELED
				drop(c, n, latest(n))
#endif
			:: else
			fi
		:: else
		fi
	}
	n = 0
}

inline apply_deletes(c, ops) {
	for (n : 0 .. PLACES - 1) {
		if
		:: has(ops, PLACES + n) ->
			printf("ensemble: deletes znode %d of place %d of client %d\n", leaving[at(c, n)], n, c);
			remove(c, dir(n), bit(leaving[at(c, n)]));
			delete[at(c, n)] = OUT; leaving[at(c, n)] = NONE;
			settled(c, PLACES + n)
		:: else
		fi
	}
	n = 0
}

/* The caller of a place is told that its create was refused. */
inline fail(c, p) {
	assert(refused[at(c, p)]);
	place[at(c, p)] = OUT
}

/* The answer to the first request is there. */
inline answered(c) {
	head = s(c, 0);
	for (i : 0 .. OPS - 2) {
		s(c, i) = s(c, i + 1)
	}
	s(c, OPS - 1) = 0; i = 0;
	under_way[c]--
}

/* The ensemble refuses the first request, and names one of its operations. */
inline refuse(c, op) {
	answered(c);
	head = head & ~bit(op);
	if
	:: op < PLACES -> refused[at(c, op)] = true; fail(c, op)
	:: op >= PLACES && has(line[dir(op - PLACES)], leaving[at(c, op - PLACES)]) -> delete[at(c, op - PLACES)] = AGAIN
	:: else -> delete[at(c, op - PLACES)] = OUT; leaving[at(c, op - PLACES)] = NONE
	fi;
	settled(c, op);
	for (n : 0 .. PLACES - 1) { /* the others may come later, too */
		if
		:: has(head, n) -> settled(c, n)
#ifdef BROKEN_LEAK
			; fail(c, n)
#endif
		:: else
		fi;
		if
		:: has(head, PLACES + n) -> settled(c, PLACES + n)
		:: else
		fi
	}
	again[c] = again[c] | head & (CREATES | DELETES);
	n = 0; head = 0
}

#define missing(c, set, p) (has(set, PLACES + (p)) && !has(line[dir(p)], leaving[at(c, p)]))
#if PLACES == 2
#define some_missing(c, set) (missing(c, set, 0) || missing(c, set, 1))
#else
#define some_missing(c, set) (missing(c, set, 0) || missing(c, set, 1) || missing(c, set, 2))
#endif
#define serves(c) (!down[c] && under_way[c] > 0)

/* The next of the late requests. */
inline next_late(c) {
	for (i : 0 .. OPS - 2) {
		l(c, i) = l(c, i + 1)
	}
	l(c, OPS - 1) = 0; i = 0;
	lates[c]--
}

/* ---- the actors ---- */

proctype Place(byte c; byte me) {
end:	do
	:: d_step { place[at(c, me)] == OUT && calls[at(c, me)] > 0 && (ASYNC || delete[at(c, me)] == OUT) ->
		calls[at(c, me)]--;
		printf("client %d, place %d: a caller asks for a create\n", c, me);
		ask(c, me); leave(c) }

	:: d_step { place[at(c, me)] == ASKED && cancels > 0 ->
		cancels--; place[at(c, me)] = OUT;
		printf("client %d, place %d: its caller goes before the create is sent\n", c, me);
		for (i : 0 .. OPS - 1) {
			if
			:: i < queued[c] && q(c, i) != me -> q(c, n) = q(c, i); n++
			:: else
			fi
		}
		queued[c] = n;
		for (i : n .. OPS - 1) {
			q(c, i) = 0
		}
		n = 0;
		settled(c, me); earlier[at(c, me)] = 0 }
	:: d_step { place[at(c, me)] == SENT && cancels > 0 ->
		cancels--; place[at(c, me)] = GONE;
		printf("client %d, place %d: its caller goes while the create is under way\n", c, me) }
	:: d_step { place[at(c, me)] == LOOKS && cancels > 0 ->
		cancels--; place[at(c, me)] = OUT;
		printf("client %d, place %d: its caller goes while it looks for the znode\n", c, me);
		if
		:: own[at(c, me)] != NONE -> stray[seen(c, dir(me))] = stray[seen(c, dir(me))] | bit(own[at(c, me)])
		:: else -> belated[at(c, me)] = (belated[at(c, me)] == SOUGHT -> CONDEMNED : belated[at(c, me)])
		fi;
		own[at(c, me)] = NONE }
	:: d_step { place[at(c, me)] == WAITS && cancels > 0 ->
		cancels--; place[at(c, me)] = OUT;
		printf("client %d, place %d: its caller goes while it waits in line\n", c, me);
		drop(c, me, own[at(c, me)]); own[at(c, me)] = NONE; leave(c) }

#ifndef BROKEN_NO_LOOK
	:: d_step { place[at(c, me)] == LOOKS && !down[c] && own[at(c, me)] != NONE ->
		place[at(c, me)] = WAITS; catch_up(c);
		printf("client %d, place %d: finds its znode %d\n", c, me, own[at(c, me)]) }
	:: d_step { place[at(c, me)] == LOOKS && !down[c] && own[at(c, me)] == NONE ->
		belated[at(c, me)] = (belated[at(c, me)] == SOUGHT -> CONDEMNED : belated[at(c, me)]);
		printf("client %d, place %d: does not find its znode, and asks for another create\n", c, me);
		ask(c, me); leave(c) }
#else
	:: d_step { place[at(c, me)] == LOOKS && !down[c] ->
		printf("client %d, place %d: asks for another create\n", c, me);
		ask(c, me); leave(c) }
#endif

	:: d_step { place[at(c, me)] == WAITS && !down[c] && has(view[seen(c, dir(me))], own[at(c, me)]) && (view[seen(c, dir(me))] & (bit(own[at(c, me)]) - 1)) == 0 ->
		printf("client %d, place %d: is granted znode %d\n", c, me, own[at(c, me)]);
		for (n : 0 .. CLIENTS * PLACES - 1) {
			assert(place[n] != HOLDS || dir(n % PLACES) != dir(me) || disturbed)
		}
		n = 0;
		place[at(c, me)] = HOLDS }
	:: d_step { place[at(c, me)] == WAITS && !down[c] && !has(view[seen(c, dir(me))], own[at(c, me)]) ->
		assert(disturbed);
		printf("client %d, place %d: its znode %d is gone, it joins again\n", c, me, own[at(c, me)]);
		ask(c, me); leave(c) }
	:: d_step { place[at(c, me)] == HOLDS ->
		place[at(c, me)] = OUT;
		printf("client %d, place %d: releases znode %d\n", c, me, own[at(c, me)]);
		drop(c, me, own[at(c, me)]); own[at(c, me)] = NONE; leave(c) }

#ifndef BROKEN_DROP_OTHERS
	:: d_step { has(again[c], me) && !down[c] ->
		again[c] = again[c] & ~bit(me);
		printf("client %d, place %d: its create is sent again\n", c, me);
		transmit(c, bit(me) | bit(ALONE)) }
	:: d_step { has(again[c], PLACES + me) && !down[c] ->
		again[c] = again[c] & ~bit(PLACES + me);
		printf("client %d, place %d: its delete is sent again\n", c, me);
		transmit(c, bit(PLACES + me) | bit(ALONE)) }
#endif
	:: d_step { delete[at(c, me)] == AGAIN && !down[c] ->
		delete[at(c, me)] = SENT;
		printf("client %d, place %d: deletes its znode %d again\n", c, me, leaving[at(c, me)]);
		transmit(c, bit(PLACES + me) | bit(ALONE)) }

	/* Refusals of the operations of this place. */
	:: d_step { serves(c) && has(s(c, 0), me) && !some_missing(c, s(c, 0)) && refusals > 0 ->
		refusals--;
		printf("ensemble: refuses the create of place %d of client %d\n", me, c);
		refuse(c, me); leave(c) }
	:: d_step { serves(c) && has(s(c, 0), PLACES + me) && !some_missing(c, s(c, 0)) && refusals > 0 ->
		refusals--;
		printf("ensemble: refuses the delete of place %d of client %d\n", me, c);
		refuse(c, PLACES + me); leave(c) }
	:: d_step { serves(c) && missing(c, s(c, 0), me) ->
		printf("ensemble: has no znode of place %d of client %d to delete\n", me, c);
		refuse(c, PLACES + me); leave(c) }
	od
}

proctype Session(byte c) {
end:	do
	:: d_step { serves(c) && !some_missing(c, s(c, 0)) ->
		answered(c);
#ifdef BROKEN_CREATES_FIRST
		apply_creates(c, head); apply_deletes(c, head);
#else
		apply_deletes(c, head); apply_creates(c, head);
#endif
		head = 0;
		catch_up(c); leave(c) }

	:: d_step { !down[c] && (view[seen(c, 0)] != line[0] || view[seen(c, 1)] != line[1]) ->
		printf("client %d: its member catches up\n", c);
		catch_up(c) }
	:: d_step { !down[c] && (stray[seen(c, 0)] | stray[seen(c, 1)]) != 0 ->
		printf("client %d: deletes its strays\n", c);
		remove(c, 0, stray[seen(c, 0)]); remove(c, 1, stray[seen(c, 1)]) }

	:: d_step { !down[c] && cuts > 0 && lates[c] == 0 ->
		cuts--; down[c] = true;
		printf("client %d: is cut off\n", c);
		for (n : 0 .. OPS - 1) {
			set = set | s(c, n);
			l(c, n) = s(c, n)
#ifndef BROKEN_SEND_TWICE
			; s(c, n) = 0
#endif
		}
		lates[c] = under_way[c];
#ifndef BROKEN_SEND_TWICE
		under_way[c] = 0;
#endif
		for (n : 0 .. PLACES - 1) {
			if
			:: has(set, n) ->
				settled(c, n); earlier[at(c, n)] = 0;
				belated[at(c, n)] = (place[at(c, n)] == GONE -> CONDEMNED : SOUGHT);
#ifndef BROKEN_SEND_TWICE
				place[at(c, n)] = (place[at(c, n)] == GONE -> OUT : LOOKS)
#endif
			:: else
			fi;
			if
			:: has(set, PLACES + n) ->
				settled(c, PLACES + n);
#ifndef BROKEN_SEND_TWICE
				delete[at(c, n)] = AGAIN
#endif
			:: else
			fi
		}
		n = 0; set = 0 }
	:: d_step { down[c] ->
		down[c] = false;
		printf("client %d: is connected again\n", c);
		leave(c) }

	:: d_step { expiries > 0 ->
		expiries--; down[c] = false;
		printf("client %d: its session is over, and it begins another one\n", c);
		old[seen(c, 0)] = old[seen(c, 0)] | mine[seen(c, 0)]; mine[seen(c, 0)] = 0; stray[seen(c, 0)] = 0;
		old[seen(c, 1)] = old[seen(c, 1)] | mine[seen(c, 1)]; mine[seen(c, 1)] = 0; stray[seen(c, 1)] = 0;
		for (n : 0 .. OPS - 1) {
			s(c, n) = 0; l(c, n) = 0;
#ifndef BROKEN_NEXT_SESSION
			q(c, n) = 0
#endif
		}
		under_way[c] = 0; lates[c] = 0; again[c] = 0;
#ifndef BROKEN_NEXT_SESSION
		queued[c] = 0;
#endif
		for (n : 0 .. PLACES - 1) {
			delete[at(c, n)] = OUT; leaving[at(c, n)] = NONE; earlier[at(c, n)] = 0; belated[at(c, n)] = OUT;
			place[at(c, n)] = (place[at(c, n)] >= ASKED && place[at(c, n)] <= WAITS -> LOOKS : OUT);
			own[at(c, n)] = NONE; applied[at(c, n)] = false; refused[at(c, n)] = false
		}
		for (n : 0 .. PLACES - 1) {
			if
			:: place[at(c, n)] == LOOKS ->
#ifdef BROKEN_NEXT_SESSION
				place[at(c, n)] = OUT
#else
				ask(c, n)
#endif
			:: else
			fi
		}
		n = 0;
		leave(c) }
	od
}

/* What was under way on a connection that was lost. */
proctype Late(byte c) {
end:	do
	:: d_step { lates[c] > 0 ->
		head = l(c, 0); next_late(c);
		if
		:: some_missing(c, head) -> printf("ensemble: refuses operations %d of client %d, late\n", head, c)
		:: else ->
			printf("ensemble: executes operations %d of client %d, late\n", head, c);
			for (n : 0 .. PLACES - 1) {
				if
				:: has(head, PLACES + n) -> remove(c, dir(n), bit(leaving[at(c, n)]))
				:: else
				fi
			}
			for (n : 0 .. PLACES - 1) {
				if
				:: has(head, n) ->
					create(c, n);
					if
					:: belated[at(c, n)] == CONDEMNED -> stray[seen(c, dir(n))] = stray[seen(c, dir(n))] | bit(latest(n))
#ifdef BROKEN_NO_LOOK
					:: belated[at(c, n)] == SOUGHT
#else
					:: else -> applied[at(c, n)] = true; own[at(c, n)] = latest(n)
#endif
					fi;
					belated[at(c, n)] = OUT
				:: else
				fi
			}
		fi;
		n = 0; head = 0 }
	:: d_step { lates[c] > 0 ->
		head = l(c, 0); next_late(c);
		printf("ensemble: never executes operations %d of client %d\n", head, c);
		for (n : 0 .. PLACES - 1) {
			belated[at(c, n)] = (has(head, n) -> OUT : belated[at(c, n)])
		}
		n = 0; head = 0 }
	:: d_step { (old[seen(c, 0)] | old[seen(c, 1)]) != 0 ->
		printf("ensemble: expires an old session of client %d\n", c);
		remove(c, 0, old[seen(c, 0)]); remove(c, 1, old[seen(c, 1)]) }
	od
}

proctype Stranger() {
end:	do
	:: d_step { strangers > 0 && mine[0] != 0 ->
		strangers--; disturbed = true;
		printf("a stranger: removes a znode of client 0\n");
		set = mine[0] & -mine[0];
		remove(0, 0, set);
		set = 0 }
	od
}

/* When nothing can happen any more. */
active proctype Quiet() {
	byte c;
	timeout ->
	for (c : 0 .. CLIENTS * PLACES - 1) {
		assert(place[c] == OUT && delete[c] == OUT)
	}
	for (c : 0 .. CLIENTS * DIRS - 1) {
		assert(mine[c] == 0)
	}
}

init {
	byte c, p;
	atomic {
		for (c : 0 .. CLIENTS - 1) {
			for (p : 0 .. PLACES - 1) {
				run Place(c, p)
			}
			run Session(c); run Late(c)
		}
		run Stranger()
	}
}

ltl granted { [] (place[0] >= ASKED && place[0] <= WAITS -> <> (place[0] < ASKED || place[0] > WAITS)) }
