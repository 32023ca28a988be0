// Package managed is the client: it opens one session after the other, executes
// operations in them, keeps watches, and lets writes share requests. Package
// framework is its face, and describes what users may call. The recipes and the
// doctor use this package directly.
//
// A *framework.Client is defined as a Client of this package, and a
// *framework.Session as a Session. So one converts to the other:
//
//	in := (*managed.Client)(client)
//
// A recipe does so once, in its constructor. A zero Client, or Session, behaves
// as one that was closed. A nil one stays nil: the constructor refuses it.
//
// # State, and who owns it
//
// A Client is a view: a chroot with a namespace, over what all views of the
// client share. The goroutine that runs the client makes every transition of
// its state. A Session is a view too: of one session, with a namespace and a
// manner, such as AtOnce. What belongs to one session, its watches and its open
// writes, ends with it. What a recipe keeps once for each client it attaches:
// see Attach.
//
// # What callers may rely on
//
// Nothing that users have supplied runs on a goroutine that keeps a session.
// Without an observer, nothing that is told costs anything. The functions that
// a recipe gives must not block where their comments say so. State, Session,
// Resolve, Logger and Observers never wait: a recipe may hold a mutex.
//
// # In which order to read
//
// First core.go, state.go and new_session.go: how sessions follow each other,
// and what a session is made of. Then the views: client.go, client_ops.go,
// session.go, session_watches.go and session_writes.go hand each call on.
// servers.go has what a client says and hears of its servers. config.go and
// observers.go are the inside of options and observers.
//
// The packages below do not know this one. From the top: watches and writes,
// each with what one session has of it, and compound, operations of several
// requests, side by side; ops, one operation; offers, what the servers have;
// session, the life of one session; link, its connections; servers, when a
// server is called, with talk, how, and serverlist, which; proof, until when a
// session is proven alive, ephemerals, how full it is, and directories, which
// of them may go; request and zkerr, what a request is, and what an error
// means.
package managed
