package framework

import (
	"errors"
	"sync"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Servers without containers say so in one of three ways: by code -6 (before
// 3.5.3, or with extended types off), by bad arguments, or by the end of the
// connection, which any server may come to. So an end counts only if nothing
// that was sent before the create waits for an answer, and only the second in a
// row decides, whatever the sessions of the two connections.

// containers is what a client knows of the servers' containers.
type containers struct {
	mu   sync.Mutex // guards what follows
	off  bool       // persistent znodes are made instead
	ends int        // connections in a row that have ended on the create of one
}

func (n *containers) areOff() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.off
}

// onAnswer notes that the servers have answered the create of a container.
func (n *containers) onAnswer() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ends = 0
}

// onEnd notes that the server has ended a connection. It reports whether that
// shows that there are no containers.
func (n *containers) onEnd(waiting *unanswered) bool {
	pending, oldest := waiting.has(wire.OpCreateContainer)
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

var errEndsOnContainer = errors.New("the servers have ended two connections in a row on createContainer")

// turnOffContainers makes the client create persistent znodes instead.
func (c *core) turnOffContainers(why error) {
	c.containers.mu.Lock()
	was := c.containers.off
	c.containers.off = true
	c.containers.mu.Unlock()
	if !was {
		c.cfg.log.Info("the ensemble has no container znodes: it does not remove empty lock directories", zap.Error(why))
	}
}

// createContainer creates a container, or a persistent znode if the client
// makes none.
func (c *core) createContainer(conn *zk.Conn, full string, data []byte, acl []zk.ACL) (string, error) {
	path, err := c.createContainerIfAny(conn, full, data, acl)
	if err == nil || classify(err) == ambiguous {
		c.noteUsed(full, err == nil)
	}
	return path, err
}

func (c *core) createContainerIfAny(conn *zk.Conn, full string, data []byte, acl []zk.ACL) (string, error) {
	if c.containers.areOff() {
		return createPersistent(conn, full, data, acl)
	}
	path, err := conn.CreateContainer(full, data, zk.FlagContainer, acl)
	if err == nil || classify(err) == final {
		c.containers.onAnswer()
	}
	if err == nil {
		return path, checkMade(full, path, false)
	}
	switch code, _ := codeOf(err); {
	case code == wire.Unimplemented:
		c.turnOffContainers(err)
		return createPersistent(conn, full, data, acl)
	case errors.Is(err, zk.ErrBadArguments): // what else is bad is bad for a persistent znode as well
		path, plainErr := createPersistent(conn, full, data, acl)
		if plainErr == nil {
			c.turnOffContainers(err)
		}
		return path, plainErr
	}
	return "", err
}
