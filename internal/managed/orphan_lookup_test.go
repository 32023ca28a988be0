package managed_test

import (
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/nameserver"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A name server that does not answer keeps none of the three tries to close a
// lost session waiting for longer than a server may. An address that is
// remembered is used nearly without waiting.
func TestLookupsToCloseASessionEnd(t *testing.T) {
	for name, remembered := range map[string]bool{"remembered": true, "forgotten": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				d, b := &nameserver.Server{}, &behind{members: map[string]string{"10.0.0.1:2181": ens.Servers()}, network: ens.ClientNet("names")}
				d.Is("", "10.0.0.1")
				c, err := framework.New("zk.example.:2181", framework.WithSessionTimeout(timeout), framework.WithResolver(d.Resolver()), framework.WithDialer(b.Dial))
				must(t, err)
				defer c.Close()
				must(t, c.WaitConnected(within(t, time.Minute)))
				s := session(t, c)
				if !remembered {
					d.Answer("", nameserver.NoName, 0)
					inside(s).CloseOrphan()
				}
				d.Answer("", nameserver.Silence, 0)
				began := time.Now()
				if inside(s).CloseOrphan() != remembered || alive(ens, s.ID()) == remembered {
					t.Errorf("closed %t, want %t", !alive(ens, s.ID()), remembered)
				}
				const step = timeout / 3
				switch took := time.Since(began); {
				case remembered && took > step/16:
					t.Errorf("it took %v", took)
				case !remembered && (took < 4*step || took > 5*step):
					t.Errorf("it took %v: three lookups of %v, and two pauses", took, step)
				}
			})
		})
	}
}
