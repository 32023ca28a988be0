package session

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/test/script"
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
				links := make([]*link.Link, 2)
				for i := range links {
					ours, theirs := net.Pipe()
					defer theirs.Close()
					links[i], _ = s.chain.Dial(ours, servers.Server{}, nil, time.Hour)
					defer links[i].Close()
				}
				s.events.put(event{kind: connectionEnded})
				if tt.next {
					s.events.put(event{kind: sessionConfirmed, link: links[1]})
				}
				s.events.put(event{kind: authDone, err: tt.err, link: links[0]})
				go s.Run()
				synctest.Wait()
				close(s.over)
				s.tasks.Wait()
				if tells := errors.Is(above(s).rejected, zk.ErrAuthFailed); tells != tt.tells {
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
			conn := &script.Recorder{}
			on.Conn = conn
			s.onAuthFailed(on, err)
			s.tasks.Wait()
			if !conn.Closed.Load() || (above(s).rejected != nil) != rejected || !errors.Is(s.servers.Fault(), err) {
				t.Errorf("%v: closed %t, rejected for %v, last %v", err, conn.Closed.Load(), above(s).rejected, s.servers.Fault())
			}
		}
	})
}
