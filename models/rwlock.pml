/*
The read/write lock: shared by readers, exclusive for a writer, and kept over a
downgrade.

Proves
    - alone: whenever a znode is granted, none that stands ahead of it excludes
      it, and no writer holds while anybody else holds, in any process. So of two
      grants that exclude each other the later one has the greater number, and
      the greater token: numbers are given in order.
    - lost: the same, when a session is lost, and its client goes on in another
      one while the old znodes still stand.
    - three: the same for three clients.
    - told: under weak fairness, who waits to read or to write is granted: although
      readers come again and again, and although the event that a writer has come
      may be late.

Code
    in the model              | in the code
    joins                     | recipes/internal/line/acquisition.go: (*acquisition).join
    looks                     | recipes/internal/line/contender.go: (*contender).blocker, recipes/internal/line/rule.go: (*Rule).blocker
    excludes                  | recipes/internal/line/rule.go: (*Rule).lastConflict, recipes/rwlock/rwlock.go: conflicts
    sets its watch            | recipes/internal/line/contender.go: (*contender).wait
    hears, hear               | recipes/internal/line/outlook.go: (*Rule).awaited, recipes/internal/line/outlook.go: (*contender).news
    is granted                | recipes/internal/line/contender.go: (*contender).claim, recipes/internal/line/acquisition.go: (*acquisition).admit
    share                     | recipes/internal/line/localqueue.go: (*localQueue).chooseAllLocked
    readers: share at once    | recipes/internal/line/handoff.go: (*localQueue).shareAtOnce
    readers: look whether     | recipes/internal/line/handoff.go: (*localQueue).shareCurrentLocked, recipes/internal/line/contention.go: (*grant).foundContention
    readers: hear of a writer | recipes/internal/line/contention.go: (*grant).watchContention
    reader: leaves            | recipes/internal/line/share.go: (*Share).leaveLocked, recipes/internal/line/departure.go: (*grant).awaitDeparture
    reader, writer: gives up  | recipes/internal/line/localqueue.go: (*localQueue).giveUp
    writer: downgrades        | recipes/internal/line/downgrade.go: (*Share).downgrade
    writer: has both          | recipes/internal/line/downgrade.go: (*Share).claimWith
    BROKEN_UPGRADE            | recipes/rwlock/rwlock.go: writing.acquire
    client: has lost          | internal/managed/session/session.go: (*Session).End, recipes/internal/line/grant.go: (*grant).lose
    ensemble: removes         | testutil/leader.go: (*leadership).prepareLocked

Bounds
    CLIENTS processes, each with one goroutine that writes, again and again, and
    READERS that read. With LOSSES=1 client 0 loses its session once, at any
    moment. With GIVE_UP who waits may give up at any moment. In line a process
    has one znode for all goroutines that wait to read, one for the writer, one
    beside that for a downgrade, and one for each grant for reading. Positions
    stand for numbers: they close up when a znode leaves, so that runs may be
    endless.

Leaves out
    - Lost answers, and members that lag: creates.pml.
    - When a session is known to be lost: deadline.pml. Here its leases are lost
      first, and its znodes are removed at any time after that.
    - What an event must say to grant, and a writer that counts several readers
      down by events: line.pml.
    - Handing a writer's znode off, lingering, tries, WithMaxHold, and others who
      remove znodes of ours.

Runs
    run   | checks     | small                                              | large
    alone | assertions | CLIENTS=2 READERS=1                                | CLIENTS=2 READERS=1 LOSSES=1
    lost  | assertions | CLIENTS=2 READERS=1 LOSSES=1 DOWNGRADE=0 GIVE_UP=0 | CLIENTS=2 READERS=1 LOSSES=1 GIVE_UP=0
    three | assertions | CLIENTS=3 ONE_READS=1 DOWNGRADE=0 GIVE_UP=0        | CLIENTS=3 READERS=2 ONE_READS=1 DOWNGRADE=0 GIVE_UP=0
    told  | ltl told   | READERS=2 ONE_READS=1 DOWNGRADE=0 GIVE_UP=0        | READERS=1 GIVE_UP=0

Broken
    variant                     | run   | what is wrong
    BROKEN_READERS_DO_NOT_COUNT | alone | A writer waits for the last writer ahead only.
    BROKEN_NO_SECOND_LOOK       | alone | A writer goes on when its predecessor has left, whatever else its list has shown.
    BROKEN_DOWNGRADED           | alone | A writer that had one writer ahead goes on when that has left, which was downgraded since.
    BROKEN_NEW_PLACE            | alone | A downgrade joins the line at its end.
    BROKEN_GAP                  | alone | A downgrade removes the write's znode before it makes the read's.
    BROKEN_STALE_GRANT          | lost  | A grant survives the loss of its session.
    BROKEN_WATCH_WHAT_HAS_LEFT  | told  | What has left before the watch was set is waited for.
    BROKEN_UPGRADE              | told  | Who reads may wait to write, and reads on meanwhile.
    BROKEN_SHARE_ALWAYS         | told  | Readers share although a writer waits.

Unreached
    where           | statement | why
    proctype Writer | -end-     | it wants to write again and again
    proctype Reader | -end-     | it wants to read again and again
    proctype Line   | -end-     | it waits for readers
    proctype Event  | -end-     | it waits for writers

Measured
    run   | bounds | states    | depth   | seconds
    alone | small  | 368,641   | 599,473 | 7.1
    lost  | small  | 317,801   | 101,065 | 4.0
    three | small  | 12,921    | 48,470  | 0.3
    told  | small  | 87,043    | 105,760 | 5.9
    alone | large  | 4,649,449 | 88,725  | 43.1
    lost  | large  | 460,813   | 10,393  | 2.1
    three | large  | 434,833   | 79,605  | 2.5
    told  | large  | 141,985   | 20,750  | 5.1
*/

