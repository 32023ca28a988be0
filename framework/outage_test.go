package framework_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	zapobserver "go.uber.org/zap/zaptest/observer"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/nameserver"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// times are when lines with a message were logged, since began.
func times(began time.Time, logged *zapobserver.ObservedLogs, message string) (at []time.Duration) {
	for _, line := range logged.FilterMessage(message).All() {
		at = append(at, line.Time.Sub(began))
	}
	return at
}

// A client that could not connect logged nothing above debug. It says so after
// a session timeout and then each minute, with what each server had last, and
// no longer than that lasts. The same for the next outage.
func TestAClientThatCannotConnectSaysSo(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		core, logged := zapobserver.New(zap.InfoLevel)
		for m := range 3 {
			must(t, ens.Stop(m))
		}
		began := time.Now()
		c, _ := start(t, ens, framework.WithLogger(zap.New(core)))
		time.Sleep(timeout + 2*time.Minute + time.Second)
		want := []time.Duration{timeout, timeout + time.Minute, timeout + 2*time.Minute}
		if at := times(began, logged, "not connected"); fmt.Sprint(at) != fmt.Sprint(want) {
			t.Fatalf("at %v, want %v", at, want)
		}
		for i, line := range logged.All() {
			fields := line.ContextMap()
			text := fmt.Sprint(fields["error"])
			for _, server := range strings.Split(ens.Servers(), ",") {
				if strings.Count(text, "connect to "+server+": ") != 1 {
					t.Errorf("%q does not name %s once", text, server)
				}
			}
			if line.Level != zap.WarnLevel || fields["for"] != want[i] || strings.Contains(text, "\n") {
				t.Errorf("%v for %v: %q", line.Level, fields["for"], text)
			}
		}

		for outage := range 2 {
			for m := range 3 {
				must(t, ens.Restart(m))
			}
			must(t, c.WaitConnected(t.Context()))
			time.Sleep(time.Hour)
			logged.TakeAll()
			began = time.Now()
			for m := range 3 {
				must(t, ens.Stop(m))
			}
			time.Sleep(timeout - time.Second)
			if at := times(began, logged, "not connected"); at != nil {
				t.Errorf("outage %d: too early: %v", outage, at)
			}
			time.Sleep(2 * time.Second)
			if at := times(began, logged, "not connected"); len(at) != 1 || at[0] < timeout || at[0] > timeout+timeout/2 {
				t.Errorf("outage %d: at %v", outage, at)
			}
			if got := c.Server(); got != "" {
				t.Errorf("%v: connected to %s", c.State(), got)
			}
		}
		other, err := framework.New(ens.Servers(), framework.WithLogger(zap.New(core)), framework.WithDialer(ens.Dial))
		must(t, err)
		time.Sleep(time.Minute)
		must(t, other.Close())
		for m := range 3 {
			must(t, ens.Restart(m))
		}
		must(t, c.WaitConnected(t.Context()))
		synctest.Wait()
		logged.TakeAll()
		time.Sleep(time.Hour)
		if n := logged.Len(); n != 0 {
			t.Errorf("%d lines after the outage, or after Close", n)
		}
	})
}

// Every error of a client that cannot connect names each server, in one line,
// whatever was wrong with each. "could not connect" named one of three.
func TestEachServerIsNamed(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		failures := map[string]error{"a:2181": syscall.ECONNREFUSED, "b:2181": errors.New("no route"), "c:2181": nil}
		c, err := framework.New("a,b,c", framework.WithRetry(retry.NTimes(20, time.Second)), framework.WithDialer(func(_, address string, limit time.Duration) (net.Conn, error) {
			if err := failures[address]; err != nil {
				return nil, err
			}
			return ens.Dial("tcp", "member0:2181", limit)
		}))
		must(t, err)
		defer c.Close()
		must(t, ens.Pause(0))
		want := []string{"connect to a:2181: connection refused", "connect to b:2181: no route", "connection to c:2181 abandoned: no answer to the connect request"}
		_, _, get := c.Get(t.Context(), "/")
		_, awaited := c.AwaitSession(t.Context())
		for what, err := range map[string]error{"get /": get, "wait for a session": awaited, "wait for the connection": c.WaitConnected(within(t, time.Second))} {
			reason := "zk: could not connect to a server"
			if !errors.Is(err, zk.ErrNoServer) {
				reason = "context deadline exceeded"
			}
			if err == nil || err.Error() != what+": "+reason+" ("+strings.Join(want, "; ")+")" || !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%v", err)
			}
		}
	})
}

