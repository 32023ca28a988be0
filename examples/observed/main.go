// Command observed is an HTTP service with metrics and traces. It takes a lock
// in each request and takes part in an election. It has metrics for Prometheus,
// traces and metrics over OTLP, and a log by log/slog.
//
//	go run .   # starts an ensemble in memory, and makes test traffic
//
//	curl -X POST http://ADDRESS/items/apple/sell # takes the lock of the item
//	curl http://ADDRESS/metrics
//	curl http://ADDRESS/healthz # is it alive?
//	curl http://ADDRESS/readyz  # can it take requests?
//
// If ZKR_SERVERS is set, it uses that ensemble. If OTEL_EXPORTER_OTLP_ENDPOINT
// is set, it exports spans and metrics there. Otherwise it writes its spans to
// its log. OTEL_SERVICE_NAME is the name of the service in them, "observed" by
// default. It listens at 127.0.0.1:8080, or at its argument.
package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/testutil"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := run(ctx, log); err != nil {
		log.Error("ended", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, log *slog.Logger) (err error) {
	address := "127.0.0.1:8080"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	servers := os.Getenv("ZKR_SERVERS")
	if servers == "" {
		ens, err := testutil.New(testutil.WithMembers(3))
		if err != nil {
			return err
		}
		defer ens.Close()
		servers = ens.Servers()
		go traffic(ctx, "http://"+listener.Addr().String())
	}
	tel, err := newTelemetry(ctx, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tel.close(ctx)) }()
	return serve(ctx, servers, listener, tel, log)
}

// traffic sells an apple every other second, so that there is something to see.
func traffic(ctx context.Context, url string) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(2 * time.Second):
		}
		if answer, err := http.Post(url+"/items/apple/sell", "", nil); err == nil {
			_ = answer.Body.Close()
		}
	}
}