#ifndef CLIENTS
#define CLIENTS 2
#endif
#ifndef READERS
#define READERS 1
#endif
#ifndef LOSSES
#define LOSSES 0
#endif
#ifndef DOWNGRADE
#define DOWNGRADE 1
#endif
#ifndef ONE_READS
#define ONE_READS 0 /* 1: only client 0 has readers */
#endif
#ifndef GIVE_UP
#define GIVE_UP 1 /* 0: whoever waits does so until it is granted */
#endif

/* The znodes that client c may have: for reading, for writing, and the read beside
   the write that it comes from. The last ones are those of the lost session. */
#define KINDS (READERS + 2)
#define R(c, i) ((c) * KINDS + (i))
#define W(c) ((c) * KINDS + READERS)
#define D(c) ((c) * KINDS + READERS + 1)
#define MINE (CLIENTS * KINDS)
#define ZNODES (MINE + KINDS * LOSSES)
#define is_write(z) ((z) % KINDS == READERS)
#define excludes(z, y) (is_write(z) || is_write(y))

#define NONE 255
#define GONE 254

/* The line. */
byte at[ZNODES];         /* the znode's place, from 1; 0: it does not exist */
byte last;               /* the last place that is taken */
byte watched[MINE];      /* what a znode waits for: NONE, or GONE once that has left */
bool last_one[MINE];     /* nothing else ahead conflicts, nor can come: it is granted when that has left */

/* What a goroutine does, and what the one does that stands in line for reading. */
mtype = { idle, waits, joins, looks, arms, watches, first, holds, downgrades, both, reads, leaves };
mtype writer[CLIENTS] = idle;
mtype reader[CLIENTS * READERS] = idle;
mtype line[CLIENTS] = idle;
byte slot[CLIENTS];      /* which znode that is */

/* The grants. */
bool writing[CLIENTS];
bool reading[CLIENTS];   /* by the znode of a downgrade */
byte mine[CLIENTS * READERS]; /* the znode that a reader has a share of */
byte shares[MINE];       /* of a znode for reading */
byte current[CLIENTS];   /* the latest one, which may be shared; NONE */
bool quiet[CLIENTS];     /* a look has found no writer, and no event has come since */
bool contested[CLIENTS]; /* a look has found one: current is not shared any more */
byte waiting[CLIENTS];   /* readers that wait */
byte losses;

#define G(c, i) ((c) * READERS + (i))
#define writer_waits(c) (writer[c] == joins || writer[c] == looks || writer[c] == arms || writer[c] == watches || writer[c] == first)

inline append(z) {
	last++;
	at[z] = last
}

/* Removes z: its watchers are told, and the line closes up. */
inline remove(z) {
	place = at[z];
	at[z] = 0;
	n = 0; k = 0;
	do
	:: n < ZNODES -> k = (at[n] == place -> k + 1 : k); n++
	:: else -> break
	od;
	n = 0;
	do
	:: n < ZNODES && k == 0 -> at[n] = (at[n] > place -> at[n] - 1 : at[n]); n++
	:: else -> break
	od;
	last = (k == 0 -> last - 1 : last);
	place = 0; k = 0;
	tell(z, GONE)
}

