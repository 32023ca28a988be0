/*
A client whose list of servers is replaced: it moves to one of the new list, and
keeps its session and its lease.

Proves
    - kept: as long as its own server serves, no list costs a lease, whichever is
      given when, also if it names nothing but another ensemble.
    - one: the client never has a session of another ensemble, although one
      answers at an address that a list names, at any time.
    - hands: nor if another ensemble takes over the address of a former member,
      which a later list names again, or of one that only this ensemble names.
    - back: what it reads is never older than what it has read before.

Code
    in the model                        | in the code
    operator: gives the list            | internal/managed/servers/targets.go: (*Servers).replace, internal/managed/servers/foreign.go: (*foreign).noteReplaced
    client: asks a target               | internal/managed/servers/targets.go: (*Servers).Prepare
    client: leaves its server           | internal/managed/session/move.go: (*Session).onLeave, internal/managed/session/life.go: (*life).mayMoveLocked
    client: is not known at its target  | internal/managed/session/mover.go: (*mover).refuse
    client: goes back                   | internal/managed/session/mover.go: (*mover).back
    client: picks a server              | internal/managed/serverlist/next.go: (*List).Next
    client: connects                    | internal/managed/servers/attempt.go: (*Servers).dial, internal/managed/servers/close.go: (*Servers).closeThrough, internal/managed/servers/questions.go: (*Servers).doubted
    client: is resumed                  | internal/managed/servers/attempt.go: (*Servers).NoteConnected
    client: is told that it is gone     | internal/managed/servers/questions.go: (*Servers).Vouch

Bounds
    Members at three addresses, the first two of which are the first list; the
    third is behind the others for good if STUCK=1. If OTHERS=1 a fourth address
    is that of another ensemble. If CUTS=1 connections end, and cannot be made, at
    any time. LISTS lists, each with any of the addresses. If TRACKS=1 the ensemble
    names the third address, whatever the lists name. TAKES addresses pass to
    another ensemble. TICKS of the clock, and a session timeout of T; a heartbeat is sent two ticks after the answer to the
    last one, and answered within three; each attempt to connect takes one, and
    so does the wait for answers on the old connection.

Leaves out
    - A list that names only other ensembles, or only members that do not serve,
      costs a lease as soon as the client loses its connection for another reason.
    - A lease may move with less room where this ensemble never gives so much.
    - A client calls a server directly after it has picked it; only who closes a
      session that is over waits in between.
    - Another ensemble takes over an address while a list names it and the client
      was there, or while the client calls it: it is believed, as the name service
      is.
    - Names and their addresses, which members serve at all, and when the client
      learns of the members.
    - That clients move at different times, and spread over a longer list.
    - What a session does in its connection, and how long it is valid at the
      ensemble: deadline.pml.

Runs
    run   | checks     | small | large
    kept  | assertions | T=9 STUCK=1 OTHERS=1 CUTS=0 LISTS=1 TICKS=12 | T=9 STUCK=1 OTHERS=1 CUTS=0 LISTS=2 TICKS=20
    one   | assertions | T=2 STUCK=0 OTHERS=1 CUTS=1 LISTS=2 TICKS=3 | T=2 STUCK=1 OTHERS=1 CUTS=1 LISTS=2 TICKS=4
    hands | assertions | T=2 STUCK=0 OTHERS=0 CUTS=1 LISTS=2 TICKS=2 TAKES=1 TRACKS=1 | T=2 STUCK=0 OTHERS=0 CUTS=1 LISTS=2 TICKS=3 TAKES=1 TRACKS=1

Broken
    variant        | run   | bounds | what is wrong
    BROKEN_ROOM    | kept  | T=9 STUCK=0 OTHERS=0 CUTS=0 LISTS=1 TICKS=12 | The client leaves its server although little is left of its lease.
    BROKEN_BACK    | kept  | T=9 STUCK=0 OTHERS=1 CUTS=0 LISTS=1 TICKS=12 | It does not go back from another ensemble.
    BROKEN_TARGET  | one   | T=2 STUCK=0 OTHERS=1 CUTS=1 LISTS=1 TICKS=4 | It believes its target.
    BROKEN_SEEN    | one   | T=2 STUCK=1 OTHERS=1 CUTS=1 LISTS=1 TICKS=4 | It does not say what it has seen when it connects.
    BROKEN_DOUBT   | one   | T=2 STUCK=0 OTHERS=1 CUTS=1 LISTS=1 TICKS=4 | It believes a server of a later list at which it never was.
    BROKEN_NAMED   | one   | T=2 STUCK=0 OTHERS=1 CUTS=1 LISTS=1 TICKS=4 | A server counts as known when a list names it.
    BROKEN_FORGET  | one   | T=2 STUCK=0 OTHERS=1 CUTS=1 LISTS=3 TICKS=4 | Only servers of the latest two lists are doubted, and one that was picked before is called.
    BROKEN_FORMER  | hands | T=2 STUCK=0 OTHERS=0 CUTS=1 LISTS=2 TICKS=3 TAKES=1 TRACKS=0 | A server that a list has dropped counts as known when a later one names it.
    BROKEN_TRACKED | hands | T=2 STUCK=0 OTHERS=0 CUTS=1 LISTS=0 TICKS=3 TAKES=1 TRACKS=1 | It believes a server that only the ensemble has named.

Unreached
    where | statement | why
    171   | assert(0) | it is what must not happen

Measured
    run   | bounds | states    | depth | seconds
    kept  | small  | 66,303    | 83    | 0.2
    kept  | large  | 1,675,137 | 103   | 4.3
    one   | small  | 2,287,272 | 982   | 5.5
    one   | large  | 2,651,538 | 739   | 6.4
    hands | small  | 913,419   | 439   | 2.2
    hands | large  | 2,090,001 | 526   | 5.3
*/

