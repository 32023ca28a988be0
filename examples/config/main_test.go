package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The command as a user runs it: a configuration with an error in it leaves the
// last good one in use.
func TestExample(t *testing.T) {
	ens := testutil.Start(t, testutil.WithMembers(3))
	var out strings.Builder
	if err := run(t.Context(), ens.Servers(), "", &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{"4 workers", "8 workers", "8 workers, since ", "8 workers, since ", "16 workers"} {
		if exact := !strings.HasSuffix(want, " "); !strings.HasPrefix(lines[i], want) || exact && lines[i] != want {
			t.Errorf("line %d is %q, want %q", i, lines[i], want)
		}
	}
}

// In an outage the program keeps the configuration that it has, and has the
// new one soon after. In virtual time: each sleep takes no time.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := testutil.Start(t, testutil.InMemory())
		open := func(name string) *framework.Client {
			client, err := framework.New(ens.Servers(), framework.WithDialer(ens.ClientNet(name).Dial))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close() })
			return client
		}
		operator := open("operator")
		publish := func(text string) {
			if _, err := operator.Set(t.Context(), path, []byte(text), -1); err != nil {
				t.Fatal(err)
			}
		}
		if err := operator.MakePersistentPath(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		publish(published[0])
		value, stop, err := follow(t.Context(), open("program"), "")
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		uses := func(want int) {
			t.Helper()
			if now, err := value.Get(); err != nil || now.Workers != want {
				t.Errorf("it uses %+v, %v, want %d workers", now, err, want)
			}
		}
		uses(4)
		ens.ClientNet("program").Cut()
		publish(published[1])
		time.Sleep(time.Hour) // its session expires
		uses(4)
		ens.ClientNet("program").Heal()
		time.Sleep(30 * time.Second)
		uses(8)
	})
}

// The program starts while no server answers, and uses the configuration that
// the one before it has kept. A second after there is a connection it uses the
// one that was published in between. In virtual time: each sleep takes no time.
func TestStartWithoutAnEnsemble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := testutil.Start(t, testutil.InMemory())
		file := filepath.Join(t.TempDir(), "snapshot")
		start := func(name string) (*framework.Client, *cache.Value[config], func()) {
			client, err := framework.New(ens.Servers(), framework.WithDialer(ens.ClientNet(name).Dial))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close() })
			value, stop, err := follow(t.Context(), client, file)
			if err != nil {
				t.Fatal(err)
			}
			return client, value, stop
		}
		operator, _, stop := start("operator")
		if err := operator.MakePersistentPath(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		publish := func(text string) {
			if _, err := operator.Set(t.Context(), path, []byte(text), -1); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		publish(published[0])
		stop()
		publish(published[1])
		time.Sleep(time.Hour)

		ens.ClientNet("program").Cut()
		client, value, stop := start("program")
		defer stop()
		time.Sleep(time.Hour)
		if now, err := value.Get(); err != nil || now.Workers != 4 {
			t.Errorf("without an ensemble it uses %+v, %v, want 4 workers", now, err)
		}
		ens.ClientNet("program").Heal()
		if err := client.WaitConnected(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if now, err := value.Get(); err != nil || now.Workers != 8 {
			t.Errorf("a second after there is one it uses %+v, %v, want 8 workers", now, err)
		}
	})
}

// The command starts again, with its snapshot, while nothing listens at the
// address. It says the configuration that it had, and once there is an ensemble
// at that address it goes on with the new ones.
func TestTheCommandStartsWithoutAnEnsemble(t *testing.T) {
	ens := testutil.Start(t)
	file := filepath.Join(t.TempDir(), "snapshot")
	if err := run(t.Context(), ens.Servers(), file, io.Discard); err != nil {
		t.Fatal(err)
	}
	if err := ens.Stop(0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, ens.Servers(), file, in)
		_ = in.CloseWithError(err)
		ended <- err
	}()
	lines := bufio.NewScanner(out)
	says := func(want string) {
		t.Helper()
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), want) {
			t.Fatalf("it says %q, %v, want %q", lines.Text(), lines.Err(), want)
		}
	}
	says("16 workers")
	if conn, err := net.Dial("tcp", ens.Servers()); err == nil {
		_ = conn.Close()
		t.Error("somebody listens")
	}
	if err := ens.Restart(0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"8 workers", "8 workers, since ", "8 workers, since ", "16 workers"} {
		says(want)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A leader's write is held up, so the leader gives its term up. Another one
// leads and publishes something newer. The write of the first one, which comes
// then, changes nothing, although its session lives. Later the other one is cut
// off, and the first one leads again.
func TestADeposedLeaderCannotPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := testutil.Start(t, testutil.InMemory(), testutil.WithLogger(func(string, ...any) {}))
		ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
		var all sync.WaitGroup
		start := func(name, text string) *source {
			client, err := framework.New(ens.Servers(), framework.WithDialer(ens.ClientNet(name).Dial))
			if err != nil {
				t.Fatal(err)
			}
			s := &source{text: text}
			all.Go(func() {
				defer client.Close()
				if err := publish(ctx, client, s); ctx.Err() == nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Second) // it leads, or stands in line
			return s
		}
		defer all.Wait()
		defer end()
		published := func(want string) {
			t.Helper()
			if data, _ := ens.Data(path); string(data) != want {
				t.Errorf("%q is published, want %q", data, want)
			}
		}
		first, second := start("first", "1"), start("second", "1")
		published("1")

		release := make(chan struct{})
		var held atomic.Bool
		defer ens.Control(func(r testutil.Request) testutil.Action {
			if r.Does(testutil.OpSetData, path) && held.CompareAndSwap(false, true) {
				return testutil.Hold(release)
			}
			return testutil.Pass()
		})()
		first.set("2")
		synctest.Wait()
		if !held.Load() {
			t.Fatal("the leader has not written")
		}
		second.set("3")
		time.Sleep(20 * time.Second)
		published("3")
		close(release)
		time.Sleep(time.Minute)
		published("3")

		first.set("4")
		ens.ClientNet("second").Cut()
		time.Sleep(5 * time.Second)
		published("3") // the session of the second one lives
		time.Sleep(15 * time.Second)
		published("4")
		ens.ClientNet("second").Heal()
		time.Sleep(time.Minute)
		published("4")
	})
}
