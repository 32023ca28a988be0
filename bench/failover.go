package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/guardian"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// The part failover kills the holders of locks, and measures when the next in
// line has each.
const (
	failoverSession = 10 * time.Second // of all peers
	failoverKills   = 10               // of each peer, in a round
)

// holder acquires one lock at each run, and keeps it until its process ends.
type holder struct {
	acquire func(context.Context) error
	end     func() error
}

func (h *holder) run(ctx context.Context, _ work, _ time.Duration) (outcome, error) {
	began := time.Now()
	err := h.acquire(ctx)
	return outcome{cycles: 1, took: time.Since(began)}, err
}

func (h *holder) close() { _ = h.end() } // the servers are stopped next

// Names of our holders.
const (
	guardedHolder = ours + ", with a guardian"
	plainHolder   = ours + ", no guardian"
)

// startHolder starts one of ours, with a guardian or without.
func startHolder(guarded bool) func(context.Context, place) (peer, error) {
	return func(ctx context.Context, at place) (peer, error) {
		to, err := wayTo(at.address)
		if err != nil {
			return nil, err
		}
		opts, err := to.options(false)
		if err != nil {
			return nil, err
		}
		opts = append(opts, framework.WithSessionTimeout(failoverSession))
		if guarded {
			program, err := os.Executable()
			if err != nil {
				return nil, err
			}
			g, err := guardian.Start(exec.Command(program, guardFlag, at.address))
			if err != nil {
				return nil, err
			}
			opts = append(opts, g.Options()...)
		}
		c, err := framework.New(to.Servers, opts...)
		if err != nil {
			return nil, err
		}
		m, err := locks.NewMutex(c, at.root)
		if err != nil {
			return nil, err
		}
		acquire := func(ctx context.Context) error {
			_, err := m.Acquire(ctx)
			return err
		}
		return &holder{acquire, c.Close}, c.WaitConnected(ctx)
	}
}

func startEtcdHolder(ctx context.Context, at place) (peer, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{at.address}, DialTimeout: patience, Logger: zap.NewNop(), Context: ctx})
	if err != nil {
		return nil, err
	}
	s, err := concurrency.NewSession(c, concurrency.WithTTL(int(failoverSession.Seconds())))
	if err != nil {
		return nil, err
	}
	return &holder{concurrency.NewMutex(s, at.root).Lock, c.Close}, nil
}

// guardFlag makes this program the guardian of the process that has started it.
const guardFlag = "-guard"

func guard(address string) error {
	to, err := wayTo(address)
	if err != nil {
		return err
	}
	opts, err := to.options(true)
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	socket, err := net.FileConn(os.NewFile(3, "the other process"))
	if err != nil {
		return err
	}
	return guardian.Serve(socket.(*net.UnixConn), []guardian.Ensemble{{Servers: to.Servers, Options: opts}}, 0, nil)
}

// failover measures all peers at the same time: they mostly wait.
func (o *options) failover(ctx context.Context, out *page) (err error) {
	s, err := o.newSite(1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	var missing []string
	var chains []*chain
	defer func() {
		for _, c := range chains {
			c.close()
		}
	}()
	for _, e := range entries {
		if !e.in("failover") || len(chains) > 0 && !o.only.MatchString(e.name) {
			continue
		}
		on, err := e.server(s, ctx)
		c := &chain{entry: e}
		if err == nil {
			c.at = s.place(on)
			c.holder, err = c.begin(ctx)
		}
		if errors.Is(err, errMissing) {
			missing = append(missing, fmt.Sprintf("\nNot measured: %s: %v.\n", e.name, err))
			continue
		}
		if err != nil {
			return fmt.Errorf("start %s: %w", e.name, err)
		}
		chains = append(chains, c)
		if _, err := c.holder.run(ctx, acquire, 0); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	times := make([][]time.Duration, len(chains))
	err = atOnce(len(chains), func(i int) error {
		c := chains[i]
		for range o.rounds * failoverKills {
			took, err := c.kill(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			fmt.Fprintf(os.Stderr, "%s: %v\n", c.name, took)
			times[i] = append(times[i], took)
		}
		return nil
	})
	if err != nil {
		return err
	}
	var text strings.Builder
	text.WriteString("| seconds | least | median | most |\n|---|---:|---:|---:|\n")
	for i, all := range times {
		least, most := slices.Min(all).Seconds(), slices.Max(all).Seconds()
		fmt.Fprintf(&text, "| %s | %s | %s | %s |\n", chains[i].name, significant(least), significant(middle(all, time.Duration.Seconds)), significant(most))
	}
	text.WriteString(strings.Join(missing, ""))
	about := fmt.Sprintf("%s; %d kills of each; %s; the session timeout is %v, and so is the time to live of etcd's lease.\n\n",
		machine(), o.rounds*failoverKills, ensembleOf(1, o.sync), failoverSession)
	out.tables = append(out.tables, table{name: "failover", text: about + text.String(), short: text.String()})
	return nil
}

// chain is the processes of a peer that hold a lock, one after the other.
type chain struct {
	entry
	at     place
	holder *foreign
}

// acquire is what a process is asked for: it is work for one thread.
var acquire = work{threads: 1, locks: 1}

// begin starts a process, which does not acquire yet.
func (c *chain) begin(ctx context.Context) (*foreign, error) {
	p, err := c.startAlone(ctx, c.at)
	if err != nil {
		return nil, err
	}
	return p.(*foreign), nil
}

// kill kills the holder, behind which another process waits, and returns when
// that one has the lock.
func (c *chain) kill(ctx context.Context) (took time.Duration, err error) {
	next, err := c.begin(ctx)
	if err != nil {
		return 0, err
	}
	var at time.Time
	granted := make(chan error, 1)
	go func() { // ends with the process, or before
		_, err := next.run(ctx, acquire, 0)
		at = time.Now()
		granted <- err
	}()
	// It joins the line. The random part varies how old the holder's last
	// heartbeat is.
	err = pause(ctx, 2*time.Second+rand.N(failoverSession/3))
	began := time.Now()
	c.holder.process.kill()
	c.holder.close()
	c.holder = next
	err = errors.Join(err, <-granted)
	return at.Sub(began), err
}

func (c *chain) close() {
	if c.holder != nil {
		c.holder.process.kill() // it would end only once it is asked for something
		c.holder.close()
	}
}
