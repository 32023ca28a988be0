package framework

import (
	"context"

	"github.com/go-zookeeper/zk"
)

// getAndWatch is GetAndWatch of package recipes/internal/privileged.
func (s *Session) getAndWatch(path string) (data []byte, stat *zk.Stat, changed <-chan struct{}, resume func() (<-chan struct{}, bool), err error) {
	w, err := s.scope().watch(context.Background(), watchData, path, true)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	resume = func() (<-chan struct{}, bool) {
		next := s.session().resume(w)
		if next == nil {
			return nil, false
		}
		w = next
		return w.fired, true
	}
	return w.node.data, w.node.stat, w.fired, resume, nil
}

// resume returns a watch that goes on after one that the latest reconnect has
// ended, nil if what that has read may not be true any more. A watch that the
// wire client has armed again has missed nothing: before the answer to its
// request the server has sent an event for all that had changed.
func (s *session) resume(w *watch) *watch {
	s.hub.mu.Lock()
	ended := w.resetBy != 0 && w.resetBy == s.hub.resets
	s.hub.mu.Unlock()
	if !ended || s.Err() != nil {
		return nil
	}
	on := s.latest()
	next, isNew := s.hub.join(s, w.key)
	if !isNew {
		return nil
	}
	if has, err := s.serverHas(w.key, on); err != nil || !has {
		s.arm(w.key, next) // others may have joined it
		return nil
	}
	next.node = w.node
	close(next.ready)
	return next
}
