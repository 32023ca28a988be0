/*
Presence: an ephemeral znode is there as long as its owner wants it.

Proves
    - quiet: once nothing can happen any more, the znode stands in the client's
      session, or another session has it, or the Node is closed and none of the
      client's sessions has a znode. When Close returns, none of them can have
      one, but by a create that the guard looks for. The Node never deletes the
      znode of another session, and never takes it for its own.
    - ends: under weak fairness, Close returns.

Code
    in the model                          | in the code
    node: sends a create                  | recipes/presence/run.go: (*Node).create
    node: hears, has lost the answer      | recipes/presence/run.go: (*Node).make, recipes/presence/run.go: (*Node).noteLost
    node: sees                            | recipes/presence/run.go: (*Node).look
    node: closes the session before       | internal/managed/servers/close.go: (*Servers).CloseEarlier
    node: is told of a change             | recipes/presence/run.go: (*Node).wait, recipes/presence/run.go: (*Node).attend
    node: leaves                          | recipes/presence/leave.go: (*Node).leave
    node: deletes                         | recipes/presence/leave.go: (*Node).withdraw
    guard                                 | recipes/presence/keeper.go: (*guard).run

Bounds
    Two sessions of the client, of which it gives up the first; CUTS requests or
    answers that are lost; STRANGERS times another session makes the znode;
    DELETES times an operator deletes it.

Leaves out
    - Members that lag: a create that meets a znode leads to another look.
    - Data, refusals, and the health check. WithYield and WithTakeover.
    - Two znodes with the same version at one path: a delete tells them apart.
    - Time. The guard ends after about 85 session timeouts. The model assumes
      that no create is executed later than that.

Runs
    run   | checks       | small                           | large
    quiet | assertions   | CUTS=2 STRANGERS=1 DELETES=1    | CUTS=5 STRANGERS=3 DELETES=2
    ends  | ltl closes   | CUTS=1 STRANGERS=1 DELETES=0    | CUTS=3 STRANGERS=2 DELETES=1

Broken
    variant              | run   | what is wrong
    BROKEN_EXISTS        | quiet | A create that meets a znode counts as a success.
    BROKEN_BY_PATH       | quiet | The znode is deleted whoever has made it since.
    BROKEN_NO_GUARD      | quiet | Close returns, and nobody looks for a create that was lost.
    BROKEN_FORGET        | quiet | A create that was lost in the session before is forgotten.
    BROKEN_UNCONFIRMED   | quiet | A close of the session before that was lost counts as done.
    BROKEN_CREATE_LATE   | quiet | Close does not wait for the create that is under way.
    BROKEN_WAIT_FOR_OWN  | ends  | Close waits until no create can be executed late.

Measured
    run   | bounds | states     | depth | seconds
    quiet | small  | 23,006     | 51    | 0.3
    quiet | large  | 249,861    | 47    | 1.0
    ends  | small  | 6,020      | 76    | 0.2
    ends  | large  | 90,625     | 77    | 0.8
*/

#define NONE     0
/* 1 and 2 are sessions of the client. */
#define STRANGER 3

byte owner;           /* of the znode */
bool ended[3];        /* the ensemble has ended the client's session */
bool late[3];         /* a create of that session may be executed, its connection is lost */
byte cuts;
byte strangers;
bool stays;           /* the stranger does not leave */
byte deletes;

/* What the client knows. */
byte session = 1;
bool sent[3];         /* a create may have made a znode in that session */
bool lost[3];         /* and may do so later */
bool guarded[3];
bool same;            /* the znode is the one that was read before the delete */
bool changed;         /* since the node has looked: it has a watch */
bool closing;

#define MAKES   0     /* about to send a create */
#define WAITS   1     /* for its answer */
#define LOOKS   2
#define EARLIER 3     /* has seen a znode of the session before */
#define STANDS  4
#define TAKEN   5
#define LEAVES  6
#define DELETES_OWN 7
#define CLOSED  8

byte node = MAKES;

/* What has become of the create. */
#define UNSENT    0
#define UNDER_WAY 1
#define MADE      2   /* executed, and the answer is on its way */
#define EXISTS    3   /* refused, and the answer is on its way */
#define LOST      4
byte create;

/* The create that is under way is waited for. */
#ifdef BROKEN_CREATE_LATE
#define MAY_LEAVE true
#else
#define MAY_LEAVE (node != WAITS)
#endif

/* Creates that were lost are left to the guard. */
#ifdef BROKEN_WAIT_FOR_OWN
#define MAY_END (!lost[session])
#else
#define MAY_END true
#endif

/* Nothing is left in the session, or the guard removes it. */
#define IS_OUT(s) (owner != s && !late[s] || guarded[s])

inline makes(who) { owner = who; same = false; changed = true }
inline removes() { owner = NONE; same = false; changed = true }

/* The first session ends at the ensemble, and with it its znode. */
inline end_first() {
	ended[1] = true; late[1] = false;
	if
	:: owner == 1 -> removes()
	:: else
	fi
}

