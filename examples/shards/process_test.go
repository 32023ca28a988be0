//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const processTimeout = 2 * time.Second // of sessions

func init() {
	roles["member"] = func(args []string) error { return memberProcess(args[0], args[1], args[2]) }
}

// Each member is a process. The real signals: SIGKILL, SIGSTOP and SIGCONT, and
// SIGTERM for the one that ends.
func TestProcesses(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, testutil.Start(t, testutil.WithMembers(3), testutil.WithTick(200*time.Millisecond), testutil.WithLogger(func(string, ...any) {})), processTimeout)
	store := httptest.NewServer(w.handler())
	defer store.Close()
	w.start = func(id string) *running { return w.startProcess(id, store.URL) }
	w.scenario()
	t.Logf("%d writes came, and late ones from %v", len(w.entries()), w.refused())
}

// startProcess starts a member as a process, and waits until it works.
func (w *world) startProcess(id, store string) *running {
	w.t.Helper()
	w.started++
	net := w.ens.ClientNet(fmt.Sprint(id, " ", w.started))
	servers, err := net.Listen()
	if err != nil {
		w.t.Fatal(err)
	}
	p := load.Start(w.t, "member", id, servers, store)
	w.await(id+" works", func() bool { return w.store.shares()[id] > 0 })
	send := func(s os.Signal) {
		if err := p.Signal(s); err != nil {
			w.t.Error(err)
		}
	}
	return &running{
		id: id,
		end: func() {
			send(syscall.SIGTERM)
			p.Expect(w.t, "done")
		},
		kill: func() { send(syscall.SIGKILL) },
		stop: func() (resume func()) {
			send(syscall.SIGSTOP)
			return func() { send(syscall.SIGCONT) }
		},
		cut: func() (heal func()) {
			net.Cut()
			return net.Heal
		},
	}
}

// memberProcess is a member until SIGTERM.
func memberProcess(id, servers, store string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	client, err := framework.New(servers, framework.WithSessionTimeout(processTimeout))
	if err != nil {
		return err
	}
	defer client.Close()
	fmt.Println("ready")
	err = join(ctx, client, id, func(ctx context.Context, shard int, token recipes.Token) error {
		for ; ctx.Err() == nil; pause(ctx, beat) {
			if err := post(ctx, store, id, shard, token); err != nil {
				return err
			}
		}
		return nil
	})
	if ctx.Err() == nil {
		return err
	}
	return nil
}

func post(ctx context.Context, store, id string, shard int, token recipes.Token) error {
	form := url.Values{"id": {id}, "shard": {strconv.Itoa(shard)}, "token": {token.String()}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, store+"?"+form.Encode(), nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}

func (w *world) handler() http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		shard, err := strconv.Atoi(r.FormValue("shard"))
		if err == nil {
			var token recipes.Token
			if token, err = recipes.ParseToken(r.FormValue("token")); err == nil {
				err = w.write(r.FormValue("id"), shard, token)
			}
		}
		if err != nil {
			http.Error(rw, err.Error(), http.StatusConflict)
		}
	})
}
