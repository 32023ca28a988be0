package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/cycles"
	"github.com/zkrecipes/zkrecipes/internal/test/measure"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// adding is this library's counters. A cycle is an addition, and each lock of a
// work is a counter. If a work has more counters than threads, all are used
// once and then pause until their values are forgotten; these pauses do not
// count.
type adding struct {
	client *framework.Client
	root   string
	add    func(context.Context, *counter.Counter) error
}

// forgotten is longer than a counter relies on the last value.
const forgotten = 1100 * time.Millisecond

func add(ctx context.Context, n *counter.Counter) error {
	_, err := n.Add(ctx, 1)
	return err
}

var ids atomic.Int64

func addOnce(ctx context.Context, n *counter.Counter) error {
	_, err := n.AddOnce(ctx, fmt.Sprintf("%d-%d", os.Getpid(), ids.Add(1)), 1)
	return err
}

func startAdding(add func(context.Context, *counter.Counter) error) func(context.Context, place) (peer, error) {
	return func(ctx context.Context, at place) (peer, error) {
		c, err := framework.New(at.address, framework.WithSessionTimeout(session))
		if err != nil {
			return nil, err
		}
		return &adding{c, at.root, add}, c.WaitConnected(ctx)
	}
}

func (a *adding) run(ctx context.Context, w work, d time.Duration) (outcome, error) {
	all := make([]*counter.Counter, w.locks)
	for i := range all {
		var err error
		if all[i], err = counter.New(a.client, fmt.Sprintf("%s/%d", a.root, i)); err != nil {
			return outcome{}, err
		}
	}
	cycle := func(ctx context.Context, _, lock int) error { return a.add(ctx, all[lock]) }
	if w.locks <= w.threads {
		return drive(ctx, w, d, cycle)
	}
	got, times := outcome{evenness: 1}, new(cycles.Times)
	for got.took < d {
		if err := pause(ctx, forgotten); err != nil {
			return got, err
		}
		n, took, err := cycles.Load{Goroutines: w.threads, Locks: w.locks, Cycles: int64(w.locks), Times: times}.Run(ctx, cycle)
		if err != nil {
			return got, err
		}
		got.cycles, got.took = got.cycles+n, got.took+took
	}
	got.median, got.longest = times.Quantile(0.5), times.Quantile(1)
	return got, nil
}

func (a *adding) close() { _ = a.client.Close() } // the servers are stopped next

// bareAdding is counters without a promise: see measure.BareAdd.
type bareAdding struct{ *wire }

func startBareAdding(_ context.Context, at place) (peer, error) {
	w, err := newWire(at)
	if err != nil {
		return nil, err
	}
	return bareAdding{w}, nil
}

func (a bareAdding) run(ctx context.Context, w work, d time.Duration) (outcome, error) {
	return drive(ctx, w, d, func(_ context.Context, _, lock int) error {
		return measure.BareAdd(a.conn, fmt.Sprintf("%s/%d", a.root, lock))
	})
}

// lossEvery is how many writes of a counter are answered until one is not.
const lossEvery = 10

