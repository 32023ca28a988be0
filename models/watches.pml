/*
Watches: callers of one session share a watch of one znode, over connections
that are cut, on a server that may use a watch up without an event. No change is
missed, and few watches are armed.

Proves
    - When nothing can happen any more, each caller waits, and what it has read
      last is the znode as it is. So no change is missed.
    - The wire client, which can remove no watch, has one for the znode, and at
      most one more for each of these since the last change that it was told: a
      cut, a setWatches that was refused or not answered in time, a watch that
      had to look again before it was armed.
    - told: under weak fairness, a caller that looks gets an answer, at last.

Code
    in the model           | in the code
    looks, joins           | framework/hub.go: scope.watch, framework/hub.go: (*hub).join
    begins to arm          | framework/hub.go: (*session).arm, framework/rearm.go: (*session).serverHas
    asks                   | framework/rearm.go: (*wireWatches).status
    arms                   | framework/hub.go: (*session).armOne, framework/rearm.go: (*wireWatches).beginArming
    reads                  | framework/hub.go: (*session).readUnder
    is armed               | framework/rearm.go: (*wireWatches).endArming
    fails                  | framework/hub.go: (*hub).drop
    is told of a change    | framework/hub.go: (*hub).onEvent, framework/rearm.go: (*wireWatches).onEvent
    setWatches is answered | framework/rearm.go: (*wireWatches).onSetWatchesAnswer
    setWatches is sent     | framework/rearm.go: (*wireWatches).onSetWatches
    is due, looks at it    | framework/lookout.go: (*watch).checkOften, framework/lookout.go: (*watch).look
    has missed a change    | framework/lookout.go: (*hub).loseWatch, framework/rearm.go: (*wireWatches).forget
    arms it again          | framework/rearm.go: (*wireWatches).arms
    hears of the end       | framework/rearm.go: (*wireWatches).onLinkEnd
    all look again         | framework/hub.go: (*hub).reset, framework/session_core.go: (*session).onConnected

Bounds
    CHANGES of the znode; CUTS of the connection; REFUSALS of a setWatches;
    LATE answers to it, for which nobody waits; SILENT changes, which use up a
    watch without an event; CALLERS that watch.

Leaves out
    - A znode that does not exist, may not be read, or is created again.
    - setWatches in several requests.
    - The end of the session: every caller is told.
    - That there is a look about every session timeout: one is made after a
      silent change, and after each change until the watch is armed again, at
      any time after it, while a caller waits.

Runs
    run  | checks     | small | large
    seen | assertions | CALLERS=2 CHANGES=2 CUTS=1 REFUSALS=1 LATE=1 SILENT=0 | CALLERS=2 CHANGES=2 CUTS=2 REFUSALS=1 LATE=1 SILENT=0
    lost | assertions | CALLERS=1 CHANGES=2 CUTS=1 REFUSALS=0 LATE=0 SILENT=1 | CALLERS=2 CHANGES=2 CUTS=1 REFUSALS=1 LATE=1 SILENT=1
    told | ltl told   | CALLERS=1 CHANGES=1 CUTS=1 REFUSALS=0 LATE=0 SILENT=1 | CALLERS=1 CHANGES=2 CUTS=1 REFUSALS=1 LATE=1 SILENT=1

Broken
    variant           | run  | bounds | what is wrong
    BROKEN_NO_RESET   | seen | CALLERS=1 CHANGES=1 CUTS=1 REFUSALS=1 LATE=0 SILENT=0 | After a reconnect nobody looks again.
    BROKEN_TRUSTS     | seen | CALLERS=1 CHANGES=1 CUTS=1 REFUSALS=1 LATE=0 SILENT=0 | After a reconnect the watch counts as armed before the server has said so.
    BROKEN_READ_FIRST | seen | CALLERS=1 CHANGES=1 CUTS=0 REFUSALS=0 LATE=0 SILENT=0 | The znode is read first, and then watched.
    BROKEN_SPENT      | seen | CALLERS=1 CHANGES=2 CUTS=0 REFUSALS=0 LATE=0 SILENT=0 | A watch that has fired while it was armed counts as armed.
    BROKEN_ARM_AGAIN  | seen | CALLERS=1 CHANGES=1 CUTS=1 REFUSALS=0 LATE=0 SILENT=0 | Another watch is armed after each reconnect.
    BROKEN_NO_LOOK    | lost | CALLERS=1 CHANGES=1 CUTS=0 REFUSALS=0 LATE=0 SILENT=1 | Nobody looks at a znode whose watch has not fired.
    BROKEN_SECOND     | lost | CALLERS=1 CHANGES=1 CUTS=0 REFUSALS=0 LATE=0 SILENT=1 | A watch that has missed a change is armed by a second one.

Measured
    run  | bounds | states     | depth | seconds
    seen | small  | 125,853    | 234   | 0.7
    seen | large  | 5,953,277  | 94    | 24.1
    lost | small  | 36,552     | 235   | 0.3
    lost | large  | 2,195,423  | 91    | 6.9
    told | small  | 9,937      | 229   | 0.3
    told | large  | 108,527    | 145   | 1.1
*/

