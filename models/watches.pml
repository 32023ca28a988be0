/*
Watches: callers of one session share a watch of one znode, over connections
that are cut, on a server that may use a watch up without an event. No change is
missed, and a watch that nobody wants any more is removed.

Proves
    - When nothing can happen any more, each caller waits that has not given up,
      and what it has read last is the znode as it is. So no change is missed.
    - Then the server has no watch if all callers have given up.
    - told: under weak fairness, a caller that looks gets an answer, at last.

Code
    in the model          | in the code
    looks, joins          | internal/managed/watches/hub.go: Scope.Watch, internal/managed/watches/hub.go: (*hub).join
    is sent               | internal/managed/watches/hub.go: (*Watches).arm, internal/managed/watches/hub.go: (*hub).begin
    is armed              | internal/managed/watches/unwanted.go: (*hub).noteArmed
    fails                 | internal/managed/watches/hub.go: (*hub).drop
    is told of a change   | internal/managed/watches/hub.go: (*hub).onEvent
    all look again        | internal/managed/watches/hub.go: (*hub).reset, internal/managed/session/run.go: (*Session).onConnected
    goes on as            | internal/managed/watches/resume.go: (*Watch).goOnLocked, internal/managed/watches/resume.go: (*Watch).resume
    is set again          | internal/managed/watches/resume.go: (*Watches).goOn, internal/managed/watches/resume.go: (*Watches).setSome
    is due, looks at it   | internal/managed/watches/lookout.go: (*Watch).checkOften, internal/managed/watches/lookout.go: (*Watch).look
    has missed a change   | internal/managed/watches/lookout.go: (*hub).loseWatch
    gives up              | internal/managed/watches/unwanted.go: (*Watches).Unwatch, internal/managed/watches/unwanted.go: (*Watch).leave
    begins a removal      | internal/managed/watches/unwanted.go: (*trees).beginRemoval, internal/managed/watches/unwanted.go: (*hub).unwantedLocked
    sends the removal     | internal/managed/watches/unwanted.go: (*Watches).removeUnwanted
    is removed            | internal/managed/watches/unwanted.go: (*trees).endRemoval

Bounds
    CHANGES of the znode; CUTS of the connection; REFUSALS of a setWatches;
    OTHERS, reads that others make; SILENT changes, which use up a watch without
    an event; GIVE_UP: callers that give up; RESUME: whether callers take their
    watch up after a reconnect; CALLERS that watch.

Leaves out
    - A znode that does not exist, may not be read, or is created again.
    - Recursive watches, and watches that the hub does not know.
    - Other znodes, but for the transactions of their reads: one setWatches for
      all watches names the latest of those.
    - The end of the session: every caller is told.
    - That there is a look about every session timeout: one is made after a
      silent change, and after each change until the watch is armed again, at
      any time after it, while a caller waits. And that a removal waits for as
      long: it comes at any time.

Runs
    run     | checks     | small | large
    seen    | assertions | CALLERS=2 CHANGES=2 CUTS=1 REFUSALS=0 OTHERS=1 SILENT=0 GIVE_UP=0 RESUME=0 | CALLERS=2 CHANGES=2 CUTS=2 REFUSALS=0 OTHERS=1 SILENT=0 GIVE_UP=1 RESUME=0
    resumed | assertions | CALLERS=1 CHANGES=2 CUTS=2 REFUSALS=1 OTHERS=1 SILENT=0 GIVE_UP=0 RESUME=1 | CALLERS=2 CHANGES=2 CUTS=2 REFUSALS=1 OTHERS=1 SILENT=0 GIVE_UP=1 RESUME=1
    removed | assertions | CALLERS=2 CHANGES=1 CUTS=1 REFUSALS=0 OTHERS=0 SILENT=0 GIVE_UP=2 RESUME=0 | CALLERS=2 CHANGES=2 CUTS=1 REFUSALS=1 OTHERS=0 SILENT=0 GIVE_UP=3 RESUME=1
    lost    | assertions | CALLERS=1 CHANGES=2 CUTS=1 REFUSALS=0 OTHERS=1 SILENT=1 GIVE_UP=0 RESUME=1 | CALLERS=2 CHANGES=2 CUTS=1 REFUSALS=1 OTHERS=1 SILENT=1 GIVE_UP=1 RESUME=1
    told    | ltl told   | CALLERS=1 CHANGES=1 CUTS=1 REFUSALS=0 OTHERS=0 SILENT=1 GIVE_UP=0 RESUME=0 | CALLERS=1 CHANGES=2 CUTS=1 REFUSALS=1 OTHERS=0 SILENT=1 GIVE_UP=0 RESUME=1

Broken
    variant           | run     | bounds | what is wrong
    BROKEN_NO_RESET   | seen    | CALLERS=1 CHANGES=1 CUTS=1 REFUSALS=0 OTHERS=0 SILENT=0 GIVE_UP=0 RESUME=0 | After a reconnect nobody looks again.
    BROKEN_READ_FIRST | seen    | CALLERS=1 CHANGES=1 CUTS=0 REFUSALS=0 OTHERS=0 SILENT=0 GIVE_UP=0 RESUME=0 | The znode is read first, and then watched.
    BROKEN_SEEN       | resumed | CALLERS=1 CHANGES=1 CUTS=1 REFUSALS=0 OTHERS=1 SILENT=0 GIVE_UP=0 RESUME=1 | setWatches names the latest transaction that the session has seen, not that of a read.
    BROKEN_YOUNG      | resumed | CALLERS=1 CHANGES=1 CUTS=1 REFUSALS=0 OTHERS=1 SILENT=0 GIVE_UP=0 RESUME=1 | setWatches names what was read on the connection on which it arms.
    BROKEN_UNSET      | resumed | CALLERS=1 CHANGES=1 CUTS=1 REFUSALS=1 OTHERS=0 SILENT=0 GIVE_UP=0 RESUME=1 | A watch goes on although setWatches has failed.
    BROKEN_GATE       | removed | CALLERS=2 CHANGES=1 CUTS=0 REFUSALS=0 OTHERS=0 SILENT=0 GIVE_UP=1 RESUME=0 | A watch is armed while a removal is under way.
    BROKEN_WANTED     | removed | CALLERS=2 CHANGES=1 CUTS=0 REFUSALS=0 OTHERS=0 SILENT=0 GIVE_UP=1 RESUME=0 | A watch is removed that another caller still wants, and stays as it is.
    BROKEN_SPENT      | removed | CALLERS=2 CHANGES=2 CUTS=0 REFUSALS=0 OTHERS=0 SILENT=0 GIVE_UP=3 RESUME=0 | A watch that has fired while it was armed counts as used up.
    BROKEN_NO_LOOK    | lost    | CALLERS=1 CHANGES=1 CUTS=0 REFUSALS=0 OTHERS=0 SILENT=1 GIVE_UP=0 RESUME=0 | Nobody looks at a znode whose watch has not fired.

Measured
    run     | bounds | states    | depth | seconds
    seen    | small  | 17,688    | 320   | 0.2
    seen    | large  | 337,172   | 75    | 1.4
    resumed | small  | 31,460    | 367   | 0.3
    resumed | large  | 3,010,799 | 105   | 13.2
    removed | small  | 7,157     | 346   | 0.2
    removed | large  | 635,788   | 92    | 2.6
    lost    | small  | 22,354    | 329   | 0.6
    lost    | large  | 2,052,229 | 93    | 7.8
    told    | small  | 733       | 316   | 0.2
    told    | large  | 8,720     | 132   | 0.2
*/

