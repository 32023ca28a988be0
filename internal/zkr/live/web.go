package live

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/inspect/page"
	"github.com/zkrecipes/zkrecipes/internal/headers"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

func newWeb(to *cli.Ensemble) *cobra.Command {
	w := web{listen: "127.0.0.1:8090"}
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "web [flags] [PATH...]",
		Short:                 "Show locks, deadlocks and servers in a browser",
		Long: `Serves a page that shows all locks, elections and semaphores at and below each PATH, by
default /: who holds, who waits and since when, a drawing and a timeline of each line,
deadlocks and the servers. Nothing on the page writes to the ensemble.

It prints a link with a token, which the browser exchanges for a cookie: without one it
shows nothing. Whoever has the link may look until zkr ends. The page is served without
TLS: to look from another machine, use ssh -L, or a proxy that has TLS, and name its host
with --host. Requests that name another host are refused.

--data also shows the data of holders and waiters, up to 1 kB of each. --history looks
every 5 seconds while nobody looks, so that timelines have no gaps.

While somebody looks, it looks once a second, at most 500 requests a second, as zkr top.`,
		Example: `  zkr web
  zkr web --listen 127.0.0.1:0 /app/locks
  zkr web --host zk.example.com --history /app`,
		Args: cli.Paths(0, math.MaxInt),
		RunE: func(cmd *cobra.Command, args []string) error {
			handler, err := w.handler(to, args)
			if err != nil {
				return err
			}
			return to.CatchSignals().UntilSignal(context.Background(), func(ctx context.Context, began func()) error {
				return w.serve(ctx, handler, cmd.OutOrStdout(), cmd.ErrOrStderr(), began)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&w.listen, "listen", w.listen, "address to serve at, with the port 0 for any")
	flags.StringArrayVar(&w.hosts, "host", nil, "another name by which browsers reach it, as behind a proxy; may be repeated")
	flags.BoolVar(&w.data, "data", false, "show the data of holders and waiters")
	flags.BoolVar(&w.history, "history", false, "look every 5s while nobody looks")
	return cmd
}

// web serves the page.
type web struct {
	listen        string
	hosts         []string
	data, history bool
}

// handler returns the page, and what lets only those see it who have the token.
func (w *web) handler(to *cli.Ensemble, paths []string) (*gate, error) {
	client, err := to.Options()
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(w.listen)
	if err != nil {
		return nil, cli.Usage("--listen %s: want host:port", w.listen)
	}
	if host == "" && len(w.hosts) == 0 {
		return nil, cli.Usage("--listen %s: want a host, or --host with the name by which browsers reach it", w.listen)
	}
	opts := []page.Option{page.WithClient(client...)}
	if len(paths) > 0 {
		opts = append(opts, page.WithRoots(paths...))
	}
	if w.data {
		opts = append(opts, page.WithData())
	}
	if w.history {
		opts = append(opts, page.WithHistory())
	}
	return newGate(page.New(to.Servers, opts...), hostsOf(host, w.hosts)), nil
}

// hostsOf returns the names that a request may give its host. A browser on a
// local address may also say localhost.
func hostsOf(listen string, more []string) headers.Hosts {
	listen = strings.ToLower(listen)
	all := headers.Hosts{listen: true}
	if address, err := netip.ParseAddr(listen); listen == "localhost" || err == nil && address.IsLoopback() {
		for _, name := range []string{"localhost", "127.0.0.1", "::1"} {
			all[name] = true
		}
	}
	for _, name := range more {
		all[strings.ToLower(name)] = true
	}
	return all
}

// serve serves until ctx ends.
func (w *web) serve(ctx context.Context, g *gate, out, errs io.Writer, began func()) error {
	defer g.page.Close()
	listener, err := net.Listen("tcp", w.listen)
	if err != nil {
		return cli.Failed(err)
	}
	address := listener.Addr().(*net.TCPAddr)
	g.hosts[address.IP.String()] = true // the link has it
	if !address.IP.IsLoopback() {
		fmt.Fprintln(errs, "zkr: the page and its token are sent without TLS")
	}
	g.cookie = fmt.Sprintf("zkr_web_%d", address.Port)
	server := &http.Server{Handler: g, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	server.RegisterOnShutdown(g.page.Close)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }() // ends with server
	began()
	if _, err := fmt.Fprintf(out, "http://%s/#%s\n", address, g.token); err != nil {
		server.Close()
		return cli.Failed(err)
	}
	select {
	case err := <-served:
		return cli.Failed(err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := server.Shutdown(last); err != nil {
		server.Close()
	}
	return context.Cause(ctx)
}
