// Package ephemerals is the account of a client's ephemeral znodes: how many
// bytes they have in the transaction that ends their session, what is reserved
// for those to come, and which creates are refused. It asks nobody: package ops
// makes the requests.
//
// # State, and who owns it
//
// An Account belongs to one client, and goes from session to session. A Session
// belongs to one session, and knows which creates in it have no answer. Each
// has a mutex. Rooms, claims and counts are guarded by that of their account.
//
// # What callers may rely on
//
// No method waits. What counts is never less than what the ensemble has, if
// each create is claimed before it is sent, each claim is settled, and each
// delete is told. With a mutex held nobody is called but Told.Changed, and the
// function that EndCount gets.
//
// # In which order to read
//
// account.go says what counts. Then claims.go, for creates, and rooms.go, for
// what is reserved. recount.go compares an account with the answer to a
// question, news.go says what the client is told of the sum. size.go has the
// size of requests, session.go the creates without an answer.
package ephemerals