active proctype Node() {
end:	do
	:: d_step { node == MAKES && !closing ->
		sent[session] = true; create = UNDER_WAY; node = WAITS;
		printf("node: sends a create in session %d\n", session) }
	:: d_step { node == WAITS && create == MADE ->
		create = UNSENT; node = LOOKS;
		printf("node: hears that the znode was made\n") }
	:: d_step { node == WAITS && create == EXISTS ->
		create = UNSENT;
#ifdef BROKEN_EXISTS
		node = STANDS; changed = false;
#else
		node = LOOKS;
#endif
		printf("node: hears that there is a znode\n") }
	:: d_step { node == WAITS && create == LOST ->
		create = UNSENT; lost[session] = true; node = LOOKS;
		printf("node: has lost the answer to the create\n") }

	:: d_step { node == LOOKS && !closing ->
		changed = false;
		if
		:: owner == NONE -> node = MAKES
		:: owner == session -> node = STANDS
		:: owner == STRANGER -> node = TAKEN
		:: else -> node = EARLIER
		fi;
		printf("node: sees the znode of %d\n", owner) }
	:: d_step { node == EARLIER && !closing ->
		end_first(); node = LOOKS;
		printf("node: closes the session before\n") }
	:: d_step { node == EARLIER && !closing && cuts < CUTS ->
		cuts++; node = LOOKS;
		printf("node: does not know whether the session before is closed\n") }
	:: d_step { (node == TAKEN || node == STANDS) && changed && !closing ->
		node = LOOKS;
		printf("node: is told of a change\n") }

	:: d_step { closing && node < LEAVES && MAY_LEAVE ->
		node = LEAVES;
		printf("node: leaves\n") }
	:: d_step { node == LEAVES && session == 2 && sent[1] ->
		end_first(); sent[1] = false;
		printf("node: closes the session before, and leaves\n") }
	:: d_step { node == LEAVES && session == 2 && sent[1] && cuts < CUTS ->
		cuts++;
#ifdef BROKEN_UNCONFIRMED
		sent[1] = false;
#endif
		printf("node: does not know whether the session before is closed, and leaves\n") }
	:: d_step { node == LEAVES && !sent[1 + 2 - session] && !sent[session] ->
		assert(IS_OUT(1) && IS_OUT(2));
		node = CLOSED;
		printf("node: is closed\n") }
	:: d_step { node == LEAVES && sent[session] && owner == session ->
		same = true; node = DELETES_OWN;
		printf("node: sees its znode, and leaves\n") }
	:: d_step { node == LEAVES && sent[session] && owner != session && MAY_END ->
		sent[session] = false;
#ifndef BROKEN_NO_GUARD
		guarded[session] = lost[session];
#endif
		printf("node: sees that its znode is gone\n") }
	:: d_step { node == DELETES_OWN ->
#ifdef BROKEN_BY_PATH
		assert(owner != STRANGER);
		removes();
#else
		if
		:: same ->
			assert(owner == session); removes()
		:: else
		fi;
#endif
		node = LEAVES;
		printf("node: deletes its znode\n") }
	:: d_step { node == DELETES_OWN && cuts < CUTS ->
		cuts++; node = LEAVES;
		printf("node: has lost its delete\n") }

	/* Without knowing whether the ensemble has it still. */
	:: d_step { session == 1 && node != CLOSED ->
		session = 2;
		late[1] = late[1] || create == UNDER_WAY && !ended[1];
		create = UNSENT; same = false;
#ifdef BROKEN_FORGET
		sent[1] = false;
#endif
		if
		:: node >= LEAVES -> node = LEAVES
		:: else -> node = MAKES
		fi;
		printf("client: gives session 1 up\n") }
	:: node == CLOSED -> break
	od
}

active proctype Owner() {
	if
	:: d_step { closing = true; printf("owner: calls Close\n") }
	:: skip
	fi
}

/* Looks for the znode of a create that was lost, until none can come. */
proctype Guard(byte s) {
end:	do
	:: d_step { guarded[s] && owner == s ->
		removes();
		printf("guard: deletes the znode of session %d\n", s) }
	:: d_step { guarded[s] && owner != s && !late[s] ->
		guarded[s] = false;
		printf("guard: has looked often enough\n") }
	od
}

active proctype Ensemble() {
end:	do
	:: d_step { create == UNDER_WAY && !ended[session] ->
		if
		:: owner == NONE -> makes(session); create = MADE
		:: else -> create = EXISTS
		fi;
		printf("ensemble: answers the create of session %d\n", session) }
	:: d_step { late[1] && owner == NONE ->
		late[1] = false; makes(1);
		printf("ensemble: executes a create of session 1, late\n") }
	:: d_step { late[2] && owner == NONE ->
		late[2] = false; makes(2);
		printf("ensemble: executes a create of session 2, late\n") }
	:: d_step { late[1] ->
		late[1] = false;
		printf("ensemble: will never execute a create of session 1\n") }
	:: d_step { late[2] ->
		late[2] = false;
		printf("ensemble: will never execute a create of session 2\n") }
	:: d_step { session == 2 && !ended[1] ->
		end_first();
		printf("ensemble: lets session 1 expire\n") }
	od
}

active proctype Network() {
end:	do
	:: d_step { cuts < CUTS && create == UNDER_WAY ->
		cuts++; create = LOST; late[session] = true;
		printf("network: loses the connection, the create may be under way\n") }
	:: d_step { cuts < CUTS && (create == MADE || create == EXISTS) ->
		cuts++; create = LOST;
		printf("network: loses the answer to the create\n") }
	od
}

active proctype Others() {
end:	do
	:: d_step { owner == NONE && strangers < STRANGERS ->
		strangers++; makes(STRANGER);
		printf("stranger: makes a znode\n") }
	:: d_step { owner == STRANGER && !stays ->
		removes();
		printf("stranger: leaves\n") }
	:: d_step { owner == STRANGER && !stays ->
		stays = true;
		printf("stranger: stays\n") }
	:: d_step { owner != NONE && deletes < DELETES ->
		deletes++; removes();
		printf("operator: deletes the znode\n") }
	od
}

active proctype Quiet() {
	timeout ->
	if
	:: closing -> assert(node == CLOSED && owner != 1 && owner != 2)
	:: else -> assert(node == STANDS && owner == session || node == TAKEN && owner == STRANGER)
	fi
}

init {
	atomic { run Guard(1); run Guard(2) }
}

ltl closes { [] (closing -> <> (node == CLOSED)) }
