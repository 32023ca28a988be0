/*
Handing off: each process has callers without end, and hands its znode from one
to the next. Nobody starves, neither in the process nor in line.

Proves
    - order: two clients never hold at once, and a client hands off no more than
      HANDOFFS times after it knew that somebody stands behind it.
    - in_line: under weak fairness, a client that stands in line is granted,
      although the others have callers all the time.
    - in_process: under weak fairness, a caller that waits in-process is granted,
      although others come all the time, in its process and in the others.

Code
    in the model         | in the code
    a caller comes       | recipes/internal/line/localqueue.go: (*localQueue).join, recipes/internal/line/handoff.go: (*localQueue).expectLocked
    joins                | recipes/internal/line/acquisition.go: (*acquisition).join
    is granted           | recipes/internal/line/acquisition.go: (*acquisition).admit
    choose               | recipes/internal/line/localqueue.go: (*localQueue).chooseLocked
    releases             | recipes/internal/line/handoff.go: (*localQueue).keepLocked
    resume               | recipes/internal/line/handoff.go: (*grant).resumeLocked, recipes/internal/line/handoff.go: (*grant).mayServeLocked
    looks                | recipes/internal/line/contention.go: (*grant).foundContention
    hears of a change    | recipes/internal/line/contention.go: (*grant).watchContention
    looks by itself      | recipes/internal/line/contention.go: (*grant).watchContention
    leaves               | recipes/internal/line/departure.go: (*grant).awaitDeparture

Bounds
    CLIENTS processes; at most QUEUE callers wait in each, and others come as
    soon as there is room; HANDOFFS to other callers while others stand in line.
    LINGER=1: a znode for which nobody waits is kept, without an end of its own.

Leaves out
    - Faults, but one: an event of the watch of the directory may be lost at any
      time, any number of times. line.pml has the others.
    - Time. A grant that is handed off while others wait ends after T at the
      latest; here only the number of handoffs ends it.
    - How a client gets to the front of the line: line.pml.

Runs
    run        | checks         | small | large
    order      | assertions     | CLIENTS=3 QUEUE=2 HANDOFFS=2 LINGER=1 | CLIENTS=4 QUEUE=3 HANDOFFS=3 LINGER=1
    busy       | assertions     | CLIENTS=3 QUEUE=2 HANDOFFS=2 LINGER=0 | CLIENTS=4 QUEUE=3 HANDOFFS=3 LINGER=0
    in_line    | ltl in_line    | CLIENTS=2 QUEUE=2 HANDOFFS=2 LINGER=1 | CLIENTS=3 QUEUE=2 HANDOFFS=2 LINGER=1
    in_process | ltl in_process | CLIENTS=2 QUEUE=2 HANDOFFS=2 LINGER=0 | CLIENTS=3 QUEUE=2 HANDOFFS=2 LINGER=0

Broken
    variant            | run        | bounds | what is wrong
    BROKEN_NO_BOUND    | order      | CLIENTS=2 QUEUE=2 HANDOFFS=1 LINGER=0 | While others stand in line a znode is handed off without limit.
    BROKEN_COUNT_ANEW  | order      | CLIENTS=2 QUEUE=2 HANDOFFS=1 LINGER=0 | Each look begins to count the handoffs again.
    BROKEN_ONE_LOOK    | in_line    | CLIENTS=2 QUEUE=2 HANDOFFS=1 LINGER=0 | A holder waits for an event, which can be lost, and does not look by itself.
    BROKEN_LINGER      | in_line    | CLIENTS=2 QUEUE=1 HANDOFFS=1 LINGER=1 | A znode lingers although somebody has joined the line.
    BROKEN_LAST_FIRST  | in_process | CLIENTS=2 QUEUE=2 HANDOFFS=1 LINGER=0 | The last caller that came is served first.

Measured
    run        | bounds | states     | depth | seconds
    order      | small  | 4,272      | 3932  | 0.2
    order      | large  | 281,267    | 36586 | 1.8
    busy       | small  | 3,924      | 3816  | 0.2
    busy       | large  | 267,131    | 37447 | 1.8
    in_line    | small  | 524        | 615   | 0.2
    in_line    | large  | 6,148      | 1462  | 0.2
    in_process | small  | 618        | 742   | 0.2
    in_process | large  | 6,878      | 1409  | 0.3
*/

#define NOBODY 15

chan line = [CLIENTS] of { byte };    /* the clients in line; the first holds */

/* Each client. */
#define OUT     0
#define STANDS  1   /* in line */
#define HELD    2
#define IDLE    3   /* kept for the next caller */
byte grant[CLIENTS];
byte waiting[CLIENTS];   /* callers in its local queue */
byte handoffs[CLIENTS];  /* since others were known to stand in line */

