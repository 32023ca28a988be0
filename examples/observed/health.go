package main

import (
	"fmt"
	"net/http"

	"github.com/zkrecipes/zkrecipes/framework"
)

// healthz says whether this process works. It does not need the ensemble for
// that: the client reconnects, and opens another session after a loss, by
// itself. A restart during an outage would help nobody, and cost what the
// process has in memory.
func (s *service) healthz(w http.ResponseWriter, _ *http.Request) {
	state := s.client.State()
	answer(w, state, state != framework.Closed)
}

// readyz says whether this process can take requests. A sale needs a lock, so
// it needs a session with a connection. It does not need to lead: each instance
// sells.
func (s *service) readyz(w http.ResponseWriter, _ *http.Request) {
	state := s.client.State()
	answer(w, state, state == framework.Connected)
}

// answer answers a probe with the state of the client.
func answer(w http.ResponseWriter, state framework.State, ok bool) {
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = fmt.Fprintln(w, state)
}