#define PERIOD   2    /* from an answer to the next heartbeat */
#define ANSWER   3    /* a heartbeat takes no longer */
#define ROOM     (T / 2)   /* so much must be left of the lease to move */
#define OTHER    3    /* the address of another ensemble */
#define NONE     15
#define ADDRESSES (3 + OTHERS)

#ifndef TAKES
#define TAKES    0
#endif
#ifndef TRACKS
#define TRACKS   0
#endif
#define TRACKED  2    /* if TRACKS=1: the ensemble names it, whatever the lists name */

#define has(list, a) ((list >> a) & 1)
#define bit(a) (1 << a)

byte now;

/* The ensemble. */
byte committed = 1;
byte expires = T;     /* when the ensemble ends the session */
byte taken;           /* addresses of its former members that another ensemble has now */
byte takes;

/* The lists. */
byte list = 3;
#ifdef BROKEN_FORGET
byte fresh;           /* servers that a list has brought, and where the client never was */
#else
byte known = 3;       /* servers of the first list, and those where the client was */
#endif
byte given;

/* The client. */
byte at;              /* the address of its server */
byte seen = 1;
byte proven = T;      /* until when it has its lease */
byte sent;            /* when the last heartbeat was sent */
bool waits;           /* for its answer */
byte due = PERIOD;    /* when something must have happened */
byte target = NONE;   /* that was asked, and will be connected to */
byte to = NONE;       /* the next attempt to connect */
byte left = NONE;     /* the server that it has left, and goes back to */
bool moves;           /* to is its target */
byte foreign;         /* servers that did not know its session, which was resumed where it came from */
byte suspect;         /* the same, not resumed yet: a bit */
byte tried;           /* since the last connection: bits */
bool over;            /* it knows that its session is gone */

#define knows(a) (a == 2 && STUCK -> 0 : committed)
#define another(a) (a == OTHER || has(taken, a))
#define named(a) (has(list, a) || (TRACKS && a == TRACKED))

#if defined(BROKEN_DOUBT)
#define doubts(a) false
#elif defined(BROKEN_FORGET)
#define doubts(a) has(fresh, a)
#elif defined(BROKEN_TRACKED)
#define doubts(a) (!has(known, a) && !(TRACKS && a == TRACKED))
#else
#define doubts(a) (!has(known, a) || !has(list, a) && TRACKS && a == TRACKED)
#endif

