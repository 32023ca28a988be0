package main

import (
	"log"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/observe/zkprom"
)

// metrics serves metrics at the address METRICS.
func metrics() framework.Option {
	counted, err := zkprom.New()
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("/metrics", promhttp.Handler())
	go func() { log.Fatal(http.ListenAndServe(os.Getenv("METRICS"), nil)) }()
	return counted.Option()
}
