package watches

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// A caller leaves before the request is sent that arms its watch, and after
// that the client reconnects. The watch is removed once it is armed.
func TestAWatchThatIsArmedForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, on := idleWatches(time.Hour), &link.Link{}
		h := &s.hub
		h.session = s
		w, _ := h.join(watchKey{Data, "/a"})
		w.leave()
		h.reset(on)
		h.begin(w, on)
		h.noteArmed(w, 1)
		if u, ok := h.unwanted[w.key]; !ok || u.on != on {
			t.Errorf("to be removed: %v", h.unwanted)
		}
	})
}

// A watch that is armed on the new connection already, or not sent yet, says
// nothing of the earlier one, and does not fire when that is replaced.
func TestWatchesOfTheNewConnectionStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, on := idleWatches(time.Hour), &link.Link{}
		h := &s.hub
		h.session = s
		for name, tt := range map[string]struct {
			at    *link.Link
			to    *link.Link
			fires bool
		}{
			"not sent yet":                 {nil, on, false},
			"on the new connection":        {on, on, false},
			"on an earlier one":            {&link.Link{}, on, true},
			"there is no connection":       {on, nil, true},
			"nor was there an earlier one": {nil, nil, true},
		} {
			w, _ := h.join(watchKey{Data, "/" + name})
			h.begin(w, tt.at)
			if h.reset(tt.to); w.hasFired() != tt.fires {
				t.Errorf("%s: fired %t", name, !tt.fires)
			}
			h.drop(w)
		}
	})
}

// An answer that cannot be decoded is one that makes no sense.
func TestNodesThatCannotBeDecoded(t *testing.T) {
	stat := wire.Stat{Mzxid: 3}
	for kind, body := range map[Kind][]byte{
		Data:     (&wire.DataResponse{Data: []byte("a"), Stat: stat}).Append(nil),
		Children: (&wire.ChildrenResponse{HasStat: true, Children: []string{"a"}, Stat: stat}).Append(nil),
	} {
		n, err := nodeIn(kind, body)
		if err != nil || n.Stat.Mzxid != 3 || string(n.Data)+strings.Join(n.Children, "") != "a" {
			t.Errorf("%+v, %v", n, err)
		}
		if n, err = nodeIn(kind, body[:len(body)-1]); !errors.Is(err, zkerr.Malformed) || !errors.Is(err, zk.ErrConnectionClosed) || n.Stat != nil {
			t.Errorf("cut off: %+v, %v", n, err)
		}
	}
}
