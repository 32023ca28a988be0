package framework

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"
)

// authenticate presents the credentials for the first time, on one connection.
// On each later connection the wire client does so itself, before it sends
// anything else.
//
// checkClock judges only connections that are up. So authenticate itself closes
// one on which an answer takes too long.
func (s *session) authenticate(on *link) {
	late := time.AfterFunc(2*s.granted()/3, func() {
		s.core.onAbandoned(s, on, AbandonedSilent)
		_ = on.Close()
	})
	defer late.Stop()
	for _, a := range s.core.cfg.auths {
		if err := s.conn.AddAuth(a.scheme, a.data); err != nil {
			s.events.put(event{kind: authDone, err: fmt.Errorf("auth %s: %w", a.scheme, err), link: on})
			return
		}
	}
	s.events.put(event{kind: authDone, link: on})
}

// onAuthFailed closes a connection on which the credentials were not accepted.
// The next connection presents them again.
func (s *session) onAuthFailed(on *link, err error) {
	err = fmt.Errorf("%s: %w", on.to, err)
	s.core.servers.noteFault(on.to, err)
	s.core.tasks.Go(func() { _ = on.Close() })
	if !errors.Is(err, zk.ErrAuthFailed) {
		return
	}
	s.core.cfg.log.Error("the ensemble rejects the credentials", zap.Error(err))
	s.core.reject(err)
}

// reject makes calls that wait for a connection fail, until there is one. It
// reports whether they did not before.
func (c *core) reject(err error) (first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first = c.rejected == nil
	c.rejected = err
	close(c.changed)
	c.changed = make(chan struct{})
	return first
}
