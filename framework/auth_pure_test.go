package framework

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"
)

// A server that rejects the credentials hangs up, and the session may hear of
// that before it hears the answer. It must tell those who wait all the same,
// since each later connection would end like this one. Any other answer about a
// connection that has ended says nothing.
func TestAnswerToCredentialsAfterTheEnd(t *testing.T) {
	rejected := fmt.Errorf("auth digest: %w", zk.ErrAuthFailed)
	for name, tt := range map[string]struct {
		err   error
		next  bool // there is another connection
		tells bool
	}{
		"rejected":                              {rejected, false, true},
		"rejected, with another connection":     {rejected, true, false},
		"accepted":                              {nil, false, false},
		"accepted, with another connection":     {nil, true, false},
		"not answered":                          {zk.ErrConnectionClosed, false, false},
		"not answered, with another connection": {zk.ErrConnectionClosed, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := sessionAt(time.Now(), 5*time.Second, 0)
				s.core.cfg.log, s.core.changed, s.events = zap.NewNop(), make(chan struct{}), newMailbox[event]()
				s.hub.session = s
				links := make([]*link, 2)
				for i := range links {
					ours, theirs := net.Pipe()
					defer theirs.Close()
					links[i] = newLink(ours, s, server{}, nil, time.Hour)
					defer links[i].Close()
				}
				s.events.put(event{kind: connectionEnded})
				if tt.next {
					s.events.put(event{kind: sessionConfirmed, link: links[1]})
				}
				s.events.put(event{kind: authDone, err: tt.err, link: links[0]})
				go s.run()
				synctest.Wait()
				close(s.over)
				s.core.tasks.Wait()
				if tells := errors.Is(s.core.rejected, zk.ErrAuthFailed); tells != tt.tells {
					t.Errorf("those who wait are told: %t", tells)
				}
				if s.up != tt.next {
					t.Errorf("a connection is in use: %t", s.up)
				}
			})
		})
	}
}

// An answer that is none says nothing of the credentials: the connection is
// closed, and the next one presents them again.
func TestCredentialsThatAreNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for err, rejected := range map[error]bool{zk.ErrConnectionClosed: false, fmt.Errorf("auth digest: %w", zk.ErrAuthFailed): true} {
			s, on := standing()
			conn := &recorder{}
			on.Conn, on.connectTimer, s.core.changed = conn, time.NewTimer(time.Hour), make(chan struct{})
			changed := s.core.changed
			s.onAuthFailed(on, err)
			s.core.tasks.Wait()
			told := false
			select {
			case <-changed:
				told = true
			default:
			}
			if !conn.closed || told != rejected || (s.core.rejected != nil) != rejected || !errors.Is(s.core.fault(), err) {
				t.Errorf("%v: closed %t, told %t, rejected for %v, last %v", err, conn.closed, told, s.core.rejected, s.core.fault())
			}
		}
	})
}