#define NONE   7
#define SHARED 3            /* as many watches of callers exist at one time */

/* ---- the ensemble ---- */
byte version;               /* of the znode */
byte member;                /* of the znode, at the client's member */
bool has_watch;             /* the member has a watch, on this connection */
bool lost;                  /* it has used up the watch in silence */

/* ---- the connection: requests and answers are in order ---- */
mtype = { get, get_and_watch, set_watches, look, event, refused };
chan requests = [4] of { mtype, byte, byte };   /* what, for which watch, the version seen */
chan answers = [4] of { mtype, byte, byte };    /* what, for which watch, the version */
bool up = true;
byte link = 1;              /* the number of the latest connection */
byte cuts = CUTS, refusals = REFUSALS, late = LATE, changes = CHANGES, silent = SILENT;
byte extra;                 /* watches more that may be armed */

/* ---- the wire client ---- */
byte seen;                  /* the latest version that it was shown */
byte wire_watches;          /* it keeps each until the next event */
bool must_set;              /* it has to send a setWatches */

/* ---- wireWatches ---- */
byte held;                  /* the connection on which the server has the watch; 0: no watch */
byte ended;                 /* the latest connection that has ended */
byte refused_on;            /* where a setWatches was refused */
bool named;                 /* the setWatches under way names the watch */
bool orphan;                /* the wire client has a watch that a server may have used up */

/* ---- the hub: watches that callers share ---- */
#define UNUSED  0
#define BEGUN   1           /* it asks whether the server has the watch */
#define READING 2           /* under the watch that the server has */
#define ARMING  3
#define ARMED   4           /* the wire client has the watch, wireWatches does not know it yet */
#define READY   5
#define FAILED  6
byte state[SHARED];
byte on[SHARED];            /* the connection that was the latest when it was begun */
byte sent_on[SHARED];       /* the connection that its request was sent on; 0: not sent yet */
byte read[SHARED];          /* the version that was read */
bool fired[SHARED];
bool spent[SHARED];         /* an event has come while it was being armed */
bool again[SHARED];         /* it arms the watch that the wire client has */
byte looking = NONE;        /* the one that a look under way is for */
bool due;                   /* a look has to be made */
byte armed = NONE;          /* the one that callers join */
bool must_reset;            /* it has to fire them all */

/* ---- the callers ---- */
byte waits[CALLERS] = NONE; /* for which watch; NONE: it looks again */
byte k, i, v;

#define arming(w)  (state[w] == ARMING || state[w] == ARMED)

inline fire() {
	if
	:: armed != NONE ->
		extra = extra + (state[armed] == BEGUN || arming(armed));
		fired[armed] = true; armed = NONE
	:: else
	fi
}

inline unused(w) {
	w = NONE;
	for (k : 0 .. SHARED - 1) {
		w = (state[k] == UNUSED -> k : w)
	}
	k = 0;
	assert(w != NONE)
}

/* A watch that nobody waits for any more is forgotten. */
inline forget(w) {
	v = 0;
	for (k : 0 .. CALLERS - 1) {
		v = v + (waits[k] == w)
	}
	if
	:: v == 0 && armed != w && looking != w && (state[w] == READY || state[w] == FAILED) ->
		state[w] = UNUSED; on[w] = 0; sent_on[w] = 0; read[w] = 0; fired[w] = false; spent[w] = false; again[w] = false
	:: else
	fi;
	k = 0; v = 0
}

