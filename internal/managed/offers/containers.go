package offers

import (
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Servers without containers say so in one of three ways: by code -6 (before
// 3.5.3, or with extended types off), by bad arguments, or by the end of the
// connection, which any server may come to. So an end decides nothing. After
// two in a row, of connections on which nothing that was sent before the create
// waited for an answer, the client asks a server over a connection of its own:
// by a create of /zookeeper, which exists, behind a read. There an end says
// that it has none, unless a server has ever made one.
//
// Until a server has said that it has them, persistent znodes are made, and the
// client asks again, with growing pauses, and when it has another server.

// containers is what a client knows of the servers' containers.
type containers struct {
	never bool          // the user wants none
	poked chan struct{} // a token: ask now

	mu     sync.Mutex     // guards what follows
	ends   int            // connections in a row that have ended on the create of one
	had    bool           // a server has said that it has them
	none   bool           // the latest that has said anything has none
	asking bool           // until one says that it has them
	at     servers.Server // who is asked
	pause  time.Duration
}

// areMade reports whether the client makes containers. If it makes none for
// now, the server to is asked, unless that has been done.
func (n *containers) areMade(to servers.Server) bool {
	if n.never {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.asking && to.Address != "" && to.Address != n.at.Address {
		n.at = to
		select {
		case n.poked <- struct{}{}:
		default:
		}
	}
	return !n.asking
}

// onAnswer notes that a server has answered the create of a container.
func (n *containers) onAnswer(made bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ends = 0; made {
		n.had, n.pause = true, 0
	}
}

// onEnd notes that the server has ended a connection. It reports whether that
// makes it doubtful that there are containers.
func (n *containers) onEnd(on *link.Link) bool {
	pending, oldest := on.Waits(wire.OpCreateContainer)
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case !pending:
		n.ends = 0
	case oldest:
		n.ends++
	}
	return n.ends >= 2
}

// HungUp says that a server has ended a connection between two answers.
func (k *Known) HungUp(on *link.Link) {
	if k.containers.onEnd(on) {
		k.doubtContainers(on.To(), false, nil)
	}
}

// doubtContainers makes persistent znodes until the server to, or the next one,
// has said that it has containers.
func (k *Known) doubtContainers(to servers.Server, none bool, why error) {
	n := &k.containers
	n.mu.Lock()
	defer n.mu.Unlock()
	if none {
		k.noteNoneLocked(why)
		n.pause = longestPause
	}
	if n.asking || n.never {
		return
	}
	n.asking, n.at = true, to
	if !none {
		k.log.Warn("connections end on the create of a container", zap.Stringer("server", to))
	}
	k.tasks.Go(k.askForContainers)
}

// noteNoneLocked notes that a server has said that it has no containers.
func (k *Known) noteNoneLocked(why error) {
	if !k.containers.none {
		k.containers.none = true
		k.log.Info("the ensemble has no container znodes: it does not remove empty lock directories", zap.Error(why))
	}
}

// longestPause bounds the pauses after a server has said that it has no
// containers. If it does not say it, they are a minute at most.
const longestPause = time.Hour

// askForContainers asks until a server says that it has containers. If that was
// asked since one was made, it pauses first.
func (k *Known) askForContainers() {
	ctx, cancel := closed.Context(k.closing)
	defer cancel()
	n := &k.containers
	for {
		n.mu.Lock()
		pause := n.pause/2 + random.N(n.pause/2+1)
		n.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-n.poked:
		case <-time.After(pause):
		}
		n.mu.Lock()
		to := n.at
		n.mu.Unlock()
		has, err := k.servers.TryOperation(ctx, to, k.timeout, wire.OpCreateContainer, aContainer)
		if ctx.Err() != nil || k.onContainersSaid(has, err) {
			return
		}
	}
}

// aContainer creates what exists on each server.
var aContainer = &wire.CreateRequest{
	Path: "/zookeeper", Data: []byte{}, ACL: []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "world", ID: "anyone"}}}, Mode: wire.ModeContainer,
}

// onContainersSaid takes an answer, and reports whether nothing more is asked.
func (k *Known) onContainersSaid(has bool, err error) bool {
	n := &k.containers
	n.mu.Lock()
	defer n.mu.Unlock()
	longest := lastAskPause
	switch {
	case has:
		k.log.Info("the ensemble has container znodes", zap.Stringer("server", n.at))
		n.had, n.none, n.asking, n.ends = true, false, false, 0
	case err == nil, errors.Is(err, servers.ErrHangsUp) && !n.had:
		k.noteNoneLocked(err)
		longest = longestPause
	}
	n.pause = min(max(2*n.pause, firstAskPause), longest)
	return has
}

// CreateContainer creates a container, or a persistent znode if the client
// makes none. to is the server of the connection, zero if that is not known.
func (k *Known) CreateContainer(conn *zk.Conn, to servers.Server, full string, data []byte, acl []zk.ACL) (string, error) {
	if !k.containers.areMade(to) {
		return request.Create(conn, full, data, zk.FlagPersistent, acl)
	}
	path, err := conn.CreateContainer(full, data, zk.FlagContainer, acl)
	if err == nil || zkerr.Classify(err) == zkerr.Final {
		k.containers.onAnswer(err == nil)
	}
	if err == nil {
		return path, request.CheckMade(full, path, zk.FlagContainer)
	}
	switch code, _ := zkerr.Code(err); {
	case code == wire.Unimplemented:
		k.doubtContainers(to, true, err)
		return request.Create(conn, full, data, zk.FlagPersistent, acl)
	case errors.Is(err, zk.ErrBadArguments): // what else is bad is bad for a persistent znode as well
		path, plainErr := request.Create(conn, full, data, zk.FlagPersistent, acl)
		if plainErr == nil {
			k.doubtContainers(to, true, err)
		}
		return path, plainErr
	}
	return "", err
}
