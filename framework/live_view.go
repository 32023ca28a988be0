package framework

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"
)

// ChildrenAndWatch is WatchChildren, and also returns the stat of the znode at
// path, from the same answer. Its Cversion counts the children that were
// created and deleted: it shows how much happened between two lists. The caller
// must not change the stat: it is shared.
func (s *Session) ChildrenAndWatch(ctx context.Context, path string) (names []string, stat *zk.Stat, changed <-chan struct{}, err error) {
	w, err := s.scope().watch(ctx, watchChildren, path, false)
	if err != nil {
		return nil, nil, nil, err
	}
	return w.node.children, w.node.stat, w.share(), nil
}

// LastAnswer returns when a server answered the session last. The answer may be
// that to a ping, which the client sends after a third of the session timeout
// without other requests. A program that shows what it has read can say by it
// how old that is while the session is not Connected.
func (s *Session) LastAnswer() time.Time {
	live := s.session()
	live.mu.Lock()
	defer live.mu.Unlock()
	return live.answered
}
