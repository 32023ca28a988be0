package page_test

import (
	"net/http"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect/page"
)

// A service shows its locks, and what it does itself, at /debug/zk/. Whoever
// reaches that address may look: what guards the service's other pages of this
// kind must guard this one, too.
func Example() {
	const servers = "zk1:2181,zk2:2181,zk3:2181"
	watch := page.NewWatch()
	client, err := framework.New(servers, watch.Option(), framework.WithLogger(watch.Tee(nil)))
	if err != nil {
		panic(err)
	}
	defer client.Close()
	p := page.New(servers, page.WithRoots("/app"), page.WithHosts("admin.example.com"), page.WithWatch(watch))
	mux := http.NewServeMux()
	mux.Handle("/debug/zk/", http.StripPrefix("/debug/zk", p))
	server := &http.Server{Addr: ":8080", Handler: mux}
	server.RegisterOnShutdown(p.Close) // else a shutdown waits for the streams
	_ = server.ListenAndServe()
}
