package testutil

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// WithReconfig allows reconfigurations, as reconfigEnabled=true does on the
// real server: AddMember and RemoveMember change the ensemble while it runs,
// and so does the request reconfig of a client that may write
// /zookeeper/config. By default only the super user may: see
// [WithSuperDigest]. The ensemble needs at least two members.
//
// As on the real server, version, servers and majority of a request are checked
// before permissions, a watch that lasts gets two events for one change, and
// each member writes /zookeeper/config itself when it starts and when it has
// found a leader, with a time of its own. These are the differences:
//
//   - A member keeps its address, and is a leader or a follower, whatever
//     address or role a request gives it. AddMember starts a member, a request
//     does not: servers that it names need not exist.
//   - The servers are sorted by number. There are no groups and weights.
//   - All of a change happens at once. The real server shows the next version
//     shortly before the transaction, and may refuse a second request as "in
//     progress".
//   - A request that cannot be parsed gets a marshalling error. The real server
//     never answers it.
//
// Without WithReconfig a member has the ensemble's configuration from a file
// that it reads when it starts. AddMember and RemoveMember then change these
// files, as an operator does who restarts one member after another.
func WithReconfig() Option { return func(c *config) { c.reconfig = true } }

// AddMember adds a member, and returns its index. With [WithReconfig] it serves
// and votes from then on, and all members show the next version of
// /zookeeper/config. Otherwise it serves, and knows all members; the others
// learn of it when they are restarted, and it votes once the leader has been.
// Over TCP it listens on a free port of 127.0.0.1, whatever WithListen says.
//
// AddMember waits until a leader has a majority. It fails when ctx ends before
// that, on a standalone server, and after Close; then it has added nothing.
func (e *Embedded) AddMember(ctx context.Context) (member int, err error) {
	e.growing.Lock()
	defer e.growing.Unlock()
	member, err = e.addMember(ctx)
	if err != nil {
		return -1, fmt.Errorf("testutil: add a member: %w", err)
	}
	return member, nil
}

func (e *Embedded) addMember(ctx context.Context) (int, error) {
	if e.standalone() {
		return -1, errStandalone
	}
	if err := e.WaitServing(ctx); err != nil {
		return -1, err
	}
	m := e.newMember(e.Members())
	if err := m.listen(0); err != nil {
		return -1, err
	}
	for !e.join(m) {
		if err := e.WaitServing(ctx); err != nil {
			if m.listener != nil {
				m.listener.Close()
			}
			return -1, err
		}
	}
	return m.index, nil
}

// join makes m a member, unless the leader has just lost its majority.
func (e *Embedded) join(m *member) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.leaderLocked()
	if e.closed || l == nil || !l.lead.quorumLocked() {
		return false
	}
	joined := e.config.with(func(c *configuration) { c.servers[m.number()] = ownServer(m) })
	if !e.cfg.reconfig {
		e.config = joined
	}
	e.members = append(e.members, m)
	m.config, m.tree, m.applied = e.config, l.tree.clone(), l.applied
	m.bootLocked()
	m.followLocked(l)
	if e.cfg.reconfig {
		l.lead.reconfigureLocked(joined)
	}
	for _, n := range e.clients {
		n.AddServer(m.addr)
	}
	e.deliverLocked()
	return true
}

// RemoveMember removes a member from the configuration. With [WithReconfig] the
// member goes on as a follower that does not vote, and keeps its clients, until
// it is stopped. If it leads, all members drop their clients, the others elect
// one of them, and then it follows. Otherwise members learn of the change when
// they are restarted. A member that is not in the configuration that it knows
// cannot be restarted.
//
// RemoveMember waits until a leader has a majority. It fails when ctx ends
// before that, if the member is not in the configuration, if fewer than two
// members that vote would be left, or no majority of those is in step with the
// leader, and after Close; then it has changed nothing.
func (e *Embedded) RemoveMember(ctx context.Context, member int) error {
	if err := e.removeMember(ctx, member); err != nil {
		return fmt.Errorf("testutil: remove member %d: %w", member, err)
	}
	return nil
}

func (e *Embedded) removeMember(ctx context.Context, member int) error {
	m, err := e.memberAt(member)
	if err != nil {
		return err
	}
	if e.standalone() {
		return errStandalone
	}
	for {
		if err := e.WaitServing(ctx); err != nil {
			return err
		}
		e.mu.Lock()
		done, err := e.leaveLocked(m)
		e.mu.Unlock()
		if done || err != nil {
			return err
		}
	}
}