#define NONE   7
#define SHARED 5            /* as many watches of callers exist at one time */

/* ---- the ensemble ---- */
byte version;               /* of the znode */
byte member;                /* of the znode, at the client's member */
bool has_watch;             /* the member has a watch, on this connection */
bool lost;                  /* it has used up the watch in silence */

/* ---- the connection: requests and answers are in order ---- */
mtype = { read_and_watch, set_watches, look, other, remove, event, refused };
chan requests = [4] of { mtype, byte, byte };   /* what, for which watch, since which version */
chan answers = [4] of { mtype, byte, byte };    /* what, for which watch, the version */
bool up = true;
byte link = 1;              /* the number of the latest connection */
byte ended;                 /* the latest that the client knows to have ended */
byte cuts = CUTS, refusals = REFUSALS, others = OTHERS, changes = CHANGES, silent = SILENT, gives_up = GIVE_UP;

/* ---- the session ---- */
byte seen;                  /* the latest version in an answer */
byte young;                 /* the latest that others have read under watches of theirs, on this connection */
byte aged;                  /* the same, on connections that have ended */

/* ---- the hub: watches that callers share ---- */
#define UNUSED  0
#define BEGUN   1           /* it is about to be armed by a read */
#define ARMING  2           /* the read is sent */
#define AGAIN   3           /* it is about to be armed by a setWatches */
#define SETTING 4           /* the setWatches is sent */
#define READY   5
#define FAILED  6
byte state[SHARED];
byte on[SHARED];            /* the connection of its request */
byte read[SHARED];          /* the version that was read */
byte since[SHARED];         /* a later version makes the server send an event */
bool fired[SHARED];
bool by_event[SHARED];      /* an event has fired it */
byte goes_on[SHARED] = NONE; /* the one that goes on after it */
byte looking = NONE;        /* the one that a look under way is for */
bool due;                   /* a look has to be made */
byte armed = NONE;          /* the one that callers join */
bool must_reset;            /* it has to fire those of earlier connections */
byte unwanted;              /* the connection on which the server may have a watch that nobody wants; 0: none */
bool removing;              /* a removal is under way: nothing is armed */
bool removal_sent;

