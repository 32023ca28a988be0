// Package guard is both sides of a guardian: a process that closes the sessions
// of another process once that one is dead.
//
// # The two sides
//
// A [Ward] is the side of the process that is guarded. It tells the guardian of
// each session before anything is sent in the session, and of each command that
// it runs. [Config] is the side of the guardian. It serves one process over a
// socket that it has inherited (a child), or all processes that connect to a
// socket in the file system (a daemon).
//
// # When a guardian acts
//
// The kernel says when a process is dead, by a pidfd: no thread of it is left,
// and what it has written into the socket stays readable. The end of the socket
// says nothing. Then, in this order,
//
//  1. the guardian reads all that is in the socket. A guardian that was
//     stopped, and goes on, would otherwise act on what was true before.
//  2. It does nothing if the process has given it up. An eventfd says that,
//     which came with the first message: a write to it cannot block.
//  3. It kills the process groups of the commands, and waits until they are
//     gone. A daemon does not kill; it waits. In another namespace of processes
//     it cannot know that a group is gone.
//  4. It closes the sessions: see package closing.
//
// If any of that fails, the sessions are left to their timeouts.
//
// A child also kills the groups if the time that [Ward.Until] has set passes
// without a later one: the process is stopped, or has lost its lease. It reads
// the socket before that.
// If the process was stopped when it had started a command, and before it could
// say which group that leads, the guardian looks for it among its children.
//
// # Messages
//
// A message is one packet of a unix socket of the type SOCK_SEQPACKET, an
// object of JSON of at most 8192 bytes: see message.go. A packet is written and
// read as a whole or not at all, and stays in the socket when its writer dies.
//
// # In which order to read it
//
// message.go, charge.go (what a guardian knows of a process), ward_linux.go,
// serve_linux.go, user_linux.go, and of one process: greet_linux.go,
// read_linux.go, watch_linux.go (while it lives), death_linux.go;
// group_linux.go, pidfd_linux.go, listen_linux.go.
package guard
