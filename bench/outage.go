package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// herd is processes that each have many copies of the same tree.
type herd struct {
	name      string
	processes int
	clients   int // of each process
}

// herds are compared by the requests of each client. So many as ours would need
// 6 GB and half an hour with TreeCache.
var herds = []herd{{ourCopies, 4, 50}, {kazooCopies, 2, 5}}

const herdZnodes = 5000

// outage measures what copies cost after the leader was killed.
func (o *options) outage(ctx context.Context, out *page) (err error) {
	s, c, end, err := o.openGarden(ctx, 3)
	if err != nil {
		return err
	}
	defer end(&err)
	paths := tree{herdZnodes, false}.paths("/tree")
	if err := plant(ctx, c, paths); err != nil {
		return err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s; %d rounds; %s; %d znodes; the session timeout is %v.\n\n", machine(), o.rounds, ensembleOf(3, o.sync), herdZnodes, stormSession)
	text.WriteString("| | clients | requests of a client | all are current after | leases lost, at most |\n|---|---:|---:|---:|---:|\n")
	for _, h := range herds {
		var all []recovery
		for round := range o.rounds {
			got, err := h.endure(ctx, s, len(paths), paths[0])
			if err != nil {
				return fmt.Errorf("%s: %w", h.name, err)
			}
			fmt.Fprintf(os.Stderr, "round %d: %s: %+v\n", round+1, h.name, got)
			all = append(all, got)
		}
		leases := "-"
		if h.name == ourCopies {
			most := slices.MaxFunc(all, func(a, b recovery) int { return cmp.Compare(a.lost, b.lost) })
			leases = fmt.Sprintf("%.0f of %d", most.lost, h.processes*h.clients)
		}
		fmt.Fprintf(&text, "| %s | %d | %s | %s s | %s |\n", h.name, h.processes*h.clients, significant(middle(all, func(r recovery) float64 { return r.requests })),
			significant(middle(all, func(r recovery) float64 { return r.seconds })), leases)
	}
	out.tables = append(out.tables, table{name: "outage", text: text.String()})
	return nil
}

// recovery is what the end of a leader has cost.
type recovery struct {
	requests float64 // of a client
	seconds  float64 // until all copies were current
	lost     float64 // leases
}

func (h herd) endure(ctx context.Context, s *site, znodes int, root string) (got recovery, err error) {
	one, err := copierOf(h.name)
	if err != nil {
		return got, err
	}
	var sent frames
	var addresses []string
	for _, address := range strings.Split(s.zk.Servers(), ",") {
		r, err := newRelay(address, &sent)
		if err != nil {
			return got, err
		}
		defer r.close()
		addresses = append(addresses, r.address())
	}
	at := place{strings.Join(addresses, ","), root, s.dir}
	all := make([]*foreign, h.processes)
	defer func() {
		for _, p := range all {
			if p != nil {
				p.close()
			}
		}
	}()
	err = each(h.processes, func(i int) (err error) {
		if all[i], err = one.begin(ctx, at); err != nil {
			return err
		}
		_, _, err = all[i].ask(ctx, longest, fmt.Sprintf("sync %d %d", znodes, h.clients))
		return err
	})
	if err = errors.Join(err, pause(ctx, settling)); err != nil {
		return got, err
	}
	sent.begin()
	began := time.Now()
	if err := restart(ctx, s.zk, s.zk.Leader()); err != nil {
		return got, err
	}
	lost := make([]float64, h.processes)
	err = each(h.processes, func(i int) (err error) {
		_, lost[i], err = all[i].ask(ctx, longest, fmt.Sprintf("again %d 0", znodes))
		return err
	})
	got.seconds = time.Since(began).Seconds()
	for _, n := range lost {
		got.lost += n
	}
	requests, _ := sent.sum()
	got.requests = float64(requests) / float64(h.processes*h.clients)
	return got, err
}