// A name that cannot be looked up is named with the servers that have another
// failure.
func TestANameWithoutAnAddressIsNamed(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		n := startNamed(t, ens, threeNames, framework.WithRetry(retry.NTimes(20, time.Second)))
		n.connected(t, timeout)
		n.names.Answer("zk1.example.", nameserver.NoName, 0)
		for m := range 3 {
			must(t, ens.Stop(m))
		}
		_, _, err := n.Get(t.Context(), "/")
		for _, want := range []string{"connect to zk0.example.:2181 at 10.0.0.1:2181: ", "resolve zk1.example.: ", "connect to zk2.example.:2181 at 10.0.0.3:2181: "} {
			if err == nil || strings.Count(err.Error(), want) != 1 {
				t.Errorf("%v, want %q", err, want)
			}
		}
	})
}

// Server names where the client is connected, and so do the lines about its
// connections: of SUSPENDED and of an abandoned connection the server that was
// left.
func TestTheServerIsNamed(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		core, logged := zapobserver.New(zap.InfoLevel)
		n := startNamed(t, ens, threeNames, framework.WithLogger(zap.New(core)))
		if got := n.Server(); got != "" {
			t.Errorf("before there is a connection: %q", got)
		}
		lossOf(t, n.connected(t, timeout)) // so that heartbeats are sent
		first := n.Server()
		member := memberOf(t, ens, session(t, n.Client).ID())
		if want := fmt.Sprintf("zk%d.example.:2181 at 10.0.0.%d:2181", member, member+1); first != want {
			t.Fatalf("connected to %q, want %q", first, want)
		}
		logged.TakeAll()
		must(t, ens.Pause(member))
		states := map[any]any{}
		bubble.AwaitTrue(t, "another connection", func() bool {
			for _, line := range logged.FilterMessage("state changed").All() {
				states[line.ContextMap()["to"]] = line.ContextMap()["server"]
			}
			return states["CONNECTED"] != nil
		})
		abandoned := logged.FilterMessage("connection abandoned").All()
		if len(abandoned) == 0 || abandoned[0].ContextMap()["server"] != first {
			t.Errorf("abandoned %v, want %s first", abandoned, first)
		}
		if states["SUSPENDED"] != first || states["CONNECTED"] != n.Server() {
			t.Errorf("servers by state %q, want first %s, then %s", states, first, n.Server())
		}
		must(t, n.Close())
		if got := n.Server(); got != "" {
			t.Errorf("closed: %q", got)
		}
		var zero framework.Client
		if got := zero.Server(); got != "" {
			t.Errorf("the zero Client: %q", got)
		}
	})
}

// A logger that blocks delays neither the next line's time nor the client.
func TestALoggerThatBlocksInAnOutage(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		must(t, ens.Stop(0))
		stuck := make(chan struct{})
		core, logged := zapobserver.New(zap.InfoLevel)
		began := time.Now()
		c, _ := start(t, ens, framework.WithLogger(zap.New(core, zap.Hooks(func(zapcore.Entry) error { <-stuck; return nil }))))
		time.Sleep(timeout + 3*time.Minute)
		must(t, ens.Restart(0))
		must(t, c.WaitConnected(within(t, timeout)))
		close(stuck)
		synctest.Wait()
		want := []time.Duration{timeout, timeout + time.Minute, timeout + 2*time.Minute, timeout + 3*time.Minute}
		if at := times(began, logged, "not connected"); fmt.Sprint(at) != fmt.Sprint(want) {
			t.Errorf("at %v, want %v", at, want)
		}
	})
}
