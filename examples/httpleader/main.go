// Command httpleader is an HTTP service of which one instance leads. A load
// balancer asks each instance whether it leads, which is so while its lease is
// held, and sends requests to that one only. A rolling update asks another
// path: each instance that is connected is ready, whether it leads or not. If
// only the leader were ready, a new instance would wait for the old leader to
// end, and the update for the new instance. On SIGTERM an instance drains:
// first it reports that it is not ready and wants no more requests, then it
// finishes those that have begun, then it passes leadership on.
//
//	go run ./examples/httpleader                                      # two instances, on an embedded ensemble
//	ZKR_SERVERS=zk1:2181 go run ./examples/httpleader 127.0.0.1:8080  # one instance, on a real one
//
//	curl -i http://ADDRESS/ready      # 200 from each instance that is connected
//	curl -i http://ADDRESS/leader     # 200 from the leader, 404 while it drains, 503 from others
//	curl -X POST http://ADDRESS/count # adds one to the count; only the leader does
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/guardian"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const (
	basePath     = "/examples/httpleader"
	electionPath = basePath + "/leader"
	countPath    = basePath + "/count"

	// How long the probes fail at least before the listener closes: the load
	// balancer must have seen it.
	drainDelay = 500 * time.Millisecond
	// How long requests that have begun may take to finish.
	drainTimeout = 10 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	servers, addresses := os.Getenv("ZKR_SERVERS"), os.Args[1:]
	if servers == "" {
		ens, err := testutil.New(testutil.WithMembers(3))
		if err != nil {
			fatal(err)
		}
		defer ens.Close()
		servers = ens.Servers()
	}
	if len(addresses) == 0 {
		addresses = []string{"127.0.0.1:0", "127.0.0.1:0"}
	}
	if err := run(ctx, servers, addresses, os.Stdout); err != nil {
		fatal(err)
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// run serves at each address, each with its own client, until ctx ends or one
// of them fails. If $ZKR_GUARDIAN names a guardian, and this process is killed,
// another one leads in milliseconds instead of after a session timeout.
func run(ctx context.Context, servers string, addresses []string, out io.Writer) error {
	g, err := guardian.Find()
	if err != nil {
		fmt.Fprintln(out, err) // it works without one
	}
	defer g.Close() // behind the clients
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	ended := make([]error, len(addresses))
	for i, address := range addresses {
		ln, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "serving http://%s\n", ln.Addr())
		wg.Go(func() {
			defer stop()
			client, err := framework.New(servers, g.Options()...) // none without a guardian
			if err != nil {
				ended[i] = err
				return
			}
			defer client.Close()
			ended[i] = serve(ctx, client, ln)
		})
	}
	wg.Wait()
	return errors.Join(ended...)
}

// instance is one instance of the service.
type instance struct {
	client   *framework.Client
	term     atomic.Pointer[recipes.Lease] // the last term; nil before the first
	working  atomic.Int64                  // requests that have begun, probes not counted
	draining atomic.Bool
}

// serve answers requests at ln, and is a candidate in the election, until ctx
// ends. Then it drains.
func serve(ctx context.Context, client *framework.Client, ln net.Listener) error {
	i := &instance{client: client}
	election, err := leader.New(client, electionPath, leader.WithID(ln.Addr().String()))
	if err != nil {
		return err
	}
	// The election ends after the drain, so that the last requests are still
	// answered by a leader.
	leading, resign := context.WithCancel(context.WithoutCancel(ctx))
	defer resign()
	campaign := make(chan error, 1)
	go func() { campaign <- election.Run(leading, i.lead) }()

	server := &http.Server{Handler: i.handler(), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	select {
	case <-ctx.Done():
	case err := <-served:
		resign()
		return errors.Join(err, drained(<-campaign))
	case err := <-campaign: // Run has failed for good: see leader.Election.Run
		return errors.Join(err, server.Close())
	}

	i.draining.Store(true)
	time.Sleep(drainDelay)
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	i.finish(drain)
	err = server.Shutdown(drain)
	resign()
	return errors.Join(err, drained(<-campaign))
}

// finish waits until no request is left, or ctx ends. The listener stays open:
// a load balancer that cannot ask for /leader takes the instance for lost, and
// cuts its requests.
func (i *instance) finish(ctx context.Context) {
	for i.working.Load() > 0 && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
}

// drained returns the error of a campaign, or nil if it ended because it was
// canceled.
func drained(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// lead is one term. The handlers do the work.
func (i *instance) lead(ctx context.Context, term *recipes.Lease) error {
	if err := i.client.MakePersistentPath(ctx, basePath); err != nil {
		return err
	}
	if _, err := i.client.Create(ctx, countPath, []byte("0"), zk.FlagPersistent); err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return err
	}
	i.term.Store(term)
	<-ctx.Done()
	return nil
}

// leads returns the present term, and whether this instance leads. Held looks
// at the clock, so the answer is right even in a process that was paused for a
// while.
func (i *instance) leads() (*recipes.Lease, bool) {
	term := i.term.Load()
	return term, term != nil && term.Held()
}

func (i *instance) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /alive", func(http.ResponseWriter, *http.Request) {}) // the process runs; it says nothing about leading
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		state := i.client.State()
		switch {
		case i.draining.Load():
			http.Error(w, "draining", http.StatusServiceUnavailable)
		case state != framework.Connected:
			http.Error(w, state.String(), http.StatusServiceUnavailable)
		default:
			fmt.Fprintln(w, state)
		}
	})
	mux.HandleFunc("GET /leader", func(w http.ResponseWriter, _ *http.Request) {
		term, ok := i.leads()
		switch {
		case !ok:
			http.Error(w, "another instance leads", http.StatusServiceUnavailable)
		case i.draining.Load(): // to HAProxy: no more requests, but it still answers those that have begun
			http.Error(w, "draining", http.StatusNotFound)
		default:
			fmt.Fprintf(w, "leading under token %s\n", term.Token())
		}
	})
	mux.HandleFunc("POST /count", func(w http.ResponseWriter, r *http.Request) {
		i.working.Add(1)
		defer i.working.Add(-1)
		i.count(w, r)
	})
	return mux
}

// count handles a request that only the leader may answer. To lead when the
// request arrives is not enough. So the write is guarded by the term: it is not
// applied once another instance leads. It is also guarded by the znode's
// version, so that two requests at a time count as two.
func (i *instance) count(w http.ResponseWriter, r *http.Request) {
	for {
		term, ok := i.leads()
		if !ok {
			http.Error(w, "another instance leads", http.StatusServiceUnavailable)
			return
		}
		n, err := i.increment(r.Context(), term)
		switch {
		case errors.Is(err, zk.ErrBadVersion):
			continue // another request was faster
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		default:
			fmt.Fprintf(w, "%d\n", n)
		}
		return
	}
}

func (i *instance) increment(ctx context.Context, term *recipes.Lease) (int, error) {
	ctx, cancel := term.Bind(ctx) // the request ends when the term does
	defer cancel()
	data, stat, err := i.client.Get(ctx, countPath)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(string(data))
	if err != nil {
		return 0, err
	}
	_, err = term.Multi(ctx, &zk.SetDataRequest{Path: countPath, Data: []byte(strconv.Itoa(n + 1)), Version: stat.Version})
	return n + 1, err
}
