// Package closing closes the sessions of a process that has died, so that their
// ephemeral znodes are deleted before the sessions expire. The request is the
// one by which the ensemble expires a session.
//
// # All before any
//
// A write of a dead process may still be on its way: in a buffer of the
// network, or in the queue of a member. The close of its own session orders it:
// the ensemble refuses it afterwards. The close of another session of the
// process does not. So [Close] first attaches to all sessions. With that the
// ensemble moves a session to the member where it was attached, and refuses
// what comes through another one. The member may still have requests that it
// had taken before: the answer to a ping comes behind them, and Close awaits
// it. Only then does it close any. If it can neither attach to a session nor
// learn that it is over, it closes none, and all end by their timeouts.
//
// A session stays attached when the connection of the attach ends. So Close
// attaches to the sessions of a process in turns, if there are many: servers
// limit the connections of a host. It closes each at the member where it is.
//
// # Connects that are answered late
//
// Close does not wait long for a member that is slow: it also asks the next
// one. If the first one answers later, the session has moved back to it, and
// writes that it has queued are accepted again. So after every connect that was
// not the only one of its session, Close attaches once more at the members that
// were chosen, and again if a late answer comes in that time. An answer that is
// later still undoes that. docs/proof.md says what remains. A close without an
// answer is repeated at the old member last. Once one connect of a session is
// answered, none is sent that was begun before: its handshake may take long, so
// it ends then. One that was sent does not end before its time: its answer says
// that the session has moved. When its time is over, its connection is reset.
// So what a broken network has kept from the member is not sent again when that
// is mended, for which the kernel would try for minutes. What the host of a
// member that is stopped has received, the member still executes later.
//
// # Leaders without a quorum
//
// A leader may have lost its quorum, and not have noticed. It answers, although
// the next leader leaves the session where it is; or it does not know one that
// the next leader has opened. So a member at which the process was not is
// believed only once it has opened a session, and has answered again. Behind an
// address that stands for several members, as of a load balancer, it cannot be
// told whether the process was there: the answer is believed.
//
// # Never worse than without
//
// A connect asks for what is left of the session's timeout since the death. So
// a session that is attached and not closed ends a timeout after the death, as
// it may without a guardian, and later by as long as the server took to execute
// the connect: an answer is awaited for a third of the timeout at most. But a
// server grants no less than a timeout of its own. So a late connect first asks
// for that one, by a session that it opens and closes. If less is left, the
// session is not connected to. A session that the process had given up is asked
// for what is left since then.
package closing