inline connects(x) {
	a = x;
	to = NONE;
	tried = tried | bit(a);
	due = now + 1;
	if
	:: CUTS ->
		printf("client: does not reach address %d\n", a)
#ifdef BROKEN_TARGET
	:: another(a) && !moves && doubts(a) ->
#else
	:: another(a) && moves ->
		suspect = bit(a);
		printf("client: is not known at its target\n")
	:: another(a) && !moves && doubts(a) ->
#endif
		printf("client: does not believe address %d\n", a)
#ifdef BROKEN_TARGET
	:: another(a) && (moves || !doubts(a)) ->
#else
	:: another(a) && !moves && !doubts(a) ->
#endif
		printf("client: believes another ensemble that its session is gone\n");
		assert(false)
	:: !another(a) && now > expires ->
		over = true;
		printf("client: is told that its session is gone\n")
#ifndef BROKEN_SEEN
	:: !another(a) && now <= expires && knows(a) < seen ->
		printf("client: is refused by address %d, which knows less\n", a)
	:: !another(a) && now <= expires && knows(a) >= seen ->
#else
	:: !another(a) && now <= expires ->
#endif
		at = a; tried = 0; waits = false; target = NONE;
		foreign = (a == left -> foreign | suspect : foreign); left = NONE; suspect = 0;
#ifdef BROKEN_FORGET
		fresh = fresh & (15 - bit(a));
#else
		known = (has(list, a) -> known | bit(a) : known);
#endif
		proven = now + T; expires = now + T; due = now + PERIOD;
		printf("client: is resumed at address %d\n", a)
	fi;
	moves = false
}

active proctype Client() {
	byte a;
end:	do
	:: d_step { at != NONE && !waits && due == now ->
		waits = true; sent = now; due = now + ANSWER;
		printf("client: sends a heartbeat\n") }
	:: d_step { at != NONE && waits ->
		waits = false; proven = sent + T; expires = now + T; due = now + PERIOD;
		printf("client: has the answer to its heartbeat\n") }
	:: d_step { at != NONE && knows(at) != seen ->
		assert(knows(at) >= seen);
		seen = knows(at);
		printf("client: reads\n") }

	/* It moves. */
	:: atomic { at != NONE && !has(list, at) && target == NONE ->
		select(a : 0 .. ADDRESSES - 1);
		if
		:: has(list, a) && !has(foreign, a) && (another(a) || knows(a) >= seen) ->
			target = a;
			printf("client: asks address %d, and prepares a connection\n", a)
		:: else
		fi }
#ifdef BROKEN_ROOM
	:: d_step { at != NONE && target != NONE && !has(list, at) && now < proven ->
#else
	:: d_step { at != NONE && target != NONE && !has(list, at) && now + ROOM <= proven ->
#endif
		left = at; moves = true;
		at = NONE; waits = false; tried = 0; to = target; target = NONE; due = now + 2;
		printf("client: leaves its server\n") }

	/* It has no connection. */
#ifndef BROKEN_BACK
	:: d_step { at == NONE && to == NONE && !over && left != NONE && !has(tried, left) ->
		to = left;
		printf("client: goes back to address %d\n", to) }
	:: atomic { at == NONE && to == NONE && !over && (left == NONE || has(tried, left)) ->
#else
	:: atomic { at == NONE && to == NONE && !over ->
#endif
		if
		:: (tried & list) == list -> tried = 0
		:: else
		fi;
		select(a : 0 .. ADDRESSES - 1);
		if
		:: named(a) && !has(tried, a) ->
			to = a;
			printf("client: picks address %d\n", a)
		:: else
		fi }
	:: atomic { at == NONE && to != NONE && !over ->
		connects(to) }
	od
}

/* Ticks unless something must happen first. */
active proctype Clock() {
end:	do
	:: d_step { now < TICKS && !over && now < due ->
		now++;
		assert(CUTS || now < proven);
		printf("clock: %d\n", now) }
	od
}

active proctype Operator() {
	byte next;
end:	do
	:: atomic { given < LISTS ->
		given++;
		select(next : 1 .. (1 << ADDRESSES) - 1);
#ifdef BROKEN_FORGET
		fresh = (fresh & list) | (next & (15 - list)); /* only of these two lists */
#elif defined(BROKEN_NAMED)
		known = known | next;
#elif !defined(BROKEN_FORMER)
		known = known & list;
#endif
		list = next;
		printf("operator: gives the list %d\n", next) }
	od
}

/* What happens to the ensemble, and to the network. */
active proctype World() {
	byte a;
end:	do
	:: d_step { committed < 2 ->
		committed++;
		printf("ensemble: commits a transaction\n") }
	:: atomic { takes < TAKES ->
		takes++;
		select(a : 0 .. 2);
		if
		:: at != a && (!has(list, a) && to != a && left != a || doubts(a)) ->
			taken = taken | bit(a);
			printf("ensemble: another one has address %d now\n", a)
		:: else
		fi }
	:: d_step { CUTS && at != NONE ->
		at = NONE; waits = false; tried = 0; target = NONE; due = now + 1;
		printf("network: ends the connection\n") }
	od
}
