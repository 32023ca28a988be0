package session

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/link"
)

// authenticate presents the credentials for the first time, on one connection.
// On each later connection the wire client does so itself, before it sends
// anything else.
//
// checkClock judges only connections that are up. So authenticate itself closes
// one on which an answer takes too long.
func (s *Session) authenticate(on *link.Link) {
	late := time.AfterFunc(2*s.Timeout()/3, func() {
		s.told.Abandoned(on, Silent)
		_ = on.Close()
	})
	defer late.Stop()
	for _, a := range s.cfg.Auths {
		if err := s.conn.AddAuth(a.Scheme, a.Auth); err != nil {
			s.events.put(event{kind: authDone, err: fmt.Errorf("auth %s: %w", a.Scheme, err), link: on})
			return
		}
	}
	s.events.put(event{kind: authDone, link: on})
}

// onAuthFailed closes a connection on which the credentials were not accepted.
// The next connection presents them again.
func (s *Session) onAuthFailed(on *link.Link, err error) {
	err = fmt.Errorf("%s: %w", on.To(), err)
	s.servers.NoteFault(on.To(), err)
	s.tasks.Go(func() { _ = on.Close() })
	if !errors.Is(err, zk.ErrAuthFailed) {
		return
	}
	s.cfg.Log.Error("the ensemble rejects the credentials", zap.Error(err))
	s.told.Rejected(err)
}
