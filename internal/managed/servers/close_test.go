package servers

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/test/script"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// What closes a lost session, and what does not.
func TestCloseRemotely(t *testing.T) {
	for name, tt := range map[string]struct {
		auths  []wire.AuthRequest
		script []wire.Message
		want   error
	}{
		"closed":          {nil, []wire.Message{script.ConnectedAs(7), &wire.ReplyHeader{Xid: 1}}, nil},
		"gone already":    {nil, []wire.Message{script.ConnectedAs(0)}, nil},
		"another session": {nil, []wire.Message{script.ConnectedAs(8), &wire.ReplyHeader{Xid: 1}}, zkerr.AnotherSession},
		"another session, whose close is not answered": {nil, []wire.Message{script.ConnectedAs(8)}, zkerr.AnotherSession},
		"refused":           {nil, []wire.Message{script.ConnectedAs(7), &wire.ReplyHeader{Xid: 1, Err: wire.NoAuth}}, wire.NoAuth},
		"with credentials":  {[]wire.AuthRequest{{Scheme: "digest"}}, []wire.Message{script.ConnectedAs(7), &wire.ReplyHeader{Xid: wire.XidAuth}, &wire.ReplyHeader{Xid: 1}}, nil},
		"silence":           {nil, []wire.Message{}, os.ErrDeadlineExceeded},
		"no answer":         {nil, []wire.Message{script.ConnectedAs(7)}, os.ErrDeadlineExceeded},
		"none to the auth":  {[]wire.AuthRequest{{Scheme: "digest"}}, []wire.Message{script.ConnectedAs(7)}, os.ErrDeadlineExceeded},
		"they are rejected": {[]wire.AuthRequest{{Scheme: "digest"}}, []wire.Message{script.ConnectedAs(7), &wire.ReplyHeader{Xid: wire.XidAuth, Err: wire.AuthFailed}}, zk.ErrAuthFailed},
	} {
		inVirtualTime(t, name, func(t *testing.T) {
			dial, _, limits := script.Dialer(0, tt.script)
			c := of(Config{Dial: dial, Auths: tt.auths})
			began := time.Now()
			err := c.CloseAt(t.Context(), Server{Name: "a", Address: "a"}, 7, make([]byte, wire.PasswordSize), true, time.Second)
			if !errors.Is(err, tt.want) || tt.want == nil && err != nil {
				t.Error(err)
			}
			if late := errors.Is(err, os.ErrDeadlineExceeded) || strings.Contains(name, "not answered"); (time.Since(began) == time.Second) != late {
				t.Errorf("after %v", time.Since(began))
			}
			checkDials(t, *limits, 1)
			synctest.Wait()
		})
	}
}

// Eight earlier sessions are remembered, and more of those that may not be
// closed yet.
func TestHowManyEarlierSessionsAreRemembered(t *testing.T) {
	c := of(Config{})
	ends := func(id int64, closed bool) {
		c.NoteEarlier(Orphan{ID: id}, 0)
		c.NoteAsked(id, closed)
	}
	ids := func() (all []int64) {
		for _, e := range c.earlier.all {
			all = append(all, e.ID)
		}
		return all
	}
	for id := range int64(8) {
		ends(id+1, id != 0)
	}
	if got := ids(); !slices.Equal(got, []int64{1, 2, 3, 4, 5, 6, 7, 8}) {
		t.Errorf("%v", got)
	}
	ends(9, true)
	if got := ids(); !slices.Equal(got, []int64{1, 3, 4, 5, 6, 7, 8, 9}) {
		t.Errorf("%v, want the oldest that is closed to be forgotten", got)
	}
	c = of(Config{})
	for id := range int64(12) {
		ends(id+1, false)
	}
	if len(c.earlier.all) != 12 {
		t.Errorf("%v", ids())
	}
}