/* ---- the callers ---- */
byte waits[CALLERS] = NONE; /* for which watch; NONE: it looks again */
bool gone[CALLERS];         /* it has given up */
byte k, i, v, n;

inline fire() {
	if
	:: armed != NONE -> fired[armed] = true; armed = NONE
	:: else
	fi
}

inline make(w) {
	w = NONE;
	for (k : 0 .. SHARED - 1) {
		w = (state[k] == UNUSED -> k : w)
	}
	k = 0;
	assert(w != NONE);
	armed = w; on[w] = link
}

/* n is how many callers wait for w. */
inline count(w) {
	n = 0;
	for (k : 0 .. CALLERS - 1) {
		n = n + (waits[k] == w)
	}
	k = 0
}

/* A watch that nobody waits for, or may take up, is forgotten. */
inline forget(w) {
	count(w);
	for (k : 0 .. SHARED - 1) {
		n = n + (goes_on[k] == w)
	}
	if
	:: n == 0 && armed != w && looking != w && (state[w] == READY || state[w] == FAILED) ->
		n = goes_on[w];
		state[w] = UNUSED; on[w] = 0; read[w] = 0; since[w] = 0; fired[w] = false; by_event[w] = false; goes_on[w] = NONE
	:: else -> n = NONE
	fi;
	k = 0
}

/* The same, and the one that was to go on after it. */
inline clean(w) {
	forget(w);
	if
	:: n != NONE -> v = n; forget(v); v = 0
	:: else
	fi;
	n = 0
}

proctype Caller(byte c) {
end:	do
	:: d_step { waits[c] == NONE && !gone[c] && up ->
		if
		:: armed == NONE ->
			make(i);
			state[i] = BEGUN;
			printf("caller %d: looks, and watch %d begins\n", c, i)
		:: else ->
			i = armed;
			printf("caller %d: joins watch %d\n", c, i)
		fi;
		waits[c] = i; unwanted = 0; i = 0 }
	:: d_step { waits[c] != NONE && (state[waits[c]] == FAILED || state[waits[c]] == READY && fired[waits[c]]) ->
		i = waits[c]; waits[c] = goes_on[i];
		if
		:: waits[c] != NONE -> printf("caller %d: goes on with watch %d\n", c, waits[c]); unwanted = (armed == waits[c] -> 0 : unwanted)
		:: else -> printf("caller %d: has to look again\n", c)
		fi;
		clean(i); i = 0 }
	:: d_step { waits[c] != NONE && gives_up > 0 ->
		gives_up--;
		printf("caller %d: gives up\n", c);
		i = waits[c]; waits[c] = NONE;
		if
		:: gives_up < CALLERS -> gone[c] = true
		:: else /* it comes again */
		fi;
		count(i);
		unwanted = (n == 0 && armed == i -> on[i] : unwanted);
		n = 0;
		clean(i); i = 0 }
	od
}

