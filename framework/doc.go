// Package framework is a managed ZooKeeper client: sessions as values, states
// with listeners, operations that are retried by one budget and bounded by
// their context, and watches that survive reconnects. The recipes stand on it.
//
// # Sessions
//
// A [Session] is born, may be suspended and resume, and dies once, for good.
// One wire connection object serves one session; after its death a fresh one is
// opened, so that nothing that was queued in a dead session is ever executed in
// the next.
//
//	              connected                  connected
//	Connecting ──────────────▶ Connected ◀──────────────┐
//	                            │  │ ▲ │                │
//	               disconnected │  │ │ │ lost           │
//	                            ▼  │ │ ▼                │
//	                      Suspended │ │ Lost ────────────┘ (a new session)
//	                            │   └─┘  ▲
//	                            └────────┘ deadline passed, or expired by the server
//
// Close leads to Closed from everywhere, and nothing leads out of it.
//
// # Proven contact
//
// A lock is only as good as its holder's knowledge. [Session.Deadline] is the
// instant before which the ensemble cannot have expired the session, as far as
// can be proven from here: a member of the ensemble answers pings and reads for
// a while after it was cut off from its leader, so they prove nothing by
// themselves (see proof.go). When the deadline passes without new proof the
// session is given up, finally, whatever the ensemble may think of it.
//
// Less formally: while the state is Connected you may work; while it is
// Suspended you may go on with what you hold until the deadline, but nothing
// new will be granted; after Lost nothing that you had is yours any more.
package framework