/* What watches z watches y now. */
inline tell(z, y) {
	n = 0;
	do
	:: n < MINE -> watched[n] = (watched[n] == z -> y : watched[n]); n++
	:: else -> break
	od;
	n = 0
}

#ifdef BROKEN_READERS_DO_NOT_COUNT
#define conflict(z, y) is_write(y)
#else
#define conflict(z, y) excludes(z, y)
#endif

/* A writer that leaves may have been downgraded to a read, which stands where it
   stood: a writer behind it looks again. */
#ifdef BROKEN_DOWNGRADED
#define may_be_downgraded(z, y) false
#else
#define may_be_downgraded(z, y) (is_write(z) && is_write(y))
#endif

/* Sets watched[z] to the last znode ahead that z has to wait for, or NONE, and
   last_one[z]. */
inline look(z) {
	watched[z] = NONE;
	k = 0; place = 0;
	do
	:: n < ZNODES ->
		if
		:: at[n] > 0 && at[n] < at[z] && conflict(z, n) ->
			place++;
			watched[z] = (at[n] >= k -> n : watched[z]);
			k = (at[n] >= k -> at[n] : k)
		:: else
		fi;
		n++
	:: else -> break
	od;
	last_one[z] = place == 1 && !may_be_downgraded(z, watched[z]);
	n = 0; k = 0; place = 0
}

/* Between the list and the watch, what z waits for may have left: then it looks
   again at once. */
inline arm(z) {
#ifdef BROKEN_WATCH_WHAT_HAS_LEFT
	watched[z] = (watched[z] == GONE -> NONE : watched[z])
#else
	skip
#endif
}

/* Nothing ahead of z excludes it. */
inline check_place(z) {
	do
	:: n < ZNODES -> assert(!(at[n] > 0 && at[n] < at[z] && excludes(z, n))); n++
	:: else -> break
	od;
	n = 0
}

/* No writer holds beside anybody else. */
inline check() {
	k = 0; place = 0;
	do
	:: n < CLIENTS ->
		k = k + writing[n];
		place = place + (reading[n] && !writing[n]);
		n++
	:: else -> break
	od;
	n = 0;
	do
	:: n < MINE -> place = place + (shares[n] > 0); n++
	:: else -> break
	od;
	n = 0;
	assert(k == 0 || k == 1 && place == 0);
	k = 0; place = 0
}

/* A writer stands in line. */
#if LOSSES
#define old_writer at[W(CLIENTS)]
#else
#define old_writer 0
#endif
#if CLIENTS == 2
#define any_writer (at[W(0)] + at[W(1)] + old_writer > 0)
#else
#define any_writer (at[W(0)] + at[W(1)] + at[W(2)] + old_writer > 0)
#endif

proctype Writer(byte c) {
	byte n, k, place;
end:	do
	:: d_step { writer[c] == idle ->
		writer[c] = joins;
		printf("writer %d: wants to write\n", c) }
	:: d_step { writer[c] == joins ->
		append(W(c));
		writer[c] = looks;
		printf("writer %d: joins the line\n", c) }
	:: d_step { writer[c] == looks ->
		look(W(c));
		writer[c] = (watched[W(c)] == NONE -> first : arms);
		printf("writer %d: looks at the line\n", c) }
	:: d_step { writer[c] == arms ->
		arm(W(c));
		writer[c] = watches;
		printf("writer %d: sets its watch\n", c) }
	:: d_step { writer[c] == watches && watched[W(c)] == GONE ->
		watched[W(c)] = NONE;
#ifdef BROKEN_NO_SECOND_LOOK
		writer[c] = first;
#else
		writer[c] = (last_one[W(c)] -> first : looks);
#endif
		last_one[W(c)] = false;
		printf("writer %d: hears that what it waits for has left\n", c) }
	:: d_step { writer[c] == first ->
		check_place(W(c));
		writer[c] = holds;
		writing[c] = true;
		printf("writer %d: is granted\n", c);
		check() }
#if GIVE_UP
	:: d_step { writer_waits(c) ->
		watched[W(c)] = NONE; last_one[W(c)] = false;
		writer[c] = (at[W(c)] > 0 -> leaves : idle);
		printf("writer %d: gives up\n", c) }
#endif
	:: d_step { writer[c] == holds ->
		writing[c] = false;
		writer[c] = leaves;
		printf("writer %d: releases\n", c) }
	:: d_step { writer[c] == leaves ->
		remove(W(c));
		writer[c] = idle;
		printf("writer %d: has left the line\n", c) }

#if DOWNGRADE
	:: d_step { writer[c] == holds ->
#ifdef BROKEN_GAP
		remove(W(c));
#endif
#if defined(BROKEN_NEW_PLACE) || defined(BROKEN_GAP)
		append(D(c));
#else
		at[D(c)] = at[W(c)];
#endif
		writer[c] = downgrades;
		printf("writer %d: makes the znode of a downgrade\n", c) }
	:: d_step { writer[c] == downgrades ->
		reading[c] = true;
		writer[c] = both;
		printf("writer %d: has a read lease too\n", c);
		check() }
	:: d_step { writer[c] == both ->
		writing[c] = false;
#ifndef BROKEN_GAP
		remove(W(c));
#endif
		writer[c] = reads;
		printf("writer %d: releases the write lease, and reads on\n", c) }
	:: d_step { writer[c] == reads ->
		reading[c] = false;
		remove(D(c));
		writer[c] = idle;
		printf("writer %d: releases the read lease\n", c) }
#endif
	od
}

