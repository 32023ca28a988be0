/*
The double barrier: nobody enters alone, and nobody leaves before the others.

Proves
    - rounds: with as many processes as a round has members, all rounds end,
      although a request is executed late. Nothing is left.
    - more: the same without the end of all rounds, with a process more than a
      round has members: it enters late, or waits for the next round.
    - lost: with sessions that end at any time.
    In all runs: whoever enters was there when ready was created, together with
    all others of a round, or comes while a member of that round is there. And
    when Leave returns, no member that was there at the beginning is inside.

Code
    in the model                 | in the code
    looks at ready               | recipes/barrier/ready.go: (*Double).judge
    judges                       | recipes/barrier/ready.go: (*Double).judge
    marks                        | recipes/barrier/ready.go: (*Double).remover
    creates its znode            | recipes/barrier/double.go: (*Double).join
    enters late                  | recipes/barrier/double.go: (*Double).join
    lists                        | recipes/barrier/double.go: (*Double).enterIn, recipes/barrier/double.go: (*Double).isOlder
    hears of ready               | recipes/barrier/bell.go: (*bell).hear
    opens the round              | recipes/barrier/double.go: (*Double).open
    begins to leave, leaves      | recipes/barrier/leave.go: (*Inside).leave
    has waited                   | recipes/barrier/leave.go: (*Inside).await
    sweeps                       | recipes/barrier/ready.go: (*Double).sweep

Bounds
    ALL processes, of which N are a round; each enters ROUNDS times. LATE marks
    and deletes are executed late, after their answers were given up. LOST
    sessions end. MARKS: how often one ready is marked at most. Without a bound
    two processes could mark in turn for ever, which takes them as much luck.

Leaves out
    - Curator and Kazoo.
    - Lost events, and the looks in case of them. An event arrives at once.
    - An Enter that is canceled: to the others it is one whose session ends.
    - A late create: its name says whose it is, so it does not count as another
      member, and it is removed: see creates.pml.

Runs
    run    | checks     | small                            | large
    rounds | assertions | ALL=2 N=2 ROUNDS=3 LATE=0 LOST=0 | ALL=3 N=3 ROUNDS=2 LATE=0 LOST=0
    more   | assertions | ALL=2 N=1 ROUNDS=2 LATE=0 LOST=0 | ALL=3 N=2 ROUNDS=1 LATE=0 LOST=0
    lost   | assertions | ALL=2 N=2 ROUNDS=2 LATE=1 LOST=1 | ALL=2 N=2 ROUNDS=2 LATE=1 LOST=2

Broken
    variant             | run  | bounds                           | what is wrong
    BROKEN_READY_COUNTS | lost | ALL=2 N=2 ROUNDS=1 LATE=0 LOST=2 | A ready counts although no member is older.
    BROKEN_PLAIN_DELETE | lost | ALL=2 N=2 ROUNDS=2 LATE=1 LOST=2 | A ready that was left behind is deleted without a mark.
    BROKEN_UNCHECKED    | lost | ALL=2 N=2 ROUNDS=1 LATE=0 LOST=1 | Ready is created without a check of the members that were listed.
    BROKEN_LATE_COUNTS  | lost | ALL=2 N=1 ROUNDS=3 LATE=0 LOST=2 | A member that was late for an earlier round keeps ready.
    BROKEN_LOWEST_NAME  | more | ALL=3 N=2 ROUNDS=1 LATE=0 LOST=0 | Not the oldest member stays, but the one with the lowest name.

Unreached
    where              | statement | why
    349                | (1)       | It needs two others that are still there, and so three processes.

Measured
    run    | bounds | states  | depth | seconds
    rounds | small  | 3,494   | 501   | 0.2
    more   | small  | 44,442  | 398   | 0.2
    lost   | small  | 224,400 | 457   | 0.6
*/

#define NOBODY 255
#define MARKS  2   /* a ready is marked at most so often: two could go on for ever */

