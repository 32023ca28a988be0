package sim

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// facts draws what a client could take for a fact about its servers: bursts of
// resets while it creates containers, and servers that refuse a connection
// beside that of the session, or answer late there. It draws last, for the
// reason that views has.
func (d *draw) facts() {
	if d.Scenario.quiet() || !d.one(1, 4) {
		return
	}
	at := time.Duration(0)
	for range 1 + d.IntN(3) {
		client, lasts := d.IntN(len(d.Workers)), d.upTo(2*d.Timeout)
		if d.one(1, 3) {
			d.Reap = time.Second
			d.Faults = append(d.Faults, Fault{
				What: pick(d, Before, After), Client: client, Op: testutil.OpCreateContainer.String(), Times: 1 + d.IntN(6), For: lasts, At: When{Time: 1 + at},
			})
		} else { // what the servers have is asked for in each connection
			d.Faults = append(
				d.Faults, Fault{What: pick(d, Full, LateBeside), Client: client, By: d.upTo(d.Timeout), For: lasts, At: When{Time: 1 + at}},
				Fault{What: Drop, Client: client, At: When{Time: 2 + at}},
			)
		}
		at += d.upTo(d.Timeout)
	}
}

// dialer opens a connection.
type dialer = func(network, address string, timeout time.Duration) (net.Conn, error)

// beside returns a dialer whose connections fare as the faults say while the
// client has another one.
func (w *world) beside(client int, dial dialer) dialer {
	var mu sync.Mutex // guards open
	open := 0
	add := func(n int) (before int) {
		mu.Lock()
		defer mu.Unlock()
		open += n
		return open - n
	}
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		c := &besideConn{Conn: conn, over: make(chan struct{})}
		c.end = sync.OnceFunc(func() {
			add(-1)
			close(c.over)
		})
		if add(1) == 0 {
			return c, nil
		}
		c.late = func() time.Duration { return w.befalls(client, LateBeside) }
		if w.befalls(client, Full) > 0 {
			go c.Close()
			return nil, syscall.ECONNREFUSED
		}
		return c, nil
	}
}

// befalls returns for how long a fault that is present delays connections
// beside the session's, and 0 if there is none of the kind.
func (w *world) befalls(client int, what What) (by time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for f := range w.besides {
		if f.Client == client && f.What == what {
			by = max(by, f.By, 1)
		}
	}
	return by
}

type besideConn struct {
	net.Conn
	late func() time.Duration // nil: never
	over chan struct{}        // closed when the connection is
	end  func()               // closes over, once
}

// Read is late while the fault lasts: the session may have come to have this
// connection. Like that of any other connection it ends with Close.
func (c *besideConn) Read(p []byte) (int, error) {
	if c.late != nil {
		if by := c.late(); by > 0 {
			select {
			case <-time.After(by):
			case <-c.over:
			}
		}
	}
	return c.Conn.Read(p)
}

func (c *besideConn) Close() error {
	c.end()
	return c.Conn.Close()
}

// fares makes a fault happen to connections beside that of a session.
func (w *world) fares(f Fault) (heal func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.besides[&f] = true
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.besides, &f)
	}
}

// forgets is within which time a client must find out what a fault has made it
// doubt. It asks once in a minute, or later after an end that seemed an answer.
const forgets = 10 * time.Minute

// said reports whether a server has said that it lacks something, or may not be
// found at the address of a connection any longer, and so cannot be asked.
func (w *world) said() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.hit, func(f Fault) bool {
		return f.What == NamesMove || f.What == AddressTaken || f.What == Refuse && slices.Contains([]testutil.Code{testutil.CodeUnimplemented, testutil.Code(wire.MarshallingError), testutil.Code(wire.BadArguments)}, f.Code)
	})
}

// makeContainers checks that no client believes for good that the servers have
// no containers.
func (w *world) makeContainers() {
	if w.said() {
		return
	}
	var each sync.WaitGroup
	for i := range w.clients {
		if !w.gone(i) {
			each.Go(func() { w.becomesSo(forgets, func() string { return w.withoutContainers(i) }) })
		}
	}
	each.Wait()
}

// becomesSo waits until nothing is wrong, for so long.
func (w *world) becomesSo(bound time.Duration, wrong func() string) {
	for end := time.Now().Add(bound); ; time.Sleep(w.plan.Timeout) {
		text := wrong()
		if text == "" {
			return
		}
		if time.Now().After(end) {
			w.ledger.fault("%v after the last fault: %s", bound, text)
			return
		}
	}
}

// probe begins the paths of the containers that are made to see whether clients
// do that.
const probe = "/made-by-"

func (w *world) withoutContainers(client int) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	path := fmt.Sprint(w.plan.base(), probe, client)
	seen := w.plan.view(client).Path(path)
	err := w.clients[client].MakeContainerPath(ctx, seen)
	is := strings.Contains(w.ens.Tree(), path+" container\n")
	_ = w.clients[client].Delete(ctx, seen, -1)
	if !is {
		return fmt.Sprintf("client %d makes no containers: %v", client, err)
	}
	return ""
}

// watchTrees checks that no cache that may have a recursive watch has others.
func (w *world) watchTrees() {
	if !w.said() {
		w.becomesSo(forgets, w.watchedSingly)
	}
}

func (w *world) watchedSingly() string {
	if w.plan.Recipe != Cache || w.plan.OneShotOnly || slices.ContainsFunc(w.followers, func(f *follower) bool { return f.OneShot }) {
		return ""
	}
	for path, n := range w.ens.Watches() {
		if strings.HasPrefix(path, w.paths[0]+"/") {
			return fmt.Sprintf("there are %d watches on %s", n, path)
		}
	}
	return ""
}