/* All readers of c that wait get a share of z. */
inline share(c, z) {
	do
	:: n < READERS ->
		if
		:: reader[G(c, n)] == waits -> reader[G(c, n)] = holds; mine[G(c, n)] = z; shares[z]++
		:: else
		fi;
		n++
	:: else -> break
	od;
	n = 0;
	waiting[c] = 0;
	current[c] = z
}

inline forget_current(c) {
	current[c] = NONE;
	quiet[c] = false;
	contested[c] = false
}

#ifdef BROKEN_SHARE_ALWAYS
#define may_share(c) (current[c] != NONE && shares[current[c]] > 0)
#else
#define may_share(c) (quiet[c])
#endif
#ifdef BROKEN_UPGRADE
#define may_leave(c) (!writer_waits(c)) /* it waits to write, and reads on */
#else
#define may_leave(c) true
#endif

/* Goroutine i of client c. */
proctype Reader(byte c; byte i) {
	byte n, k, place, z;
end:	do
	:: d_step { reader[G(c, i)] == idle && waiting[c] == 0 && current[c] != NONE && may_share(c) ->
		reader[G(c, i)] = holds;
		mine[G(c, i)] = current[c];
		shares[current[c]]++;
		printf("reader %d of %d: shares at once what others have\n", i, c);
		check() }
	:: d_step { reader[G(c, i)] == idle ->
		reader[G(c, i)] = waits;
		waiting[c]++;
		printf("reader %d of %d: wants to read\n", i, c) }
#if GIVE_UP
	:: d_step { reader[G(c, i)] == waits ->
		reader[G(c, i)] = idle;
		waiting[c]--;
		printf("reader %d of %d: gives up\n", i, c) }
#endif
	:: d_step { reader[G(c, i)] == holds && may_leave(c) ->
		n = mine[G(c, i)];
		shares[n]--;
		reader[G(c, i)] = (shares[n] == 0 && !(n == current[c] && waiting[c] > 0 && !contested[c]) -> leaves : idle);
		if
		:: reader[G(c, i)] == leaves && n == current[c] -> forget_current(c)
		:: else
		fi;
		n = 0;
		printf("reader %d of %d: releases\n", i, c) }
	:: d_step { reader[G(c, i)] == leaves ->
		z = mine[G(c, i)];
		remove(z);
		z = 0;
		reader[G(c, i)] = idle;
		printf("reader %d of %d: was the last, its znode has left the line\n", i, c) }
	od
}

#define stands(c) R(c, slot[c])

/* The one that stands in line for the readers of client c, and looks whether those
   that come later may share. */
