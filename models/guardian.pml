/*
A guardian: a process dies, and what it has left is killed, then its sessions
are closed.

Proves
    - dead: the guardian kills no command whose lease is proven, and does
      nothing if it was given up or the process has no session left.
    - behind: once the session of the lock is closed, nothing of the command
      runs, and no member executes a write of the other session.
    - attached: nothing is attached before the command is gone, and no session
      lasts longer than without a guardian.
    - all: a guardian that is not stopped by its rules closes each session that
      may be there.

Code
    in the model                     | in the code
    process: says that it starts a command | internal/guard/ward_linux.go: (*Ward).Starting
    process: gives the guardian up   | internal/guard/ward_linux.go: (*Ward).lose
    guardian: reads                  | internal/guard/read_linux.go: (*served).drain
    guardian: kills the command late | internal/guard/watch_linux.go: (*served).killLate, internal/guard/watch_linux.go: (*served).killPast
    guardian: hears of the death     | internal/guard/death_linux.go: (*served).onDeath
    guardian: kills the command      | internal/guard/death_linux.go: (*served).endGroups
    guardian: attaches               | internal/closing/attach.go: (*target).attach, internal/closing/attach.go: (*target).try, internal/closing/attach.go: (*target).askLeast
    guardian: attaches once more     | internal/closing/attach.go: (*target).secure, internal/closing/attach.go: (*target).attachAgain, internal/closing/close.go: attachAll
    guardian: closes                 | internal/closing/close.go: (*target).close

Bounds
    One process with the session of a lock, and one in which it writes; one
    command; two members, of which the old one has taken at most one write that
    it has not handed on. A session timeout of 2, of which members grant no less
    than 1 or 2, and TICKS of the clock; LOST answers to closes.

Leaves out
    - A member that executes a late connect when the round of attaches behind it
      has ended: docs/proof.md names that assumption.
    - How it is known that a process or a group is gone.
    - That a stopped process's command is killed in time, and --after.
    - Local sessions, expiry, elections.

Runs
    run    | checks     | small          | large
    behind | assertions | TICKS=4 LOST=1 | TICKS=6 LOST=2

Broken
    variant         | run    | what is wrong
    BROKEN_READ     | behind | The guardian acts on what it has read before, not on all that is in the socket.
    BROKEN_GIVEN    | behind | It does not look whether it was given up.
    BROKEN_STARTING | behind | A command that is being started counts as none.
    BROKEN_ORDER    | behind | The command is killed behind the closes.
    BROKEN_EACH     | behind | Each session is closed when it is attached, not when all are.
    BROKEN_PING     | behind | An attach does not wait for what the member has taken before.
    BROKEN_ROUND    | behind | No round of attaches follows a hedge.
    BROKEN_BACK     | behind | A close without an answer is repeated at the old member.
    BROKEN_WHOLE    | behind | An attach asks for the whole timeout.
    BROKEN_LEAST    | behind | A connect is sent although a member grants more than is left.
    BROKEN_ANYWAY   | behind | A command is killed although no session is left.
    BROKEN_FORGET   | behind | A session whose close was not answered counts as over.
    BROKEN_FIRST    | behind | The process writes in a session before the guardian knows it.

Measured
    run    | bounds | states  | depth | seconds
    behind | small  | 44,117  | 67    | 0.2
    behind | large  | 142,643 | 45    | 0.3
*/

#define LOCK 0
#define WORK 1
#define T    2
#define NONE 255

/* The process and its command. */
bool alive = true;
byte clock = 1;
byte died;
byte least = 1;      /* the shortest timeout that members grant */
byte proven = 2;     /* until when the lease is */
bool runs;           /* the command */
bool given;          /* the eventfd: the guardian was given up */
bool ending;         /* the process does nothing more in its sessions */

/* What a command is told to be. */
#define NO       0
#define STARTING 1
#define GROUP    2

/* What the process has told, and what of it the guardian has read. */
typedef known {
	byte until;
	byte command;
	bool session[2];
};
known told;
known has;

/* The ensemble. */
bool gone[2];
byte at[2];          /* the member that has each session: 0 is the old one */
bool taken;          /* by the old one: a write of WORK */
bool late[2];        /* a connect of the guardian waits at the old one */
bool granted;        /* to the next client */

