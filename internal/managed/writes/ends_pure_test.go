package writes

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	life "github.com/zkrecipes/zkrecipes/internal/managed/session"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/test/standing"
)

// What waits for a write ends with the session, and says so.
func TestWhatEndsTheWaitForAWrite(t *testing.T) {
	for name, tt := range map[string]struct {
		wait func(s *Writes) error
		ends standing.Ends
	}{
		"a write": {func(s *Writes) error {
			_, err := s.queue.await(newDelete(context.Background(), "/a"))
			return err
		}, standing.Ends{BySession: zk.ErrConnectionClosed}},
		"a create that shares": {func(s *Writes) error {
			s.plain.running = true // by others
			return s.CreateEphemeral(ops.Scope{Client: s.Client, In: s.Session}, "/a", nil, nil)
		}, standing.Ends{BySession: zkerr.SessionLost}},
	} {
		tt.ends.Check(t, name, func() (*life.Session, *link.Link, func(context.Context) error) {
			s, on := writesInUse("")
			return s.Session.Session, on, func(context.Context) error { return tt.wait(s) }
		})
	}
}

// Without a connection, or a session, no write is sent.
func TestNoWriteIsSentWithoutAConnection(t *testing.T) {
	for why, of := range map[string]func() (*Writes, *link.Link){
		"not connected": unreadyWrites,
		"an end is unseen": func() (*Writes, *link.Link) {
			s, on := writesInUse("")
			s.OnEvent(zk.Event{Type: zk.EventSession, State: zk.StateDisconnected})
			return s, on
		},
		"the session is over": func() (*Writes, *link.Link) {
			s, on := writesInUse("")
			s.End(zkerr.SessionLost)
			return s, on
		},
	} {
		for _, alone := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s, on := of()
				standing.Present(on)
				w := newDelete(context.Background(), "/a")
				s.queue.enqueue(w, alone)
				_, err := s.queue.await(w)
				if !errors.Is(err, zk.ErrNoServer) && !(s.Err() != nil && (errors.Is(err, zkerr.SessionLost) || errors.Is(err, zk.ErrConnectionClosed))) {
					t.Errorf("%s, alone %t: %v", why, alone, err)
				}
				if on.Unanswered() > 1 { // to the credentials
					t.Errorf("%s, alone %t: something is left", why, alone)
				}
			})
		}
	}
}