/* The znodes. A ready with the id k is younger than a member that was born when
 * fewer than k had been created. */
byte ready;             /* 0: there is none */
byte version;           /* of its data */
byte created;           /* how many were created */
bool there[ALL];        /* the znode of a process */
bool late[ALL];         /* it says in its name that it came late */
byte born[ALL];         /* how many readies had been created */
byte gen[ALL];          /* which znode of the process it is */
byte number[ALL];       /* its sequence number: the least is the oldest */
byte numbers;           /* how many were given */

/* The processes. */
bool waits[ALL];        /* a creation of ready is heard */
bool rung[ALL];         /* and was */
bool inside[ALL];
byte round[ALL];        /* the ready that was created while the znode was there */
byte done[ALL];         /* rounds that have ended */

byte lateMark;          /* 1 + the version of a mark that is under way */
byte lateDelete;        /* 1 + the version of a delete that is under way */
byte delayed;           /* how many requests were executed late */
byte lost;              /* how many sessions have ended */

#ifdef BROKEN_LATE_COUNTS
#define OLDER(i, r) (there[i] && born[i] < r)
#else
#define OLDER(i, r) (COUNTS(i) && born[i] < r)
#endif
#ifdef BROKEN_LOWEST_NAME
#define FIRST(i, j) (i < j)
#else
#define FIRST(i, j) (number[i] < number[j])
#endif
#define COUNTS(i) (there[i] && !late[i])

/* A ready is created: whoever is there belongs to its round. */
inline open(i, n) {
	n = 0;
	for (i : 0 .. ALL - 1) {
		n = n + (there[i] && !late[i])
	}
	assert(n >= N);
	created++;
	ready = created; version = 0;
	for (i : 0 .. ALL - 1) {
		if
		:: there[i] && !late[i] -> round[i] = ready
		:: else -> skip
		fi;
		rung[i] = rung[i] || waits[i] && there[i]
	}
	i = 0; n = 0
}

/* Ready is deleted. */
inline remove(i) {
	ready = 0; version = 0;
}

inline make(me, isLate) {
	there[me] = true; late[me] = isLate; born[me] = created; gen[me]++;
	numbers = numbers + !isLate; number[me] = numbers;
	waits[me] = false; rung[me] = false; round[me] = 0
}

