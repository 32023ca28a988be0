package run

import (
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
)

// registerWith parses the arguments of zkr register.
func registerWith(to *cli.Ensemble, args ...string) (*registerCommand, error) {
	to.SessionTimeout = framework.DefaultSessionTimeout
	r := &registerCommand{joinCommand: joinCommand{jobCommand: jobCommand{to: to}, layout: cli.GroupLayout()}}
	cmd := &cobra.Command{Use: "register", Args: r.parse, SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error { return nil }}
	r.addFlags(cmd)
	cmd.SetArgs(args)
	return r, cmd.Execute()
}

// The instance is found while zkr runs, over an expired session, and withdrawn
// before its command hears of SIGTERM, as by zkr join.
func TestRegister(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		to := &cli.Ensemble{Servers: w.Servers(), Dial: w.ClientNet("zkr").Dial, ConnectTimeout: 10 * time.Second}
		r, err := registerWith(to, "billing", "--address", "10.0.0.7", "--port", "8080", "--ssl-port", "8443",
			"--payload", `{"@class":"com.acme.Details", "zone":"b"}`, "--uri", "{scheme}://{address}:{ssl-port}/v2", "--", "true")
		if err != nil {
			t.Fatal(err)
		}
		const path = "/services/billing/10.0.0.7:8080"
		ended, heard := make(chan struct{}), make(chan bool, 10)
		started := make(chan struct{})
		r.start = func(string, []string, []string) (*job, error) {
			close(started)
			return &job{ended: ended, signal: func(os.Signal) error { heard <- w.Exists(path); return nil }}, nil
		}
		v := startVirtual(r.run)
		bubble.Await(t, "the command starts", started)
		type details struct{ Zone string }
		d, err := discovery.New(w.Connect("reader"), "/services", discovery.JSON[details]("com.acme.Details"))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			all, err := d.Instances(t.Context(), "billing")
			if err != nil || len(all) != 1 || all[0].Payload.Zone != "b" || all[0].URI(nil) != "https://10.0.0.7:8443/v2" || time.Since(all[0].Registered) > time.Minute {
				t.Errorf("%+v, %v", all, err)
			}
			stat, _ := w.Stat(path)
			if err := w.ExpireSession(stat.EphemeralOwner); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * bubble.Timeout)
		}
		v.in.Signals.Arrived <- syscall.SIGTERM
		if bubble.Await(t, "the signal", heard) {
			t.Error("the command hears of SIGTERM while its instance is there")
		}
		close(ended)
		if code, err := v.end(t); code != 0 {
			t.Errorf("exit code %d, %v", code, err)
		}
		w.NothingLeft("/services/billing")
	})
}

// What is wrong is said before anything is done; the id and the address have
// defaults.
func TestRegisterUsage(t *testing.T) {
	for want, args := range map[string]string{
		"want one NAME, got 0":          "--port 1",
		"want one NAME, got 2":          "a b --port 1",
		`NAME "a/b": want a name`:       "a/b --port 1",
		"want --port, --ssl-port or":    "a",
		`--id "a/b"`:                    "a --id a/b",
		"must be from 1 to 65535":       "a --port 65536",
		"--ssl-port -1":                 "a --id x --ssl-port -1",
		"--payload \"{\": want JSON":    "a --port 1 --payload {",
		"--uri":                         "a --port 1 --uri {x",
		"--root":                        "a --port 1 --root x",
		"..":                            ".. --port 1",
		"/zookeeper is for the servers": "a --port 1 --root /zookeeper",
		"--json: only without":          "a --port 1 --json -- true",
	} {
		if _, err := registerWith(&cli.Ensemble{}, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
	r, err := registerWith(&cli.Ensemble{}, "a", "--ssl-port", "8443", "--root", "/")
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	i, err := discovery.JSON[json.RawMessage]("").Decode([]byte(r.data))
	if err != nil || i.Address != host || i.ID != host+":8443" || r.paths[0] != "/a/"+i.ID || i.Raw != nil {
		t.Errorf("%+v, %v, at %v", i, err, r.paths)
	}
}
