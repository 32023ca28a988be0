package main

import (
	"context"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
)

// meeting is members of double barriers of this library. A cycle is a round:
// all threads of a work enter and leave. Its locks are the clients that the
// threads share. Each round has a path of its own, because members of Curator
// that leave one round late spoil the next.
type meeting struct {
	place
	clients []*framework.Client
	rounds  int
}

func startMeeting(_ context.Context, at place) (peer, error) { return &meeting{place: at}, nil }

func (m *meeting) run(ctx context.Context, w work, d time.Duration) (outcome, error) {
	for len(m.clients) < w.locks {
		c, err := framework.New(m.address, framework.WithSessionTimeout(session))
		if err != nil {
			return outcome{}, err
		}
		m.clients = append(m.clients, c)
		if err := c.WaitConnected(ctx); err != nil {
			return outcome{}, err
		}
	}
	return drive(ctx, work{threads: 1, locks: 1}, d, func(ctx context.Context, _, _ int) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute) // or the others would wait for one that has failed
		defer cancel()
		m.rounds++
		return atOnce(w.threads, func(i int) error {
			d, err := barrier.NewDouble(m.clients[i%w.locks], fmt.Sprintf("%s/%d", m.root, m.rounds), w.threads)
			if err != nil {
				return err
			}
			inside, err := d.Enter(ctx)
			if err != nil {
				return err
			}
			return inside.Leave(ctx)
		})
	})
}

func (m *meeting) close() {
	_ = each(len(m.clients), func(i int) error { return m.clients[i].Close() }) // the servers are stopped next
}