proctype Member(byte me) {
	byte r, v, x, g, i, n, others;
	byte gens[ALL];
	bool sees, stays, first, sweeping, gone;

	do
	:: done[me] == ROUNDS -> break
	:: else ->

again:	skip;
		d_step {
			r = ready; v = version; x = NOBODY; g = 0;
			printf("process %d: looks at ready, which is %d\n", me, r) }
		if
		:: r == 0 && !sweeping ->
			d_step {
				make(me, false);
				printf("process %d: creates its znode\n", me) };
			goto list
		:: r == 0 && sweeping -> goto left
		:: else -> skip
		fi;
		d_step {
			for (i : 0 .. ALL - 1) {
				if
				:: OLDER(i, r) && x == NOBODY -> x = i; g = gen[i]
				:: else -> skip
				fi
			}
			i = 0;
			printf("process %d: judges ready %d, %d is older\n", me, r, x) }
		if
		:: sweeping && x != NOBODY -> goto left
#ifdef BROKEN_READY_COUNTS
		:: !sweeping ->
#else
		:: !sweeping && x != NOBODY ->
#endif
			if
			:: d_step { ready != 0 && (x == NOBODY || there[x] && gen[x] == g) ->
				make(me, true); inside[me] = true; round[me] = ready;
				n = 0;
				for (i : 0 .. ALL - 1) {
					n = n + (i != me && there[i] && !late[i] && round[i] == ready)
				}
				i = 0;
				assert(n > 0); n = 0;
				printf("process %d: enters late\n", me) }
				goto leave
			:: else -> goto again
			fi
		:: else -> skip
		fi;

#ifndef BROKEN_PLAIN_DELETE
		/* It was left behind. */
		if
		:: d_step { ready != 0 && version == v && version < MARKS ->
			version++; x = ready;
			printf("process %d: marks ready %d\n", me, x) }
		:: d_step { delayed < LATE && lateMark == 0 ->
			delayed++; lateMark = 1 + v; x = 0;
			printf("process %d: marks, and hears nothing\n", me) }
		:: d_step { ready == 0 || version != v || version >= MARKS ->
			x = 0;
			printf("process %d: cannot mark ready %d\n", me, r) }
		fi;
		if
		:: x != r && sweeping -> goto left
		:: x != r && !sweeping -> goto again
		:: else -> skip
		fi;
		v++;
#endif
		if
		:: d_step { ready != 0 && version == v && !sweeping ->
			remove(i); make(me, false);
			printf("process %d: deletes ready, and creates its znode\n", me) }
		:: d_step { ready != 0 && version == v && sweeping ->
			remove(i);
			printf("process %d: sweeps ready\n", me) }
			goto left
		:: d_step { delayed < LATE && lateDelete == 0 ->
			delayed++; lateDelete = 1 + v;
			printf("process %d: deletes ready, and hears nothing\n", me) }
			if
			:: sweeping -> goto left
			:: else -> goto again
			fi
		:: d_step { ready == 0 || version != v ->
			printf("process %d: cannot delete ready\n", me) }
			if
			:: sweeping -> goto left
			:: else -> goto again
			fi
		fi;

list:	skip;
		d_step {
			sees = ready != 0; n = 0;
			for (i : 0 .. ALL - 1) {
				gens[i] = 0;
				if
				:: COUNTS(i) -> n++; gens[i] = gen[i]
				:: else -> skip
				fi
			}
			i = 0;
			if
			:: !there[me] -> x = 0
			:: there[me] && sees && born[me] < ready -> x = 1
			:: there[me] && sees && born[me] >= ready -> x = 2; there[me] = false
			:: there[me] && !sees -> x = 3; waits[me] = true
			fi;
			printf("process %d: lists %d members, %d\n", me, n, x) }
		if
		:: x == 0 || x == 2 -> n = 0; goto again
		:: x == 1 -> goto enter
		:: x == 3 && n < N -> n = 0; goto wait
		:: x == 3 && n >= N -> n = 0
		fi;
		d_step {
			x = 1;
			for (i : 0 .. ALL - 1) {
				if
#ifdef BROKEN_UNCHECKED
				:: i == me && gens[i] != 0 && !(there[i] && gen[i] == gens[i]) -> x = 0
#else
				:: gens[i] != 0 && !(there[i] && gen[i] == gens[i]) -> x = 0
#endif
				:: else -> skip
				fi
			}
			i = 0;
			if
			:: x == 1 && ready == 0 -> open(i, n)
			:: else -> skip
			fi;
			printf("process %d: opens the round, %d\n", me, x) }
		if
		:: x == 1 -> goto enter
		:: else -> goto list
		fi;

wait:	skip;
end_wait:
		if
		:: d_step { rung[me] ->
			printf("process %d: hears of ready\n", me) }
		:: !there[me] -> goto again
		fi;

enter:	skip;
		d_step {
			assert(round[me] > 0);
			inside[me] = true; waits[me] = false; rung[me] = false; x = 0;
			printf("process %d: enters\n", me) }

leave:
		first = true;
look:	skip;
		d_step {
			gone = !there[me]; inside[me] = false;
			sees = ready != 0; stays = !late[me];
			for (i : 0 .. ALL - 1) {
				if
				:: i == me -> skip
				:: i != me && there[i] && (sees || first && !late[me]) ->
					gens[i] = gen[i]
				:: i != me && there[i] && !(sees || first && !late[me]) ->
					gens[i] = ((!first && gens[i] == gen[i]) -> gen[i] : 0)
				:: i != me && !there[i] ->
					gens[i] = 0
				fi
			}
			gens[me] = 0; others = NOBODY;
			for (i : 0 .. ALL - 1) {
				if
				:: gens[i] != 0 -> others = i; stays = stays && (late[i] || FIRST(me, i))
				:: else -> skip
				fi
			}
			i = 0; first = false;
			printf("process %d: begins to leave, %d is there\n", me, others) }
		if
		:: gone -> goto left /* Leave says so */
		:: !gone && stays && others != NOBODY ->
			g = gens[others];
			!there[me] || !(there[others] && gen[others] == g);
			goto look
		:: else -> skip
		fi;
		if
		:: d_step { there[me] && !(stays && sees && ready == 0) ->
			there[me] = false;
			if
			:: stays && sees -> remove(i)
			:: else -> skip
			fi;
			printf("process %d: leaves\n", me) }
		:: else -> goto look
		fi;
		if
		:: stays -> goto left
		:: else -> skip
		fi;
		do
		:: d_step {
			others = NOBODY; sees = ready != 0;
			for (i : 0 .. ALL - 1) {
				if
				:: gens[i] != 0 && there[i] && gen[i] == gens[i] ->
					if
					:: others == NOBODY || late[others] && !late[i] || !late[others] && !late[i] && FIRST(i, others) -> others = i
					:: else -> skip
					fi
				:: else -> gens[i] = 0
				fi
			}
			i = 0; g = 0;
			printf("process %d: has waited, %d is there\n", me, others) }
			if
			:: others == NOBODY -> break
			:: else ->
				g = gens[others];
				!(there[others] && gen[others] == g)
			fi
		od;
		if
		:: sees ->
			sweeping = true;
			goto again
		:: else -> skip
		fi;

left:	skip;
		d_step {
			if
			:: gone -> skip
			:: else ->
				for (i : 0 .. ALL - 1) {
					assert(i == me || !(inside[i] && there[i] && !late[i] && round[i] == round[me]))
				}
				i = 0
			fi;
			sweeping = false; gone = false; round[me] = 0; done[me]++;
			r = 0; v = 0; x = 0; g = 0; others = 0; n = 0; sees = false; stays = false;
			for (i : 0 .. ALL - 1) {
				gens[i] = 0
			}
			i = 0;
			printf("process %d: is out\n", me) }
	od
}

