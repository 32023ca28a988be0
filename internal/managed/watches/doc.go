// Package watches tells of changes of znodes in a session: by shared watches of
// a single event, by recursive ones, and by functions that hear of all events.
//
// # State, and who owns it
//
// A Watches belongs to one session, and ends with it. It has three parts, each
// with a mutex: the hub, with at most one watch for each path and kind; the
// trees, with at most one recursive watch for each path, and who follows
// events; and the bundle of watches that are about to be armed together. The
// mutexes of the hub and of the trees are never held together, and nothing is
// called with them that waits.
//
// # What callers may rely on
//
// A watch is registered before its request is sent: no event that follows the
// answer is missed. While it has not fired, nothing has changed; a watch that
// was not checked for a while is checked before a caller joins it. A watch ends
// with its connection. Functions that hear of events run on the goroutine that
// reads the connection, in the order of events and answers, and must not block.
// Who watches in any session says by a Finder where the watches of a session
// are.
//
// # In which order to read
//
// First hub.go: how a watch is armed, shared and fired; lookout.go checks that
// none has missed a change. Then follow.go for one that lasts over sessions,
// and armed.go for several that are armed together. resume.go, with bundle.go,
// arms watches again after a reconnect without reads. tree.go has recursive
// watches, and the rules of a path that both kinds are on; one_shot.go follows
// very many single events. unwanted.go removes what nobody wants. watches.go
// has what all of these share.
//
// A new kind of single event begins with hub.go (watchOps, onEvent, nodeIn), a
// new recursive one with tree.go and internal/wire/watches.go.
package watches
