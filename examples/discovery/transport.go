package main

import (
	"net"
	"net/http"
	"strconv"

	"github.com/zkrecipes/zkrecipes/recipes/discovery"
)

// transport sends each request to an instance of a service: it is the Transport
// of an http.Client. An instance that does not answer twice in a short time is
// left out for a while.
type transport struct {
	service *discovery.Service[details]
}

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	one, err := t.service.Pick(r.Context())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as every RoundTripper has to
		}
		return nil, err
	}
	out := r.Clone(r.Context())
	out.URL.Host = net.JoinHostPort(one.Address, strconv.Itoa(one.Port))
	out.Host = r.URL.Host // the service's name
	response, err := http.DefaultTransport.RoundTrip(out)
	if err != nil && r.Context().Err() == nil {
		one.Failed()
	}
	return response, err
}
