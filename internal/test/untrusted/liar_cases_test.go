package untrusted

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/tamper"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// A create is answered with another number than the znode has. The client does
// not find itself in line, and leaves no znode there when it joins again: it
// would wait behind that for as long as its session lives.
func TestAWrongNumberLeavesNoZnode(t *testing.T) {
	for _, number := range []string{"0000000000", "0000000007", "2147480000"} {
		t.Run(number, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				held := bubble.Acquire(t, t.Context(), mutex(t, w))
				lies := 1
				c, err := framework.New(w.Servers(), framework.WithDialer(tamper.Wrap(w.ClientNet("deceived").Dial, func(a tamper.Answer) tamper.Instead {
					var made wire.PathResponse
					if a.Op != wire.OpCreate || lies == 0 || wire.Unmarshal(a.Frame[answerHead:], &made) != nil || !strings.HasPrefix(made.Path, root+"/_c_") {
						return tamper.Pass(a)
					}
					lies--
					return resized((&wire.PathResponse{Path: made.Path[:len(made.Path)-10] + number}).Append(slices.Clip(a.Frame[:answerHead])))
				})))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				m, err := locks.NewMutex(c, root)
				if err != nil {
					t.Fatal(err)
				}
				waiting := bubble.Acquiring(t.Context(), m)
				time.Sleep(time.Second)
				bubble.Pending(t, waiting)
				w.InLine(root, 2)
				bubble.Release(t, held)
				bubble.Release(t, bubble.Granted(t, waiting).Lease)
				if lies > 0 {
					t.Error("it was told the truth")
				}
				w.Empty(root)
			})
		})
	}
}

// The same for a znode that replaces another one of the client, without a list.
func TestAWrongNumberOfAReplacement(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		lies := 1
		c, err := framework.New(w.Servers(), framework.WithDialer(tamper.Wrap(w.ClientNet("deceived").Dial, func(a tamper.Answer) tamper.Instead {
			right := []byte("0000000002")
			if a.Op != wire.OpMulti || lies == 0 || !bytes.Contains(a.Frame, right) {
				return tamper.Pass(a)
			}
			lies--
			return tamper.Instead{Frame: bytes.Replace(a.Frame, right, []byte("0000000007"), 1)}
		})))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		m, err := locks.NewMutex(c, root, recipes.WithAsyncRelease())
		if err != nil {
			t.Fatal(err)
		}
		first := bubble.Acquire(t, t.Context(), m)
		other := bubble.Acquiring(t.Context(), mutex(t, w))
		w.InLine(root, 2)
		bubble.ReleaseAtOnce(t, first)
		again := bubble.Acquiring(t.Context(), m)
		held := bubble.Granted(t, other).Lease
		time.Sleep(time.Second)
		bubble.Pending(t, again)
		bubble.Release(t, held)
		bubble.Release(t, bubble.Granted(t, again).Lease)
		if lies > 0 {
			t.Error("it was told the truth")
		}
		time.Sleep(time.Second)
		w.Empty(root)
	})
}