func (e *Embedded) leaveLocked(m *member) (done bool, err error) {
	l := e.leaderLocked()
	if e.closed || l == nil || !l.lead.quorumLocked() {
		return false, nil
	}
	left := e.config.with(func(c *configuration) { delete(c.servers, m.number()) })
	switch {
	case !e.config.has(m):
		return false, errors.New("it is not in the configuration")
	case left.voters() < fewestVoters:
		return false, fmt.Errorf("fewer than %d members that vote would be left", fewestVoters)
	case !e.cfg.reconfig:
		e.config = left
	case !l.lead.syncedLocked(left):
		return false, wire.NewConfigNoQuorum
	default:
		l.lead.reconfigureLocked(left)
	}
	return true, nil
}

var errStandalone = errors.New("a standalone server has no other members: use WithMembers")

// fewestVoters is how many members that vote a reconfiguration must leave.
const fewestVoters = 2

// standalone reports whether the ensemble is one server without a quorum.
func (e *Embedded) standalone() bool { return e.cfg.members == 1 }

// reconfig validates a request in the order of the real server, which looks at
// permissions last.
func (p *prep) reconfig(ask *wire.ReconfigRequest) (op txnOp, code wire.Code) {
	e := p.lead.m.e
	switch {
	case !e.cfg.reconfig:
		return op, wire.ReconfigDisabled
	case e.standalone():
		return op, wire.Unimplemented
	case ask.Version != -1 && ask.Version != e.config.version:
		return op, wire.BadVersion
	}
	var next *configuration
	if ask.Members != nil {
		next, code = parseConfiguration(string(ask.Members))
	} else {
		next, code = e.config.incremental(string(ask.Joining), string(ask.Leaving))
	}
	switch {
	case code != wire.OK:
		return op, code
	case next.voters() < fewestVoters:
		return op, wire.BadArguments
	case !p.lead.syncedLocked(next):
		return op, wire.NewConfigNoQuorum
	case !permitted(p.tree.nodes[configPath].acl, wire.PermWrite, p.auth):
		return op, wire.NoAuth
	}
	return reconfigOp(next, p.zxid), wire.OK
}

func reconfigOp(next *configuration, zxid int64) txnOp {
	next = next.with(func(c *configuration) { c.version = zxid })
	return txnOp{kind: wire.OpReconfig, path: configPath, data: []byte(next.String()), version: -1, config: next}
}

// syncedLocked reports whether a majority of the servers of a configuration is
// in step with the leader.
func (l *leadership) syncedLocked(c *configuration) bool { return c.quorum(l.inStepLocked()) }

// reconfigureLocked makes and commits a reconfiguration without a client.
func (l *leadership) reconfigureLocked(next *configuration) {
	zxid := l.m.tree.zxid + 1
	l.m.appendLocked(&txn{zxid: zxid, time: time.Now().UnixMilli(), kind: wire.OpReconfig, ops: []txnOp{reconfigOp(next, zxid)}})
}

// reconfiguredLocked makes a committed configuration the ensemble's. A leader
// that does not vote in it answers its clients and commits nothing more; soon
// after, all members leave it.
func (l *leadership) reconfiguredLocked(c *configuration) {
	e := l.m.e
	e.config = c
	e.cfg.logf("testutil: member %d commits version %x of the configuration", l.m.index, c.version)
	if c.votes(l.m) {
		return
	}
	l.deposed = true
	e.afterLocked(time.Now().Add(time.Millisecond), func() {
		for _, m := range e.members {
			if m.leader == l.m && e.reachableLocked(m, l.m) {
				m.lookLocked("its leader was removed from those that vote")
			}
		}
		if l.m.lead == l {
			l.m.lookLocked("it was removed from those that vote")
		}
		e.deliverLocked()
	})
}

// configPath is the znode that shows the configuration.
const configPath = "/zookeeper/config"

// writeConfigLocked makes the member write its znode of the configuration by
// itself, outside of any transaction, as it does when it starts, and with
// reconfigurations when it has found a leader.
func (m *member) writeConfigLocked() {
	if m.e.standalone() {
		return
	}
	n := m.tree.nodes[configPath]
	n.data = []byte(m.config.String())
	n.stat.Mzxid, n.stat.Mtime, n.stat.Version = m.config.version, time.Now().UnixMilli(), -1
}

// adoptLocked makes the member take over the configuration of the leader that
// it has found, or has become.
func (m *member) adoptLocked() {
	if m.e.cfg.reconfig {
		m.config = m.e.config
		m.writeConfigLocked()
	}
}

// decidesLocked returns the configuration whose quorum counts for the member as
// a leader, or as one that could become it.
func (m *member) decidesLocked() *configuration {
	if m.e.cfg.reconfig {
		return m.e.config
	}
	return m.config
}
