// Package serverlist decides which server is called next. It knows the list
// that was given, the members that the ensemble has named, the addresses of all
// these names, and how each call has ended.
//
// # State, and who owns it
//
// A List belongs to the servers of one client, which say what becomes the list.
// One mutex guards all of it. No user's code runs with it held, and nothing
// waits with it: a wait for a name server frees it.
//
// # What callers may rely on
//
// Next, Find, LookUpAll, LookUpAgain, Resolve and Close wait. All other methods
// return without waiting: a caller may hold its own mutexes. What the name
// server has said last is used while it is silent or fails. A Server says
// whether it was confirmed: see IsDoubtful. Nothing here calls a server, and
// Close ends all lookups.
//
// # In which order to read
//
// list.go has the state. order.go says in which order servers are called,
// next.go picks one, and names.go looks up names, through resolver.go.
// faults.go remembers why a call has failed. relist.go replaces the list, with
// spread.go, and members.go adds the members that the ensemble names. parse.go
// and config.go read texts: of a list, and of a config.
package serverlist
