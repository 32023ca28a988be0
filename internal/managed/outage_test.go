package managed_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
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
// a second, a session timeout, and then each minute, with what each server had
// last, and no longer than that lasts. The next outage is said after a session
// timeout.
func TestAClientThatCannotConnectSaysSo(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		core, logged := zapobserver.New(zap.InfoLevel)
		for m := range 3 {
			must(t, ens.Stop(m))
		}
		began := time.Now()
		c, _ := start(t, ens, framework.WithLogger(zap.New(core)))
		time.Sleep(timeout + 2*time.Minute + time.Second)
		want := []time.Duration{time.Second, timeout, timeout + time.Minute, timeout + 2*time.Minute}
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

// A first program whose address is wrong waited for a session timeout until it
// was told. It is told of a refusal and of an unknown name within two seconds,
// of silence after the first dial, once each, and never that nothing is known.
func TestAWrongAddressIsSaidSoon(t *testing.T) {
	refused := func(string, string, time.Duration) (net.Conn, error) { return nil, syscall.ECONNREFUSED }
	silent := func(_, _ string, limit time.Duration) (net.Conn, error) {
		time.Sleep(limit)
		return nil, os.ErrDeadlineExceeded
	}
	answers := func(network, address string, limit time.Duration) (net.Conn, error) {
		if address == "a:2181" {
			return refused(network, address, limit)
		}
		return silent(network, address, limit)
	}
	for name, tt := range map[string]struct {
		opt     framework.Option
		timeout time.Duration
		least   time.Duration
		most    time.Duration
		says    string
	}{
		"refused":          {framework.WithDialer(refused), 30 * time.Second, time.Second, 2 * time.Second, "connection refused"},
		"unknown":          {framework.WithResolver(&net.Resolver{PreferGo: true, Dial: nowhere}), 30 * time.Second, time.Second, 2 * time.Second, "a"},
		"silent":           {framework.WithDialer(silent), 30 * time.Second, 10 * time.Second, 10*time.Second + 250*time.Millisecond, "connect to "},
		"half of them":     {framework.WithDialer(answers), 30 * time.Second, time.Second, 10*time.Second + 250*time.Millisecond, "connect to "},
		"a short session":  {framework.WithDialer(silent), 600 * time.Millisecond, 600 * time.Millisecond, 600 * time.Millisecond, "connect to "},
		"a session of 1s":  {framework.WithDialer(refused), time.Second, time.Second, time.Second, "connection refused"},
		"a session of 1.1": {framework.WithDialer(refused), 1100 * time.Millisecond, time.Second, time.Second, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core, logged := zapobserver.New(zap.InfoLevel)
				began := time.Now()
				c, err := framework.New("a,b", tt.opt, framework.WithLogger(zap.New(core)), framework.WithSessionTimeout(tt.timeout))
				must(t, err)
				time.Sleep(tt.timeout + time.Second/2)
				lines, at := logged.FilterMessage("not connected").All(), times(began, logged, "not connected")
				want := []time.Duration{tt.timeout}
				if tt.least < tt.timeout {
					want = []time.Duration{0, tt.timeout}
				}
				if len(at) != len(want) || at[len(at)-1] != tt.timeout || at[0] < tt.least || at[0] > tt.most {
					t.Fatalf("at %v, want the first between %v and %v, the last at %v", at, tt.least, tt.most, tt.timeout)
				}
				if text := fmt.Sprint(lines[0].ContextMap()["error"]); !strings.Contains(text, tt.says) || lines[0].ContextMap()["for"] != at[0] {
					t.Errorf("for %v: %q", lines[0].ContextMap()["for"], text)
				}
				must(t, c.Close())
				synctest.Wait() // the logger has a goroutine of its own
				logged.TakeAll()
				time.Sleep(time.Hour)
				for _, line := range logged.All() {
					t.Errorf("after Close: %s %v", line.Message, line.ContextMap())
				}
			})
		})
	}
}

func nowhere(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("no name server")
}

// A client that connects within a second says nothing, though a server has
// refused it.
func TestAnOutageThatIsOverIsNotSaid(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		must(t, ens.Stop(0))
		core, logged := zapobserver.New(zap.InfoLevel)
		c, _ := start(t, ens, framework.WithLogger(zap.New(core)))
		must(t, c.WaitConnected(t.Context()))
		time.Sleep(time.Minute)
		if n := logged.FilterMessage("not connected").Len(); n != 0 {
			t.Errorf("%d lines", n)
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

// A call that ends before all servers were tried says how many were not: a dial
// that hangs would look as if the other two were down.
func TestServersThatWereNotTried(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		failures := map[string]error{"a:2181": syscall.ECONNREFUSED, "b:2181": errors.New("no route")}
		c, err := framework.New("a,b,c,d", framework.WithDialer(func(_, address string, limit time.Duration) (net.Conn, error) {
			if err := failures[address]; err != nil {
				return nil, err
			}
			time.Sleep(limit)
			return nil, syscall.ETIMEDOUT
		}))
		must(t, err)
		defer c.Close()
		for _, tt := range []struct {
			within time.Duration
			want   string
		}{
			{0, `context deadline exceeded \(4 of 4 servers not tried, or without an answer so far\)$`},
			{time.Second, `context deadline exceeded \((connect to [ab]:2181: [^;]+; ){0,2}[2-4] of 4 servers not tried, or without an answer so far\)$`},
			{time.Minute, `context deadline exceeded \(connect to a:2181: [^;]+; connect to b:2181: [^;]+; connect to c:2181: [^;]+; connect to d:2181: [^;]+\)$`},
		} {
			if err := c.WaitConnected(within(t, tt.within)); err == nil || !regexp.MustCompile(tt.want).MatchString(err.Error()) {
				t.Errorf("within %v: %v", tt.within, err)
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

// A call that comes to the wire client just as the connection ends waits there
// for the next one. Without a server it fails nevertheless, as others do.
func TestACallAsTheConnectionEnds(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := start(t, ens)
		must(t, c.WaitConnected(t.Context()))
		s := session(t, c)
		for m := range 3 {
			must(t, ens.Stop(m))
		}
		bubble.AwaitTrue(t, "SUSPENDED", func() bool { return c.State() == framework.Suspended })
		began := time.Now()
		if err := inside(s).ReadUnready(t.Context()); !errors.Is(err, zk.ErrNoServer) || time.Since(began) > timeout+2*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		for m := range 3 {
			must(t, ens.Restart(m))
		}
		must(t, c.WaitConnected(t.Context()))
	})
}

// Such a call delays no connection: that could cost a lease.
func TestACallThatWaitsDelaysNoConnection(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := start(t, ens, framework.WithSessionTimeout(3*time.Second))
		must(t, c.WaitConnected(t.Context()))
		s := session(t, c)
		must(t, ens.Stop(0))
		bubble.AwaitTrue(t, "SUSPENDED", func() bool { return c.State() == framework.Suspended })
		read := make(chan error, 1)
		go func() { read <- inside(s).ReadUnready(t.Context()) }()
		time.Sleep(300 * time.Millisecond)
		must(t, ens.Restart(0))
		must(t, c.WaitConnected(within(t, 500*time.Millisecond)))
		must(t, bubble.Await(t, "the read", read))
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
		want := []time.Duration{time.Second, timeout, timeout + time.Minute, timeout + 2*time.Minute, timeout + 3*time.Minute}
		if at := times(began, logged, "not connected"); fmt.Sprint(at) != fmt.Sprint(want) {
			t.Errorf("at %v, want %v", at, want)
		}
	})
}