proctype Caller(byte c) {
end:	do
	:: d_step { waits[c] == NONE && up ->
		if
		:: armed == NONE ->
			unused(i);
			armed = i; state[i] = BEGUN; on[i] = link;
			printf("caller %d: looks, and watch %d begins\n", c, i)
		:: else ->
			i = armed;
			printf("caller %d: joins watch %d\n", c, i)
		fi;
		waits[c] = i; i = 0 }
	:: d_step { waits[c] != NONE && (state[waits[c]] == FAILED || state[waits[c]] == READY && fired[waits[c]]) ->
		printf("caller %d: has to look again\n", c);
		i = waits[c]; waits[c] = NONE;
		forget(i); i = 0 }
	od
}

inline send(what, w) {
	requests ! what(w, seen);
	sent_on[w] = link
}

inline fail(w) {
	state[w] = FAILED;
	if
	:: armed == w -> fire()
	:: else
	fi;
	printf("watch %d: fails\n", w);
	forget(w)
}

/* One watch that callers share. */
#define undecided(w)  (held != 0 && held != on[w] && ended < on[w] && refused_on != on[w])
proctype Watch(byte w) {
end:	do
	:: d_step { state[w] == BEGUN && held != 0 && ended >= on[w] ->
		fail(w) }
#ifdef BROKEN_TRUSTS
	:: d_step { state[w] == BEGUN && held != 0 && ended < on[w] ->
#else
	:: d_step { state[w] == BEGUN && held == on[w] && ended < on[w] ->
#endif
		state[w] = READING;
		printf("watch %d: the server has one, reads the znode\n", w) }
#ifndef BROKEN_TRUSTS
	:: d_step { state[w] == BEGUN && (held == 0 || ended < on[w] && held != on[w] && refused_on == on[w]) ->
#else
	:: d_step { state[w] == BEGUN && held == 0 ->
#endif
		state[w] = ARMING; again[w] = orphan;
		printf("watch %d: the server has none\n", w) }
	:: d_step { state[w] == BEGUN && undecided(w) && late > 0 ->
		late--; extra++; state[w] = ARMING; again[w] = orphan;
		printf("watch %d: has waited for setWatches for too long\n", w) }

	:: d_step { (state[w] == READING || state[w] == ARMING) && sent_on[w] == 0 && up ->
		if
		:: state[w] == READING -> send(get, w)
		:: else -> send(get_and_watch, w)
		fi;
		printf("watch %d: its request is sent\n", w) }
	:: d_step { state[w] == ARMED ->
		state[w] = READY;
#ifdef BROKEN_SPENT
		held = (link == on[w] -> link : held);
#else
		held = (link == on[w] && !spent[w] -> link : held);
		orphan = orphan && !(link == on[w] && !spent[w]);
#endif
		printf("watch %d: is armed\n", w);
		forget(w) }
#ifndef BROKEN_NO_LOOK
	:: d_step { due && state[w] == READY && armed == w && looking == NONE && up ->
		due = false; looking = w;
		requests ! look(w, 0);
		printf("watch %d: is due, looks at it\n", w) }
#endif
	:: d_step { (state[w] == READING || state[w] == ARMING) && sent_on[w] != 0 && ended >= sent_on[w] ->
		fail(w) }
	od
}

/* The wire client reads what comes in. */
proctype Reader() {
end:	do
	:: d_step { answers ? [event, _, _] ->
		answers ? event(_, v);
		seen = v; v = 0;
		wire_watches = 0; extra = 0; held = 0; orphan = false;
		for (k : 0 .. SHARED - 1) {
			spent[k] = spent[k] || arming(k);
			extra = extra + (state[k] == BEGUN || arming(k))
		}
		k = 0;
		fire();
		printf("client: is told of a change\n") }
	:: d_step { answers ? [get, _, _] ->
		answers ? get(i, v);
		seen = v; read[i] = v; state[i] = READY;
		printf("watch %d: has read version %d\n", i, v);
		forget(i); i = 0; v = 0 }
	:: d_step { answers ? [get_and_watch, _, _] ->
		answers ? get_and_watch(i, v);
		seen = v; read[i] = v; state[i] = ARMED;
		wire_watches = wire_watches + !again[i];
		assert(wire_watches <= 1 + extra);
		printf("watch %d: has armed one, and read version %d\n", i, v);
		i = 0; v = 0 }
	:: d_step { answers ? [look, _, _] ->
		answers ? look(i, v);
		looking = NONE;
		if
		:: armed == i && read[i] != v ->
#ifndef BROKEN_SECOND
			orphan = orphan || held != 0;
#endif
			held = 0;
			fire();
			printf("watch %d: has missed a change\n", i)
		:: else
		fi;
		forget(i); i = 0; v = 0 }
	:: d_step { answers ? [set_watches, _, _] ->
		answers ? set_watches(_, _);
		held = (named && held != 0 -> link : held); named = false;
		printf("client: setWatches is answered\n") }
	:: d_step { answers ? [refused, _, _] ->
		answers ? refused(_, _);
		refused_on = link; named = false; extra++;
		printf("client: setWatches is refused\n") }
	:: d_step { must_set && up ->
		must_set = false;
		requests ! set_watches(0, seen);
		named = true;
		printf("client: sends setWatches\n") }
	:: d_step { must_reset ->
		must_reset = false;
#ifndef BROKEN_NO_RESET
		fire();
#endif
#ifdef BROKEN_ARM_AGAIN
		held = 0;
#endif
		printf("client: all look again\n") }
	od
}

proctype Network() {
end:	do
	:: d_step { up && cuts > 0 ->
		cuts--; up = false; has_watch = false; lost = false; must_set = false;
		i = looking; looking = NONE;
		if
		:: i != NONE -> due = true; forget(i)
		:: else
		fi;
		i = 0;
		do
		:: len(requests) > 0 -> requests ? _, _, _
		:: else -> break
		od;
		do
		:: len(answers) > 0 -> answers ? _, _, _
		:: else -> break
		od;
		extra++;
		printf("network: cuts the connection\n") }
	:: d_step { !up && ended < link ->
		ended = link; named = false;
		printf("client: hears of the end of the connection\n") }
	:: d_step { !up && ended == link && !must_reset ->
		up = true; link++; must_reset = true; must_set = wire_watches > 0;
		member = seen;
		printf("client: is connected again\n") }
	od
}

proctype Member() {
end:	do
	:: d_step { changes > 0 ->
		changes--; version++;
		printf("somebody: changes the znode to version %d\n", version) }
	:: d_step { up && member < version && len(answers) < 4 ->
		member++;
		if
		:: has_watch -> has_watch = false; answers ! event(0, member)
		:: else -> due = due || lost
		fi;
		printf("member: has version %d\n", member) }
	:: d_step { up && member < version && has_watch && silent > 0 ->
		silent--; member++; has_watch = false; lost = true; due = true;
		printf("member: has version %d, and uses up the watch in silence\n", member) }
	:: d_step { up && requests ? [look, _, _] && len(answers) < 4 ->
		requests ? look(i, _);
		answers ! look(i, member);
		i = 0;
		printf("member: answers a look\n") }
	:: d_step { up && requests ? [get, _, _] && len(answers) < 4 ->
		requests ? get(i, _);
		answers ! get(i, member);
		i = 0;
		printf("member: answers a read\n") }
	:: d_step { up && requests ? [get_and_watch, _, _] && len(answers) < 4 ->
		requests ? get_and_watch(i, v);
		has_watch = true; lost = false;
#ifndef BROKEN_READ_FIRST
		v = member;
#endif
		answers ! get_and_watch(i, v);
		v = 0;
		i = 0;
		printf("member: arms a watch\n") }
	:: d_step { up && requests ? [set_watches, _, _] && len(answers) < 3 ->
		requests ? set_watches(_, v);
		if
		:: v < member -> answers ! event(0, member)
		:: else -> has_watch = true; lost = false
		fi;
		v = 0;
		answers ! set_watches(0, 0);
		printf("member: sets the watches\n") }
	:: d_step { up && requests ? [set_watches, _, _] && refusals > 0 && len(answers) < 4 ->
		refusals--;
		requests ? set_watches(_, _);
		answers ! refused(0, 0);
		printf("member: refuses to set the watches\n") }
	od
}

/* When nothing can happen any more. */
active proctype Quiet() {
	byte c;
	timeout ->
	for (c : 0 .. CALLERS - 1) {
		assert(waits[c] != NONE);
		assert(state[waits[c]] == READY && !fired[waits[c]]);
		assert(read[waits[c]] == version)
	}
}

init {
	byte n;
	atomic {
		for (n : 0 .. CALLERS - 1) {
			run Caller(n)
		}
		for (n : 0 .. SHARED - 1) {
			run Watch(n)
		}
		run Reader(); run Network(); run Member()
	}
}

ltl told { [] (waits[0] == NONE -> <> (waits[0] != NONE && state[waits[0]] == READY)) }
