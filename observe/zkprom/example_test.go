package zkprom_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/observe/zkprom"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Metrics of a client, served to Prometheus.
func Example() {
	if err := serve(); err != nil {
		fmt.Println(err)
	}
}

// serve is the README's program, line by line.
func serve() error {
	metrics, err := zkprom.New() // registers with prometheus.DefaultRegisterer
	if err != nil {
		return err
	}
	client, err := framework.New("zk1:2181,zk2:2181,zk3:2181", metrics.Option())
	if err != nil {
		return err
	}
	defer client.Close()
	http.Handle("/metrics", promhttp.Handler())
	return http.ListenAndServe(":2112", nil)
}

// Each lock has separate series, and so does each customer, but not each
// order of a customer.
func ExampleLockLabel() {
	registry := prometheus.NewRegistry()
	metrics, err := zkprom.New(zkprom.Registerer(registry), zkprom.LockLabel(func(path string) string {
		if customer, ok := strings.CutPrefix(path, "/orders/"); ok {
			customer, _, _ = strings.Cut(customer, "/")
			return "/orders/" + customer
		}
		return path
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	ens, err := testutil.New()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ens.Close()
	client, err := framework.New(ens.Servers(), metrics.Option())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	mutex, err := locks.NewMutex(client, "/orders/smith/1234")
	if err != nil {
		fmt.Println(err)
		return
	}
	err = recipes.Do(context.Background(), mutex, func(context.Context, *recipes.Lease) error {
		return printHeld(registry)
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: held of /orders/smith: 1
}

func printHeld(g prometheus.Gatherer) error {
	families, err := g.Gather()
	if err != nil {
		return err
	}
	for _, family := range families {
		if family.GetName() != "zkrecipes_held" {
			continue
		}
		for _, metric := range family.GetMetric() {
			fmt.Printf("held of %s: %v\n", metric.GetLabel()[0].GetValue(), metric.GetGauge().GetValue())
		}
	}
	return nil
}
