// Command discovery shows services that register, and a client that finds them.
// One of them stops without a word, and one withdraws before it stops. With a
// snapshot the client also finds them when it starts while no server answers.
//
//	go run ./examples/discovery                             # on an embedded ensemble
//	ZKR_SERVERS=zk1:2181 ZKR_SNAPSHOT=services.snapshot go run ./examples/discovery # on a real one
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// details is what an instance says about itself. Java programs know it by the
// name of their class.
type details struct {
	Version string `json:"version"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	servers := os.Getenv("ZKR_SERVERS")
	if servers == "" {
		ens, err := testutil.New(testutil.WithMembers(3))
		if err != nil {
			fatal(err)
		}
		defer ens.Close()
		servers = ens.Servers()
	}
	if err := run(ctx, servers, os.Getenv("ZKR_SNAPSHOT"), os.Stdout); err != nil {
		fatal(err)
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// open returns what registers and finds services. If snapshot is a file, what
// was found before is found again without a server.
func open(client *framework.Client, snapshot string) (*discovery.Discovery[details], error) {
	var opts []presence.Option
	if snapshot != "" {
		opts = append(opts, cache.WithSnapshot(snapshot))
	}
	return discovery.New(client, "/examples/services", discovery.JSON[details]("com.example.Details"), opts...)
}

func run(ctx context.Context, servers, snapshot string, out io.Writer) error {
	client, err := framework.New(servers)
	if err != nil {
		return err
	}
	defer client.Close() // which also withdraws what is still registered
	d, err := open(client, snapshot)
	if err != nil {
		return err
	}
	defer d.Close()
	billing, err := d.Service("billing") // one after the other, by default
	if err != nil {
		return err
	}
	if snapshot != "" { // it uses what it knows before it has a connection
		answered, failed := call(ctx, billing, 12)
		if _, err := fmt.Fprintf(out, "at the start: instances that answered: %d, requests that failed: %d of 12\n", answered, failed); err != nil {
			return err
		}
	}
	var all []*instance
	for range 3 {
		i, err := serve(ctx, d)
		if err != nil {
			return err
		}
		defer i.server.Close()
		all = append(all, i)
	}

	ask := func(when string) error {
		if _, err := billing.Fresh(ctx); err != nil { // only so that the example always prints the same
			return err
		}
		answered, failed := call(ctx, billing, 12)
		_, err := fmt.Fprintf(out, "%s: instances that answered: %d, requests that failed: %d of 12\n", when, answered, failed)
		return err
	}
	if err := ask("three are there"); err != nil {
		return err
	}
	if err := all[0].server.Close(); err != nil { // as in a crash: its session lives on
		return err
	}
	if err := ask("one does not answer"); err != nil {
		return err
	}
	if err := ask("it is left out"); err != nil {
		return err
	}
	if err := all[1].registration.Close(ctx); err != nil { // first it withdraws, and then it stops
		return err
	}
	if err := all[1].server.Close(); err != nil {
		return err
	}
	return ask("one has withdrawn")
}

// instance is a server, and what the registry knows of it.
type instance struct {
	server       *http.Server
	registration *discovery.Registration[details]
}

// serve starts a server, and registers it when it can answer.
func serve(ctx context.Context, d *discovery.Discovery[details]) (*instance, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	at := listener.Addr().(*net.TCPAddr)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, at) })}
	go func() { _ = server.Serve(listener) }() // ends with the server
	registration, err := d.Register(ctx, discovery.Instance[details]{
		Name: "billing", ID: at.String(), Address: at.IP.String(), Port: at.Port, Payload: details{Version: "1.0"},
	})
	if err != nil {
		_ = server.Close()
		return nil, err
	}
	return &instance{server: server, registration: registration}, nil
}

// call makes requests. It returns how many instances have answered, and how
// many requests have failed.
func call(ctx context.Context, service *discovery.Service[details], requests int) (answered, failed int) {
	client := http.Client{Transport: transport{service: service}}
	from := make(map[string]bool)
	for range requests {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://billing/", nil)
		if err != nil {
			failed++
			continue
		}
		response, err := client.Do(request)
		if err != nil {
			failed++
			continue
		}
		body, err := io.ReadAll(response.Body)
		if _ = response.Body.Close(); err != nil {
			failed++
		}
		from[string(body)] = true
	}
	return len(from), failed
}