#define NOT_LOOKED  0
#define UNKNOWN     1    /* a look is due */
#define UNCONTESTED 2    /* nobody stood behind it at the last look */
#define CONTESTED   3
byte known[CLIENTS];
byte served[CLIENTS];    /* callers, since it was known to be contested */
byte k;                  /* of one step */
bool event[CLIENTS];     /* the event of a change is on its way to it */

/* One caller of client 0 is followed: how many are ahead of it. */
byte followed = NOBODY;

#define waits_in_line    (grant[CLIENTS - 1] == STANDS)
#define waits_in_process (followed != NOBODY)

/* The next caller of client c gets the grant. */
inline choose(c) {
	waiting[c]--;
	grant[c] = HELD;
	served[c] = (known[c] == CONTESTED -> served[c] + 1 : 0);
	assert(served[c] <= HANDOFFS + 1); /* the first is not a handoff */
	if
	:: c == 0 && followed != NOBODY ->
#ifdef BROKEN_LAST_FIRST
		followed = (followed == waiting[c] -> NOBODY : followed)
#else
		followed = (followed == 0 -> NOBODY : followed - 1)
#endif
	:: else
	fi
}

/* An idle grant goes to a caller that waits, or is kept, or leaves. */
#define leaves(c)  (known[c] == CONTESTED && (waiting[c] == 0 || MOST(c)) || waiting[c] == 0 && !LINGER)
#ifdef BROKEN_NO_BOUND
#define MOST(c) false
#else
#define MOST(c) (handoffs[c] >= HANDOFFS)
#endif
inline resume(c) {
	if
	:: grant[c] == IDLE && leaves(c) ->
		printf("client %d: leaves\n", c);
		grant[c] = OUT; known[c] = NOT_LOOKED; event[c] = false; handoffs[c] = 0; served[c] = 0;
		line ? _
	:: grant[c] == IDLE && !leaves(c) && known[c] == NOT_LOOKED -> known[c] = UNKNOWN
	:: grant[c] == IDLE && !leaves(c) && known[c] >= UNCONTESTED && waiting[c] > 0 ->
		handoffs[c] = handoffs[c] + (known[c] == CONTESTED);
		printf("client %d: hands off\n", c);
		choose(c)
	:: else
	fi
}

proctype Callers(byte c) {
end:	do
	:: d_step { waiting[c] < QUEUE ->
		if
		:: c == 0 && followed == NOBODY -> followed = waiting[c]
		:: else
		fi;
		waiting[c]++;
		printf("client %d: a caller comes\n", c);
		if
		:: grant[c] == IDLE -> resume(c)
		:: grant[c] == HELD && known[c] == NOT_LOOKED -> known[c] = UNKNOWN
		:: else
		fi }
	od
}

proctype Client(byte c) {
end:	do
	:: d_step { grant[c] == OUT && waiting[c] > 0 ->
		printf("client %d: joins the line\n", c);
		line ! c; grant[c] = STANDS;
		for (k : 0 .. CLIENTS - 1) {
			event[k] = event[k] || (known[k] == UNCONTESTED)
		}
		k = 0 }
	:: d_step { grant[c] == STANDS && line ? [eval(c)] ->
		printf("client %d: is granted\n", c);
		for (k : 0 .. CLIENTS - 1) {
			assert(grant[k] != HELD && grant[k] != IDLE)
		}
		k = 0;
		known[c] = (len(line) > 1 -> CONTESTED : UNKNOWN);
		choose(c) }
	:: d_step { grant[c] == HELD ->
		printf("client %d: releases\n", c);
		grant[c] = IDLE;
		resume(c) }
	od
}

/* It looks at the line behind the grant. */
inline look(c) {
	known[c] = (len(line) > 1 -> CONTESTED : UNCONTESTED);
	event[c] = false;
	printf("client %d: looks at the line\n", c);
	resume(c)
}

proctype Watcher(byte c) {
end:	do
	:: d_step { known[c] == UNKNOWN -> look(c) }
	:: d_step { event[c] && known[c] == UNCONTESTED ->
		event[c] = false;
#ifndef BROKEN_LINGER
		known[c] = UNKNOWN;
#endif
		printf("client %d: hears of a change\n", c) }
#ifndef BROKEN_LINGER
#ifndef BROKEN_ONE_LOOK
	:: d_step { known[c] == UNCONTESTED -> look(c) }
#endif
#endif
#ifdef BROKEN_COUNT_ANEW
	:: d_step { known[c] == CONTESTED -> handoffs[c] = 0; look(c) }
#endif
	od
}

/* An event may be lost. */
proctype Network(byte c) {
end:	do
	:: d_step { event[c] -> event[c] = false; printf("network: loses an event for client %d\n", c) }
	od
}

init {
	byte c;
	atomic {
		for (c : 0 .. CLIENTS - 1) {
			run Callers(c); run Client(c); run Watcher(c); run Network(c)
		}
	}
}

ltl in_line    { [] (waits_in_line -> <> !waits_in_line) }
ltl in_process { [] (waits_in_process -> <> !waits_in_process) }