inline fail(w) {
	state[w] = FAILED;
	if
	:: armed == w -> fire()
	:: else
	fi;
	printf("watch %d: fails\n", w);
	clean(w)
}

/* The answer to what arms w: an event of an earlier watch may have fired it. */
inline note_armed(w) {
	count(w);
#ifndef BROKEN_SPENT
	unwanted = (armed == NONE && fired[w] -> link : unwanted);
#endif
	unwanted = (armed == w && n == 0 -> link : unwanted);
	n = 0
}

/* One watch that callers share. */
#define usable(w)  (up && on[w] == link && len(requests) < 4)
proctype Watch(byte w) {
end:	do
#ifdef BROKEN_GATE
	:: d_step { state[w] == BEGUN && usable(w) ->
#else
	:: d_step { state[w] == BEGUN && usable(w) && !removing ->
#endif
		state[w] = ARMING;
		requests ! read_and_watch(w, 0);
		printf("watch %d: is sent\n", w) }
	:: d_step { state[w] == AGAIN && usable(w) && !removing ->
		state[w] = SETTING;
		requests ! set_watches(w, since[w]);
		printf("watch %d: is set again\n", w) }
	:: d_step { state[w] >= BEGUN && state[w] <= SETTING && ended >= on[w] ->
		fail(w) }
#ifndef BROKEN_NO_LOOK
	:: d_step { due && state[w] == READY && armed == w && looking == NONE && up && len(requests) < 4 ->
		due = false; looking = w;
		requests ! look(w, 0);
		printf("watch %d: is due, looks at it\n", w) }
#endif
	od
}

/* Removes what nobody wants. */
#define is_arming(w)  (state[w] == ARMING || state[w] == SETTING)
proctype Sweep() {
end:	do
	:: d_step { unwanted != 0 && up && !removing && !is_arming(0) && !is_arming(1) && !is_arming(2) && !is_arming(3) && !is_arming(4) ->
		unwanted = 0;
		count(armed);
#ifdef BROKEN_WANTED
		removing = true
#else
		if
		:: armed == NONE || n == 0 ->
			i = armed;
			removing = true; fire();
			if
			:: i != NONE -> clean(i)
			:: else
			fi;
			i = 0;
			printf("client: begins a removal\n")
		:: else
		fi
#endif
		;
		n = 0 }
	:: d_step { removing && !removal_sent && up && len(requests) < 4 ->
		removal_sent = true;
		requests ! remove(0, 0);
		printf("client: sends the removal\n") }
	od
}

/* What the client does with what comes in. */
proctype Reader() {
end:	do
	:: d_step { answers ? [event, _, _] ->
		answers ? event(_, v);
		v = 0; i = armed;
		if
		:: i != NONE -> by_event[i] = true
		:: else
		fi;
		fire(); unwanted = 0;
		printf("client: is told of a change\n");
		if
		:: i != NONE -> clean(i)
		:: else
		fi;
		i = 0 }
	:: d_step { answers ? [read_and_watch, _, _] ->
		answers ? read_and_watch(i, v);
		seen = v; read[i] = v; state[i] = READY;
		printf("watch %d: is armed, and has read version %d\n", i, v);
		note_armed(i);
		v = 0; clean(i); i = 0 }
	:: d_step { answers ? [set_watches, _, _] ->
		answers ? set_watches(i, v);
		seen = v; state[i] = READY;
		printf("watch %d: is armed again\n", i);
		count(i);
		unwanted = (armed == i && n == 0 || armed == NONE && fired[i] && !by_event[i] -> link : unwanted);
		n = 0; v = 0; clean(i); i = 0 }
	:: d_step { answers ? [refused, _, _] ->
		answers ? refused(i, _);
#ifdef BROKEN_UNSET
		state[i] = READY; clean(i);
#else
		state[i] = BEGUN;
#endif
		printf("watch %d: is not armed again\n", i); i = 0 }
	:: d_step { answers ? [look, _, _] ->
		answers ? look(i, v);
		seen = v;
		looking = NONE;
		if
		:: armed == i && read[i] != v ->
			fire(); unwanted = link;
			printf("watch %d: has missed a change\n", i)
		:: armed != i -> due = true
		:: else
		fi;
		v = 0; clean(i); i = 0 }
	:: d_step { answers ? [other, _, _] ->
		answers ? other(_, v);
		seen = v; young = v; v = 0;
		printf("somebody: has read\n") }
	:: d_step { answers ? [remove, _, _] ->
		answers ? remove(_, _);
		removing = false; removal_sent = false;
		printf("client: it is removed\n") }
	:: d_step { others > 0 && up && len(requests) < 4 ->
		others--;
		requests ! other(0, 0);
		printf("somebody: reads\n") }
	:: d_step { must_reset ->
		must_reset = false;
		unwanted = (unwanted == link -> unwanted : 0);
		printf("client: all look again\n");
#ifndef BROKEN_NO_RESET
		if
		:: armed != NONE && on[armed] != link ->
			i = armed; count(i);
			if
			:: RESUME && state[i] == READY && n > 0 && up ->
				n = 0;
				fire();
				make(v);
				state[v] = AGAIN; read[v] = read[i]; goes_on[i] = v;
				since[v] = (aged > read[i] -> aged : read[i]);
#ifdef BROKEN_SEEN
				since[v] = NONE;
#endif
#ifdef BROKEN_YOUNG
				since[v] = (young > since[v] -> young : since[v]);
#endif
				printf("watch %d: goes on as %d\n", i, v); v = 0
			:: else -> n = 0; fire(); clean(i)
			fi;
			i = 0
		:: else
		fi
#endif
		}
	od
}

proctype Network() {
end:	do
	:: d_step { up && cuts > 0 ->
		cuts--; up = false; has_watch = false; lost = false;
		i = looking; looking = NONE;
		if
		:: i != NONE -> due = true; clean(i)
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
		printf("network: cuts the connection\n") }
	:: d_step { !up && ended < link ->
		ended = link; removing = false; removal_sent = false;
		printf("client: hears of the end of the connection\n") }
	:: d_step { !up && ended == link && !must_reset ->
		up = true; link++; must_reset = true;
		aged = (young > aged -> young : aged); young = 0;
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
	:: d_step { up && requests ? [other, _, _] && len(answers) < 4 ->
		requests ? other(_, _);
		answers ! other(0, member);
		printf("member: answers a read\n") }
	:: d_step { up && requests ? [read_and_watch, _, _] && len(answers) < 4 ->
		requests ? read_and_watch(i, v);
		has_watch = true; lost = false;
#ifdef BROKEN_READ_FIRST
		v = seen;
#else
		v = member;
#endif
		answers ! read_and_watch(i, v);
		v = 0; i = 0;
		printf("member: arms a watch\n") }
	:: d_step { up && requests ? [set_watches, _, _] && len(answers) < 3 ->
		requests ? set_watches(i, v);
#ifdef BROKEN_SEEN
		v = seen;
#endif
		if
		:: v < member -> answers ! event(0, member)
		:: else -> has_watch = true; lost = false
		fi;
		v = 0;
		answers ! set_watches(i, member); i = 0;
		printf("member: sets the watch\n") }
	:: d_step { up && requests ? [set_watches, _, _] && refusals > 0 && len(answers) < 4 ->
		refusals--;
		requests ? set_watches(i, _);
		answers ! refused(i, 0); i = 0;
		printf("member: refuses to set the watch\n") }
	:: d_step { up && requests ? [remove, _, _] && len(answers) < 4 ->
		requests ? remove(_, _);
		has_watch = false; lost = false;
		answers ! remove(0, 0);
		printf("member: removes the watch\n") }
	od
}

/* When nothing can happen any more. */
active proctype Quiet() {
	byte c;
	bool left = true;           /* all have given up */
	timeout ->
	for (c : 0 .. CALLERS - 1) {
		if
		:: gone[c]
		:: else ->
			left = false;
			assert(waits[c] != NONE);
			assert(state[waits[c]] == READY && !fired[waits[c]]);
			assert(read[waits[c]] == version)
		fi
	}
	assert(!left || !has_watch)
}

init {
	byte m;
	atomic {
		for (m : 0 .. CALLERS - 1) {
			run Caller(m)
		}
		for (m : 0 .. SHARED - 1) {
			run Watch(m)
		}
		run Reader(); run Sweep(); run Network(); run Member()
	}
}

ltl told { [] (waits[0] == NONE -> <> (waits[0] != NONE && state[waits[0]] == READY)) }