inline read() {
	has.until = told.until; has.command = told.command;
	has.session[LOCK] = told.session[LOCK]; has.session[WORK] = told.session[WORK]
}

proctype Process() {
end:	do
	:: d_step { alive && !given && !ending && clock < proven && proven < clock + 1 + T && clock < TICKS && told.until != clock + T ->
		proven = clock + T; told.until = proven;
		printf("process: tells that its lease is proven until %d\n", proven) }
	:: d_step { alive && !ending && !told.session[WORK] && !given ->
		told.session[WORK] = true;
		printf("process: tells of the session in which it writes\n") }
#ifdef BROKEN_FIRST
	:: d_step { alive && !ending && !taken && !given ->
#else
	:: d_step { alive && !ending && !taken && told.session[WORK] && !given ->
#endif
		taken = true;
		printf("process: writes\n") }
	:: d_step { alive && !ending && !given && told.command == NO && !runs ->
		told.command = STARTING;
		printf("process: says that it starts a command\n") }
	:: d_step { alive && !ending && told.command == STARTING && !runs ->
		runs = true;
		printf("process: starts the command\n") }
	:: d_step { alive && !ending && !given && told.command == STARTING && runs ->
		told.command = GROUP;
		printf("process: tells the group of the command\n") }
	:: d_step { alive && !ending && !given && !taken && told.command != STARTING ->
		ending = true;
		gone[LOCK] = true; gone[WORK] = true;
		told.session[LOCK] = false; told.session[WORK] = false;
		printf("process: closes its sessions, and hears so\n") }
	:: d_step { alive && !ending && !given && !taken && !runs && told.command == NO ->
		ending = true;
#ifdef BROKEN_FORGET
		told.session[LOCK] = false; told.session[WORK] = false;
#endif
		printf("process: closes its sessions, and hears nothing\n") }
	:: d_step { alive && !given ->
		given = true;
		printf("process: gives the guardian up\n") }
	:: d_step { alive ->
		alive = false; died = clock;
		printf("process: dies\n") }
	od
}

proctype Clock() {
end:	do
	:: d_step { clock < TICKS ->
		clock++;
		printf("clock: it is %d\n", clock) }
	od
}

proctype OldMember() {
	byte i;
end:	do
	:: d_step { taken ->
		if
		:: at[WORK] == 0 && !gone[WORK] ->
			assert(!granted);
			printf("old member: executes the write\n")
		:: else ->
			printf("old member: the write is refused\n")
		fi;
		taken = false }
	:: d_step { late[LOCK] ->
		at[LOCK] = 0; late[LOCK] = false;
		printf("old member: executes the late connect of the lock's session\n") }
	:: d_step { late[WORK] ->
		at[WORK] = 0; late[WORK] = false;
		printf("old member: executes the late connect of the other session\n") }
	od
}

#ifdef BROKEN_LEAST
#define MAY (clock < died + T)
#else
#define MAY (clock + least <= died + T)
#endif

#define WATCHES  0
#define KILLS    1
#define ATTACHES 2
#define SETTLES  3
#define CLOSES   4
#define DONE     5

inline ask() {
	assert(!runs);
#ifdef BROKEN_WHOLE
	assert(clock + T <= died + T);
#else
	assert(clock + (least > died + T - clock -> least : died + T - clock) <= died + T);
#endif
	printf("guardian: attaches to session %d at member %d\n", s, at[s])
}

inline end_session(which) {
	gone[which] = true;
	if
	:: which == LOCK ->
		granted = true;
#ifndef BROKEN_ORDER
		assert(!runs)
#endif
	:: else
	fi
}

proctype Guardian() {
	byte phase = WATCHES;
	byte s;
	byte lost;
	bool unsure[2];

end:	do
	:: d_step { phase == WATCHES && alive ->
		read();
		printf("guardian: reads\n") }
	:: d_step { phase == WATCHES && has.command == GROUP && has.until <= clock ->
#ifndef BROKEN_READ
		read();
#endif
		if
#ifndef BROKEN_GIVEN
		:: given ->
			phase = DONE;
			printf("guardian: was given up\n")
#endif
		:: else ->
			if
			:: has.until <= clock && has.command == GROUP ->
				assert(clock >= proven && !given);
				runs = false; told.until = NONE; has.until = NONE;
				printf("guardian: kills the command late\n")
			:: else ->
				printf("guardian: reads a later time\n")
			fi
		fi }
	:: d_step { phase == WATCHES && !alive ->
#ifndef BROKEN_READ
		read();
#endif
		if
#ifndef BROKEN_GIVEN
		:: given ->
			phase = DONE;
			printf("guardian: hears of the death, and was given up\n")
#endif
		:: else ->
			assert(!given);
			if
#ifndef BROKEN_ANYWAY
			:: !has.session[LOCK] && !has.session[WORK] ->
				phase = DONE;
				assert(gone[LOCK] && gone[WORK]);
				printf("guardian: hears of the death, and there is no session\n")
#endif
#ifndef BROKEN_STARTING
			:: has.command == STARTING ->
				phase = DONE;
				printf("guardian: hears of the death, while a command was started\n")
#endif
			:: else ->
				phase = KILLS;
				printf("guardian: hears of the death\n")
			fi
		fi }
	:: d_step { phase == KILLS ->
		if
		:: has.command == GROUP ->
			assert(!gone[LOCK] || !gone[WORK]);
#ifndef BROKEN_ORDER
			runs = false;
#endif
			printf("guardian: kills the command\n")
		:: else ->
			printf("guardian: has no command to kill\n")
		fi;
		phase = ATTACHES }

	:: d_step { phase == ATTACHES && !MAY ->
		phase = DONE;
		printf("guardian: is too late\n") }
	:: d_step { phase == ATTACHES && MAY && s < 2 && !has.session[s] ->
		s++;
		printf("guardian: does not know the session\n") }
	/* The ping is answered behind what the member has taken. */
#ifdef BROKEN_PING
	:: d_step { phase == ATTACHES && MAY && s < 2 && has.session[s] ->
#else
	:: d_step { phase == ATTACHES && MAY && s < 2 && has.session[s] && (s == LOCK || !taken) ->
#endif
		at[s] = 0;
		ask();
#ifdef BROKEN_EACH
		end_session(s);
#endif
		s++ }
	:: d_step { phase == ATTACHES && MAY && s < 2 && has.session[s] ->
		late[s] = true; at[s] = 1; unsure[s] = true;
		ask();
#ifdef BROKEN_EACH
		end_session(s);
#endif
		s++ }
	:: d_step { phase == ATTACHES && MAY && s == 2 ->
		phase = SETTLES;
		printf("guardian: is attached to all\n") }
	:: d_step { phase == SETTLES ->
#ifndef BROKEN_ROUND
		s = 0;
		do
		:: s < 2 ->
			if
			:: unsure[s] -> at[s] = 1; late[s] = false
			:: else
			fi;
			s++
		:: s == 2 -> break
		od;
#endif
		phase = CLOSES;
		printf("guardian: attaches once more where it has hedged\n") }

	:: d_step { phase == CLOSES && has.session[LOCK] && !gone[LOCK] ->
		end_session(LOCK);
		printf("guardian: closes the lock's session\n") }
	:: d_step { phase == CLOSES && has.session[WORK] && !gone[WORK] ->
		end_session(WORK);
		printf("guardian: closes the other session\n") }
	:: d_step { phase == CLOSES && has.session[WORK] && !gone[WORK] && lost < LOST ->
		lost++;
#ifdef BROKEN_BACK
		at[WORK] = 0;
#endif
		printf("guardian: hears nothing of a close of the other session, and attaches again\n") }
	:: d_step { phase == CLOSES && (gone[LOCK] || !has.session[LOCK]) && (gone[WORK] || !has.session[WORK]) ->
		phase = DONE;
#ifdef BROKEN_ORDER
		assert(!runs);
#endif
		assert(gone[LOCK]);
		printf("guardian: has closed all\n") }
	od
}

init {
	atomic {
		told.session[LOCK] = true; told.until = proven;
		if
		:: true
		:: least = T
		fi;
		read();
		run Process(); run Clock(); run OldMember(); run Guardian()
	}
}
