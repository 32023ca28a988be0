/*
The receipt: an addition to a counter is executed once, although answers get
lost, and requests without an answer are executed late.

Proves
    - once: no addition is executed twice. One that is answered was executed,
      with the value that its caller is told. One of which the caller is told
      that it was not executed never is. The counter is the number of additions
      that were executed.

Code
    in the model                        | in the code
    client: reads the counter           | recipes/counter/write.go: (*attempt).read
    client: tries, loses the answer     | recipes/counter/write.go: (*attempt).try
    client: looks at its receipt        | recipes/counter/write.go: (*attempt).settle
    client: has no receipt              | recipes/counter/write.go: (*attempt).lose, recipes/counter/write.go: (*attempt).makeReceipt
    client: is refused by the counter   | recipes/counter/write.go: (*attempt).conflict
    client: gives up                    | recipes/counter/queue.go: (*keeper).leave
    client: cannot add, ends what is open | recipes/counter/write.go: (*attempt).try

Bounds
    Two clients, each with a session and ADDS additions of 1; LATE requests whose
    connection is lost, and which are executed at any time later or never;
    DELETES times an operator deletes a receipt; QUITS times a caller leaves.

Leaves out
    - Members that lag: an old state of the counter is refused as a conflict is.
    - The end of a session, which is the end of its receipt.
    - Somebody who deletes the counter, or writes to it without a version.
    - A lost answer to the request that only ends what is open.
    - Versions that are used up.

Runs
    run  | checks     | small                            | large
    once | assertions | ADDS=2 LATE=2 DELETES=1 QUITS=1  | ADDS=2 LATE=3 DELETES=1 QUITS=1

Broken
    variant           | run  | bounds                          | what is wrong
    BROKEN_CONFLICT   | once | ADDS=1 LATE=1 DELETES=0 QUITS=0 | There is no receipt: after a lost answer, another version of the counter counts as a conflict.
    BROKEN_ANY        | once | ADDS=2 LATE=2 DELETES=0 QUITS=1 | A receipt at another version counts as the success of this addition.
    BROKEN_FORWARD    | once | ADDS=1 LATE=1 DELETES=0 QUITS=0 | Each try has the version that the receipt has by then.
    BROKEN_MISSING    | once | ADDS=1 LATE=1 DELETES=1 QUITS=0 | An addition with an open try goes on with another receipt.
    BROKEN_SAME_NAME  | once | ADDS=2 LATE=2 DELETES=1 QUITS=1 | A new receipt has the name of the one before.
    BROKEN_SAY_NO     | once | ADDS=1 LATE=1 DELETES=0 QUITS=1 | An addition that cannot be made any longer is refused while a try is open.

Measured
    run  | bounds | states     | depth | seconds
    once | small  | 647,520    | 59    | 1.0
    once | large  | 8,410,749  | 41    | 12.7
*/

#define ALL (2 * ADDS)

/* The counter. */
byte value;
byte version;

/* Each client's receipt. */
byte name[2];        /* of the latest; each is used once */
bool there[2];
byte at[2];          /* its version */
byte number[2];      /* of the addition that has set it last; 0: none */
byte noted[2];       /* the value that it has */

/* Each addition. */
byte runs[ALL];      /* how often it was executed */
bool denied[ALL];    /* its caller was told that it was not */
byte after[ALL];     /* the value with which it was */
byte total;          /* additions that were executed */

/* A request whose connection is lost. */
typedef request {
	bool used;
	bit from;
	byte add;
	byte name;
	byte at;
	byte version;
	byte value;
};
request late[LATE];
byte lost;
byte deletes;
byte quits;

#define ID(i, k) (i * ADDS + k - 1)

/* Whether the receipt lets a try pass. */
#ifdef BROKEN_CONFLICT
#define PASSES(i, n, v) true
#else
#define PASSES(i, n, v) (there[i] && name[i] == n && at[i] == v)
#endif

inline execute(i, k, sum) {
	at[i]++; number[i] = k; noted[i] = sum;
	value = sum; version++;
	runs[ID(i, k)]++; total++; after[ID(i, k)] = sum;
	assert(runs[ID(i, k)] == 1 && !denied[ID(i, k)] && value == total)
}

#define READS   0
#define TRIES   1
#define SETTLES 2
#define LOSES   3