/* What was sent on a connection that is lost is executed late, or never. */
active proctype Network() {
end:	do
	:: d_step { lateMark != 0 && ready != 0 && version == lateMark - 1 ->
		lateMark = 0; version++;
		printf("ensemble: marks ready %d, late\n", ready) }
	:: d_step { lateMark != 0 ->
		lateMark = 0;
		printf("ensemble: refuses a late mark\n") }
	:: d_step { lateDelete != 0 && ready != 0 && version == lateDelete - 1 ->
		lateDelete = 0;
		byte k;
		k = 0;
		for (k : 0 .. ALL - 1) { /* nobody of its round is there */
			assert(!OLDER(k, ready))
		}
		k = 0;
		remove(k);
		printf("ensemble: deletes ready, late\n") }
	:: d_step { lateDelete != 0 ->
		lateDelete = 0;
		printf("ensemble: refuses a late delete\n") }
	od
}

/* A session ends at any time, and the process goes on in the next one. */
proctype Expiry(byte i) {
end:	do
	:: d_step { lost < LOST && there[i] ->
		lost++; there[i] = false;
		printf("ensemble: ends the session of process %d\n", i) }
	od
}

/* When nothing can happen any more. */
active proctype Quiet() {
	timeout ->
	byte i;
	for (i : 0 .. ALL - 1) {
		assert(done[i] == ROUNDS || ALL > N || lost > 0)
	}
	assert(ready == 0 || lost > 0)
}

init {
	byte i;
	atomic {
		for (i : 0 .. ALL - 1) {
			run Member(i);
			run Expiry(i)
		}
	}
}
