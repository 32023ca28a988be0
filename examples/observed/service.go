package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

const (
	basePath = "/examples/observed"
	soldPath = basePath + "/sold"
	// How long a request waits for the lock of its item.
	patience = 10 * time.Second
)

// service counts what was sold. One of its instances leads.
type service struct {
	client *framework.Client
	locks  *locks.Keyed
	tracer trace.Tracer
	log    *slog.Logger
}

// serve answers requests, and is a candidate in the election, until ctx ends.
func serve(ctx context.Context, servers string, listener net.Listener, tel *telemetry, log *slog.Logger) error {
	client, err := framework.New(servers, tel.options(log)...)
	if err != nil {
		return err
	}
	defer client.Close()
	keyed, err := locks.NewKeyed(client, basePath+"/locks")
	if err != nil {
		return err
	}
	election, err := leader.New(client, basePath+"/leader", leader.WithID(listener.Addr().String()))
	if err != nil {
		return err
	}
	s := &service{client, keyed, tel.traces.Tracer("observed"), log}
	log.Info("serving", "metrics", "http://"+listener.Addr().String()+"/metrics", "servers", servers)

	leading, resign := context.WithCancel(context.WithoutCancel(ctx))
	defer resign()
	led := make(chan error, 1)
	go func() { led <- election.Run(leading, s.lead) }()

	mux := http.NewServeMux()
	mux.HandleFunc("POST /items/{item}/sell", s.traced("POST /items/{item}/sell", s.sell))
	mux.Handle("GET /metrics", promhttp.HandlerFor(tel.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case err := <-led: // Run has failed for good: see leader.Election.Run
		return errors.Join(err, server.Close())
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err = server.Shutdown(drain)
	resign()
	if end := <-led; !errors.Is(end, context.Canceled) {
		err = errors.Join(err, end)
	}
	return err
}

// lead is one term.
func (s *service) lead(ctx context.Context, term *recipes.Lease) error {
	s.log.Info("leading", "token", term.Token())
	<-ctx.Done()
	s.log.Info("no longer leading", "cause", context.Cause(ctx))
	return nil
}

// traced answers a request in a span, which is a child of the client's if it
// has sent one.
func (s *service) traced(name string, answer func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	from := propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	return func(w http.ResponseWriter, r *http.Request) {
		ctx := from.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := s.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		err := answer(w, r.WithContext(ctx))
		if err == nil {
			return
		}
		span.SetStatus(codes.Error, err.Error())
		s.log.WarnContext(ctx, "cannot answer", "request", name, "error", err)
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

// sell adds one to the count of an item, under the lock of that item.
func (s *service) sell(w http.ResponseWriter, r *http.Request) error {
	item := r.PathValue("item")
	lock := recipes.Within(s.locks.Key(item), patience)
	return recipes.Do(r.Context(), lock, func(ctx context.Context, lease *recipes.Lease) error {
		ctx, span := s.tracer.Start(ctx, "count")
		defer span.End()
		sold, err := s.count(ctx, lease, soldPath+"/"+item)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%d\n", sold)
		return err
	})
}

// count adds one to the number in a znode. The write is guarded by the lease:
// it is not applied once the lock is another's.
func (s *service) count(ctx context.Context, lease *recipes.Lease, path string) (int, error) {
	data, stat, err := s.client.Get(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		if err := s.client.MakePersistentPath(ctx, soldPath); err != nil { // not at the start, where no server may be up
			return 0, err
		}
		_, err = lease.Multi(ctx, &zk.CreateRequest{Path: path, Data: []byte("1"), Acl: zk.WorldACL(zk.PermAll)})
		return 1, err
	}
	if err != nil {
		return 0, err
	}
	sold, err := strconv.Atoi(string(data))
	if err != nil {
		return 0, err
	}
	_, err = lease.Multi(ctx, &zk.SetDataRequest{Path: path, Data: []byte(strconv.Itoa(sold + 1)), Version: stat.Version})
	return sold + 1, err
}
