// Package proof says until when an ensemble is proven to keep a session alive,
// and when the next heartbeat is due.
//
// It is pure: it reads no clock, holds no mutex, makes no request and starts no
// goroutine. All its state is in [Evidence] and [Online], of which a session
// has one each. The session guards them by its mutex, tells them what passes on
// its connections, and does what they say is due.
//
// What a caller may rely on: no member of the ensemble has expired the session
// before [Evidence.Deadline], as far as the assumptions of proof.go hold. The
// deadline never moves back while the granted timeout stays the same.
//
// There are two kinds of proof, framework.ProofSync and ProofWrite. Here that
// is Rules.Writes: [Evidence.Connect], [Evidence.Up] and tripOf look at it.
// new_session.go of package managed sets it, and has the round trip of Prove;
// session/heartbeat.go sends the requests; link/chain.go recognizes them.
//
// In this order the files are best read:
//
//   - proof.go: why answers prove a deadline, and what is kept of a connection.
//   - trips.go: what answers say about the network.
//   - cadence.go: how often heartbeats are sent, and whether a lease lasts.
//   - due.go: a time and its reason, and all reasons there are.
//   - heartbeats.go: when the next heartbeat is due.
//   - silence.go: when a connection has been silent for too long.
//   - evidence.go: one session, over all its connections.
//   - online.go: the time of a session without its outages.
package proof