proctype Line(byte c) {
	byte n, k, place, z;
end:	do
	:: d_step { line[c] == idle && waiting[c] > 0 && (current[c] == NONE || contested[c]) ->
		do
		:: at[R(c, slot[c])] > 0 -> slot[c] = (slot[c] + 1) % READERS
		:: else -> break
		od;
		append(stands(c));
		line[c] = looks;
		printf("readers of %d: join the line\n", c) }
	:: d_step { line[c] == looks ->
		look(stands(c));
		line[c] = (watched[stands(c)] == NONE -> first : arms);
		printf("readers of %d: look at the line\n", c) }
	:: d_step { line[c] == arms ->
		arm(stands(c));
		line[c] = watches;
		printf("readers of %d: set their watch\n", c) }
	:: d_step { line[c] == watches && watched[stands(c)] == GONE ->
		watched[stands(c)] = NONE;
		line[c] = (last_one[stands(c)] -> first : looks);
		last_one[stands(c)] = false;
		printf("readers of %d: hear that what they wait for has left\n", c) }
	:: d_step { line[c] == first && waiting[c] > 0 ->
		check_place(stands(c));
		z = stands(c);
		line[c] = idle;
		forget_current(c);
		share(c, z);
		z = 0;
		printf("readers of %d: are granted\n", c);
		check() }
	:: d_step { line[c] != idle && waiting[c] == 0 ->
		z = stands(c);
		watched[z] = NONE; last_one[z] = false;
		remove(z);
		z = 0;
		line[c] = idle;
		printf("readers of %d: nobody waits any more, and the znode leaves\n", c) }

	/* Of the current grant. */
	:: d_step { line[c] == idle && waiting[c] > 0 && current[c] != NONE && !contested[c] ->
		if
		:: !any_writer ->
			quiet[c] = true;
			z = current[c];
			share(c, z);
			z = 0;
			printf("readers of %d: see that no writer waits, and share\n", c)
		:: else ->
			contested[c] = true;
			quiet[c] = false;
			printf("readers of %d: see that a writer waits, and do not share\n", c)
		fi;
		check() }
	:: d_step { current[c] != NONE && shares[current[c]] == 0 && (waiting[c] == 0 || contested[c]) ->
		z = current[c];
		forget_current(c);
		remove(z);
		z = 0;
		printf("readers of %d: what was kept for others leaves\n", c) }
	od
}

/* The watch of the directory. */
proctype Event(byte c) {
end:	do
	:: d_step { quiet[c] && any_writer ->
		quiet[c] = false;
		printf("readers of %d: hear that a writer has come\n", c) }
	od
}

/* A session is lost: its leases at once, and its znodes at any time later. Its
   client has another one. */
proctype Session(byte c) {
	byte n, k, place, z;
end:	if
	:: d_step { losses < LOSSES ->
		losses++;
		do
		:: z < KINDS ->
			at[MINE + z] = at[c * KINDS + z];
			at[c * KINDS + z] = 0;
			shares[c * KINDS + z] = 0;
			watched[c * KINDS + z] = NONE;
			last_one[c * KINDS + z] = false;
			z++
		:: else -> break
		od;
		z = 0;
		do
		:: z < KINDS ->
			k = c * KINDS + z;
			place = MINE + z;
			tell(k, place);
			z++
		:: else -> break
		od;
		z = 0; k = 0; place = 0;
		do
		:: n < READERS ->
			reader[G(c, n)] = (reader[G(c, n)] == waits -> waits : idle);
			n++
		:: else -> break
		od;
		n = 0;
		reading[c] = false;
#ifndef BROKEN_STALE_GRANT
		writing[c] = false;
#endif
		writer[c] = (writer_waits(c) -> joins : idle);
		line[c] = idle;
		forget_current(c);
		printf("client %d: has lost its session, and with it what it held\n", c) };
		d_step {
			z = MINE;
			do
			:: z < ZNODES ->
				if
				:: at[z] > 0 -> remove(z)
				:: else
				fi;
				z++
			:: else -> break
			od;
			z = 0;
			printf("ensemble: removes the znodes of the lost session\n") }
	:: losses == LOSSES
	fi
}

init {
	byte c, i;
	atomic {
		do
		:: i < MINE -> watched[i] = NONE; i++
		:: else -> break
		od;
		i = 0;
		do
		:: c < CLIENTS ->
			current[c] = NONE;
			run Writer(c);
			do
			:: (c == 0 || !ONE_READS) && i < READERS -> run Reader(c, i); i++
			:: else -> break
			od;
			if
			:: i > 0 -> run Line(c); run Event(c); i = 0
			:: else
			fi;
			c++
		:: else -> break
		od;
#if LOSSES
		run Session(0); /* of any one: they are alike */
#endif
		c = 0; i = 0
	}
}

ltl told { []((writer_waits(0) -> <>!writer_waits(0)) && (reader[0] == waits -> <>(reader[0] != waits))) }
