package main

import (
	"log"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/observe/zkprom"
)

// metrics serves metrics at the address METRICS, if there is one.
func metrics() framework.Option {
	counted, err := zkprom.New()
	if err != nil {
		log.Fatal(err)
	}
	if address := os.Getenv("METRICS"); address != "" {
		http.Handle("/metrics", promhttp.Handler())
		go func() { log.Print(http.ListenAndServe(address, nil)) }() // not Fatal: the lock may be held
	}
	return counted.Option()
}
