package framework_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A name server that does not answer keeps none of the three tries to close a
// lost session waiting for longer than a server may.
func TestLookupsToCloseASessionEnd(t *testing.T) {
	resolveOnce(t)
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		d, b := &domain{}, &behind{members: map[string]string{"10.0.0.1:2181": ens.Servers()}, network: ens.ClientNet("names")}
		d.is("10.0.0.1")
		var silent atomic.Bool
		answering := d.resolver()
		resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if silent.Load() {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return answering.Dial(ctx, network, address)
		}}
		c, err := framework.New("zk.example.:2181", framework.WithSessionTimeout(timeout), framework.WithResolver(resolver), framework.WithDialer(b.Dial))
		must(t, err)
		defer c.Close()
		must(t, c.WaitConnected(within(t, time.Minute)))
		s := session(t, c)
		silent.Store(true)
		began := time.Now()
		if framework.CloseOrphan(s) {
			t.Error("it has closed a session at no server")
		}
		const step = timeout / 3
		if took := time.Since(began); took < 4*step || took > 5*step {
			t.Errorf("it took %v: three lookups of %v, and two pauses", took, step)
		}
		silent.Store(false)
		time.Sleep(time.Minute) // lookups that nobody waits for end by themselves
	})
}