proctype Client(bit me) {
	byte add = 1;        /* the addition */
	byte step = READS;
	byte open;           /* tries of it */
	byte mine = 1;       /* the name of the receipt that is known */
	byte its;            /* and its version */
	byte sum;
	byte seen;           /* the version of the counter */

	do
	:: d_step { add <= ADDS && step == READS ->
		sum = value + 1; seen = version; step = TRIES;
		printf("client %d: reads the counter for addition %d\n", me, add) }

	:: d_step { add <= ADDS && step == TRIES ->
#ifdef BROKEN_FORWARD
		its = at[me];
#endif
		if
		:: !PASSES(me, mine, its) && !there[me] ->
			step = LOSES;
			printf("client %d: has no receipt\n", me)
		:: !PASSES(me, mine, its) && there[me] ->
			step = SETTLES;
			printf("client %d: is refused by its receipt\n", me)
		:: PASSES(me, mine, its) && version != seen ->
			step = READS;
			printf("client %d: is refused by the counter\n", me)
		:: PASSES(me, mine, its) && version == seen ->
			execute(me, add, sum);
			its++;
			printf("client %d: hears that addition %d was made\n", me, add);
			add++; open = 0; step = READS
		fi }
	:: d_step { add <= ADDS && step == TRIES && there[me] && lost < LATE ->
#ifdef BROKEN_FORWARD
		its = at[me];
#endif
		late[lost].used = true; late[lost].from = me; late[lost].add = add;
		late[lost].name = mine; late[lost].at = its;
		late[lost].version = seen; late[lost].value = sum;
		lost++; open++;
		printf("client %d: tries addition %d, and loses the connection\n", me, add) }

	:: d_step { add <= ADDS && step == SETTLES ->
		if
		:: !there[me] ->
			step = LOSES;
			printf("client %d: has no receipt\n", me)
		:: else ->
#ifdef BROKEN_ANY
			if
			:: open > 0 ->
#else
			if
			:: open > 0 && number[me] == add ->
#endif
				assert(runs[ID(me, add)] == 1 && noted[me] == after[ID(me, add)]);
				printf("client %d: sees in its receipt that addition %d was made\n", me, add);
				add++
			:: else ->
				printf("client %d: sees another addition in its receipt\n", me)
			fi;
			its = at[me]; open = 0; step = READS
		fi }

	:: d_step { add <= ADDS && step == LOSES ->
#ifndef BROKEN_MISSING
		if
		:: open > 0 ->
			printf("client %d: does not know whether addition %d was made\n", me, add);
			add++; open = 0
		:: else
		fi;
#endif
#ifndef BROKEN_SAME_NAME
		name[me]++;
#endif
		there[me] = true; at[me] = 0; number[me] = 0;
		mine = name[me]; its = 0; step = READS;
		printf("client %d: makes a receipt\n", me) }

	:: d_step { add <= ADDS && quits < QUITS ->
		quits++;
		if
		:: open == 0 -> denied[ID(me, add)] = true
		:: else
		fi;
		printf("client %d: gives addition %d up with %d open tries\n", me, add, open);
		add++; open = 0; step = READS }
	:: d_step { add <= ADDS && step == TRIES && quits < QUITS && PASSES(me, mine, its) ->
		quits++;
#ifndef BROKEN_SAY_NO
		if
		:: open > 0 -> at[me]++; number[me] = 0; its++
		:: else
		fi;
#endif
		assert(runs[ID(me, add)] == 0);
		denied[ID(me, add)] = true;
		printf("client %d: cannot add, and ends what is open\n", me);
		add++; open = 0; step = READS }
	:: add > ADDS -> break
	od
}

active proctype Network() {
	byte i;
end:	do
	:: d_step { i < lost ->
		if
		:: late[i].used && PASSES(late[i].from, late[i].name, late[i].at) && version == late[i].version ->
			execute(late[i].from, late[i].add, late[i].value);
			printf("network: the lost try of addition %d of client %d is executed\n", late[i].add, late[i].from)
		:: else
		fi;
		late[i].used = false; i = 0 }
	:: d_step { i + 1 < lost -> i++ }
	od
}

active proctype Operator() {
end:	do
	:: d_step { deletes < DELETES && there[0] ->
		there[0] = false; deletes++;
		printf("operator: deletes the receipt of client 0\n") }
	od
}

init {
	atomic { there[0] = true; there[1] = true; name[0] = 1; name[1] = 1; run Client(0); run Client(1) }
}
