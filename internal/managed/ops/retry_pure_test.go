package ops

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/test/standing"
)

// sessions is a client whose sessions end one after the other.
type sessions struct {
	noClient
	left []*Session
}

func (c *sessions) Await(context.Context, *Session, backoff.BackOff, bool) (*Session, error) {
	s := c.left[0]
	c.left = c.left[1:]
	return s, nil
}

// A request that was left to itself looks at its try later than the next try
// begins: it must not be sent in the next one's session.
func TestATryThatWasLeftKeepsItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := sessionFor(6*time.Second, standing.Silent, nil), sessionFor(6*time.Second, standing.Silent, nil)
		c := first.Client
		c.above = &sessions{left: []*Session{first, second}}
		var tries []*Attempt
		sentIn := make(chan *Session, 1)
		err := Scope{Client: c}.Do(t.Context(), request.NameMulti, "/n", Repeatable, func(a *Attempt) error {
			if tries = append(tries, a); len(tries) == 2 {
				return nil
			}
			time.AfterFunc(time.Second, func() { first.End(zkerr.SessionLost) })
			_, err := Detach(t.Context(), a.Session, func() (int, error) {
				time.Sleep(2 * time.Hour) // longer than the pause before the next try
				sentIn <- a.Session
				return 0, zk.ErrConnectionClosed
			}, nil)
			return err
		})
		if err != nil || len(tries) != 2 || !tries[1].Unsure || tries[1].Session != second {
			t.Fatal(err, tries)
		}
		if <-sentIn != first {
			t.Error("the request of the first session was sent in the second")
		}
	})
}
