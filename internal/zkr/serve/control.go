package serve

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/testutil"
)

// control stops and starts members of the embedded ensemble by HTTP, for tests
// in other languages. A member's data in memory stays.
type control struct {
	ens     *testutil.Embedded
	mu      sync.Mutex // one command at a time
	stopped map[int]bool
}

// serveControl serves at the address until stop is called.
func serveControl(address string, ens *testutil.Embedded) (at string, stop func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return "", nil, err
	}
	c := &control{ens: ens, stopped: map[int]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, ens.Describe()) })
	mux.HandleFunc("POST /stop", c.command(c.stop))
	mux.HandleFunc("POST /start", c.command(c.start))
	mux.HandleFunc("POST /restart", c.command(func(ctx context.Context, members []int) error {
		if running := c.those(members, false); len(running) > 0 {
			if err := c.stop(ctx, running); err != nil {
				return err
			}
		}
		return c.start(ctx, members)
	}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan struct{})
	go func() { // ends with stop
		defer close(ended)
		_ = server.Serve(listener) // it returns only after Close
	}()
	return "http://" + listener.Addr().String(), func() {
		_ = server.Close() // clients being served notice that
		<-ended
	}, nil
}

// command returns a handler that runs a command on the member of the request,
// or on all members to which it applies, and answers when that is done.
func (c *control) command(run func(context.Context, []int) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var members []int
		if text := r.FormValue("member"); text != "" {
			member, err := strconv.Atoi(text)
			if err != nil || member < 0 || member >= c.ens.Members() {
				http.Error(w, fmt.Sprintf("member=%s: want a member from 0 to %d", text, c.ens.Members()-1), http.StatusBadRequest)
				return
			}
			members = []int{member}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if err := run(r.Context(), members); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		fmt.Fprint(w, c.ens.Describe())
	}
}

// those returns which of the given members, or of all members if none are
// given, are stopped or running.
func (c *control) those(members []int, stopped bool) []int {
	var those []int
	for i := range c.ens.Members() {
		named := len(members) == 0 || members[0] == i
		if named && c.stopped[i] == stopped {
			those = append(those, i)
		}
	}
	return those
}

func (c *control) stop(_ context.Context, members []int) error {
	if len(members) == 0 {
		members = c.those(nil, false)
	}
	for _, member := range members {
		if err := c.ens.Stop(member); err != nil {
			return err
		}
		c.stopped[member] = true
	}
	return nil
}

// start returns when the members serve, or at once if too few are running for
// that.
func (c *control) start(ctx context.Context, members []int) error {
	if len(members) == 0 {
		members = c.those(nil, true)
	}
	for _, member := range members {
		if err := c.ens.Restart(member); err != nil {
			return err
		}
		delete(c.stopped, member)
	}
	if 2*len(c.stopped) >= c.ens.Members() {
		return nil
	}
	return c.ens.WaitServing(ctx)
}
