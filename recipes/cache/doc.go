// Package cache keeps a copy of a znode and of all that is below it, such as a
// configuration or the instances of a service, and tells of every change.
//
//	c, err := cache.New(client, "/config")
//	c.Start()
//	defer c.Close()
//	view, err := c.Synced(ctx)
//	node, ok := view.Get("/config/db/url")
//
// NewValue and NewDir decode what is in it. Cache.Views is a loop over the
// latest view, and Cache.Listen calls a function at every change.
//
// What is promised, for znodes that the session may read all the time:
//
//  1. A znode is only shown in states that it really had, and never goes back
//     to an earlier one, whatever connection, server or session the cache uses,
//     unless the ensemble was restored from a backup, or rebuilt. A znode that
//     was deleted and created again is another znode, whatever its version.
//  2. A View never changes, and Cache.View costs nothing. A View shows every
//     change up to its Zxid. Some znodes may be newer than that. So a View is
//     no snapshot, and may show one half of a transaction.
//  3. The last state is never missed. A listener that is slow gets fewer and
//     larger batches, and a slow loop fewer views; neither delays anybody. A
//     znode that was deleted and created again is Removed and then Added. After
//     a reconnect or a lost session only differences are reported.
//  4. A cache reports when it may be out of date. From a lost connection until
//     it has read the tree again it is Stale, and its Status says since when
//     and why. Cache.Fresh returns a view that is as current as a sync.
//     Cache.Reach returns one that shows a write whose zxid you know.
//     With WithSnapshot it also shows, and reports as Stale, what the program
//     before it has shown last, until it has read the tree.
//  5. Memory can be bounded: see WithMaxBytes, beyond which the cache has
//     Failed. By default there is no limit.
//
// Node.Stat has only the fields that events keep up to date: see Stat.
//
// Servers send no event when a right to read is granted or withdrawn, and none
// for changes while the right is missing. A server can also lose an event. The
// next recheck finds all such changes: in a small tree after about a session
// timeout, in any tree within an hour. See WithRecheck. With local sessions
// (localSessionsEnabled) a new session may show an earlier state.
//
// # Cost
//
// A cache has one recursive watch at the server. The first view costs about one
// request for each 256 znodes or 64 kB of data, and one request to list the
// children of each 256 znodes that have children. Changes that come together
// share requests:
//
//   - a change of a znode: 1 request, wakes 1
//
// An idle cache costs only the recheck: one request of 16 kB per session
// timeout for all caches of a client together, or more if a tree would
// otherwise take longer than an hour. A reconnect costs what the first view
// does, after a random pause of up to a third of the session timeout, so that
// not all clients of a lost server read at once. A program that starts from a
// snapshot reads without that pause. But data of more than 4 kB are
// read only if they have changed. To find out, the cache sends one request for
// each such znode. A znode takes about 128 bytes, and its path and data.
//
// Reads are limited so that the heartbeats of leases, which share the
// connection, get through: see framework.Client.ReadAll.
//
// # Servers without recursive watches
//
// Servers before ZooKeeper 3.6 have no recursive watches, and others can refuse
// them. There each znode has two watches of a single event. The first view
// costs two requests for a znode. After a reconnect they are armed again by one
// request for each 64 kB of paths, up to about 16 for znodes that were read
// later, and one read if a new leader was elected. Only what the server then
// names is read. A new session costs what the first view does. A change costs a
// request, a new znode three, and a removed one a list of its parent. When the
// cache is closed these watches are removed within about two session timeouts,
// by a request for each znode. Servers before 3.5 keep them until they fire or
// the connection ends. A cache also uses such watches for some time if a server
// sends events of wrong paths.
//
// If a server is slow to say whether it has recursive watches, or allows no
// further connection from this address, a cache waits one session timeout. Then
// it uses watches of a single event until the server answers.
package cache