// lost measures by how much counters are wrong after lost answers: the
// connection breaks after the server has executed a write.
func (o *options) lost(ctx context.Context, out *page) (err error) {
	s, c, end, err := o.openGarden(ctx, 1)
	if err != nil {
		return err
	}
	defer end(&err)
	var text strings.Builder
	fmt.Fprintf(&text, "%s; %s. One thread adds; the answer to each %dth write of the counter is lost.\n\n", machine(), ensembleOf(1, o.sync), lossEvery)
	text.WriteString("| | additions that have succeeded | answers lost | the counter is wrong by |\n|---|---:|---:|---:|\n")
	for _, e := range entries {
		if !e.in("lost") {
			continue
		}
		n, answers, value, err := e.loseAnswers(ctx, s, c, 5*o.each)
		if errors.Is(err, errMissing) {
			fmt.Fprintf(&text, "| %s | - | - | - |\n", e.name)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		fmt.Fprintf(&text, "| %s | %d | %d | %d |\n", e.name, n, answers, value-n)
	}
	out.tables = append(out.tables, table{name: "lost", text: text.String()})
	return nil
}

// loseAnswers returns how many additions a peer has made, how many of their
// answers it has not received, and the value of the counter then.
func (e entry) loseAnswers(ctx context.Context, s *site, c *framework.Client, d time.Duration) (n, answers, value int64, err error) {
	at := s.place(s.running["zookeeper"])
	path := at.root + "/0"
	network := s.zk.ClientNet(e.name)
	if at.address, err = network.Listen(); err != nil {
		return 0, 0, 0, err
	}
	p, err := e.start(ctx, at)
	if err != nil {
		return 0, 0, 0, err
	}
	defer p.close()
	if _, err := p.run(ctx, work{threads: 1, locks: 1}, beforehand); err != nil {
		return 0, 0, 0, err
	}
	before, err := valueOf(ctx, c, path)
	if err != nil {
		return 0, 0, 0, err
	}
	var writes atomic.Int64
	defer network.Control(func(r testutil.Request) testutil.Action {
		if r.Does(testutil.OpSetData, path) && writes.Add(1)%lossEvery == 0 {
			return testutil.DropAfter()
		}
		return testutil.Pass()
	})()
	got, err := p.run(ctx, work{threads: 1, locks: 1}, d)
	if err != nil {
		return 0, 0, 0, err
	}
	after, err := valueOf(ctx, c, path)
	return got.cycles, writes.Load() / lossEvery, after - before, err
}

// valueOf returns the value of a counter of Curator's layout, or Kazoo's.
func valueOf(ctx context.Context, c *framework.Client, path string) (int64, error) {
	data, _, err := c.Get(ctx, path)
	if err != nil || len(data) == 8 {
		return int64(binary.BigEndian.Uint64(append(data, make([]byte, 8-len(data))...))), err
	}
	return strconv.ParseInt(string(data), 10, 64)
}

// markerAge is so short that the markers that a part has planted are old soon.
const markerAge = 10 * time.Second

// markers measures additions by AddOnce while the markers of many earlier ones
// are collected.
func (o *options) markers(ctx context.Context, out *page) (err error) {
	s, c, end, err := o.openGarden(ctx, 1)
	if err != nil {
		return err
	}
	defer end(&err)
	n, err := counter.New(c, "/counter", counter.WithMarkerAge(markerAge))
	if err != nil {
		return err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s; %s. One thread adds by AddOnce.\n\n", machine(), ensembleOf(1, o.sync))
	text.WriteString("| older markers | seconds | additions a second | median, ms | longest, ms | transactions, each addition | server's processor, s |\n|---:|---:|---:|---:|---:|---:|---:|\n")
	for i := range markerDirectories {
		if err := c.MakePersistentPath(ctx, fmt.Sprintf("/counter-once/%02x", i)); err != nil {
			return err
		}
	}
	for _, planted := range []int{0, o.znodes} {
		var old []string
		for i := range planted {
			old = append(old, fmt.Sprintf("/counter-once/%02x/old-%07d", i%markerDirectories, i))
		}
		if err := errors.Join(plant(ctx, c, old), pause(ctx, markerAge)); err != nil {
			return err
		}
		row, err := s.addWhileCollected(ctx, c, n, planted > 0)
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "| %d | %s |\n", planted, row)
	}
	out.tables = append(out.tables, table{name: "markers", text: text.String()})
	return nil
}

const markerDirectories = 256

// addWhileCollected adds until no old marker is left, and for a while if there
// are none.
func (s *site) addWhileCollected(ctx context.Context, c *framework.Client, n *counter.Counter, old bool) (row string, err error) {
	on := s.running["zookeeper"]
	before, err := on.usage()
	if err != nil {
		return "", err
	}
	adding, stop := context.WithCancel(ctx)
	defer stop()
	watched := make(chan error, 1)
	go func() {
		defer stop()
		if !old {
			watched <- pause(ctx, 4*markerAge)
			return
		}
		watched <- awaitCollected(adding, c)
	}()
	l := cycles.Load{Goroutines: 1, Locks: 1, Times: new(cycles.Times)}
	done, took, err := l.Run(adding, func(ctx context.Context, _, _ int) error { return addOnce(context.WithoutCancel(ctx), n) })
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	after, err2 := on.usage()
	row = fmt.Sprintf("%.0f | %s | %s | %s | %s | %s", took.Seconds(), significant(float64(done)/took.Seconds()),
		significant(1000*l.Times.Quantile(0.5).Seconds()), significant(1000*l.Times.Quantile(1).Seconds()),
		significant((after.transactions-before.transactions)/float64(done)), significant((after.cpu-before.cpu)/1e6))
	return row, errors.Join(err, err2, <-watched)
}

// awaitCollected returns when no planted marker is left.
func awaitCollected(ctx context.Context, c *framework.Client) error {
	for i := 0; i < markerDirectories; {
		names, _, err := c.Children(ctx, fmt.Sprintf("/counter-once/%02x", i))
		if err != nil {
			return err
		}
		i++
		for _, name := range names {
			if strings.HasPrefix(name, "old-") {
				i--
				err = pause(ctx, time.Second)
				break
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
