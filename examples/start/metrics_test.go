package main

import (
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// said is a channel of what the log says.
type said chan string

func (s said) Write(line []byte) (int, error) {
	s <- string(line)
	return len(line), nil
}

// Nobody asks for metrics, or their address is in use, as by a second program
// on the host: the program goes on. It once ended, without a release of its
// lock, and without an address it listened on port 80.
func TestMetricsEndNoProgram(t *testing.T) {
	lines := make(said)
	log.SetOutput(lines)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })

	t.Setenv("METRICS", "")
	metrics()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, pattern := http.DefaultServeMux.Handler(request); pattern != "" {
		t.Errorf("without METRICS, %s is served", pattern)
	}

	prometheus.DefaultRegisterer = prometheus.NewRegistry() // as in another program
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	t.Setenv("METRICS", other.Addr().String())
	metrics()
	if line := <-lines; !strings.Contains(line, other.Addr().String()) {
		t.Errorf("logged: %s", line)
	}
}
