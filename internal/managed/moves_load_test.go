// This file moves clients to and fro while they lock and write.
package managed_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// toAndFro is what clients do whose lists change, two at a time.
type toAndFro struct {
	work                                    sync.WaitGroup
	holders, grants, losses, moves, unsures atomic.Int64
}

// client returns a client that locks and writes until ctx ends.
func (a *toAndFro) client(ctx context.Context, t *testing.T, ens *testutil.Embedded, r *rand.Rand) (*framework.Client, *testutil.ClientNet) {
	c, network := connect(t, ens, framework.WithObserver(framework.Observer{Moved: func(m framework.Move) {
		if m.Err == nil {
			a.moves.Add(1)
		}
	}}))
	network.Latency(time.Duration(r.IntN(20))*time.Millisecond, time.Duration(r.IntN(20))*time.Millisecond)
	mutex, err := locks.NewMutex(c, "/lock")
	must(t, err)
	hold := time.Duration(r.IntN(700)) * time.Millisecond
	a.work.Go(func() {
		for ctx.Err() == nil {
			if lease, err := mutex.Acquire(ctx); err == nil {
				a.grants.Add(1)
				if n := a.holders.Add(1); n != 1 {
					t.Errorf("%d holders", n)
				}
				select {
				case <-time.After(hold):
				case <-lease.Lost():
					a.losses.Add(1)
				}
				a.holders.Add(-1)
				_ = lease.Release(t.Context())
			}
		}
	})
	a.work.Go(func() {
		for ctx.Err() == nil {
			if _, err := c.Create(ctx, "/written-", nil, 3); framework.MaybeApplied(err) && ctx.Err() == nil {
				a.unsures.Add(1)
			}
			time.Sleep(30 * time.Millisecond)
		}
	})
	return c, network
}

// However often their lists change, at once and during moves, clients hold one
// lock one after the other. As long as nothing else happens they lose no lease,
// and no outcome of a write is unknown. No session is left behind.
func TestMovesToAndFro(t *testing.T) {
	for _, faults := range []bool{false, true} {
		t.Run(fmt.Sprint("faults ", faults), func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				seed := rand.Uint64()
				r := rand.New(rand.NewPCG(seed, 0))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				const n = 4
				var a toAndFro
				var clients [n]*framework.Client
				var networks [n]*testutil.ClientNet
				for i := range n {
					clients[i], networks[i] = a.client(ctx, t, ens, r)
				}
				for range 60 {
					i, member := r.IntN(n), r.IntN(3)
					list := membersOf(ens, r.Perm(3)[:1+r.IntN(3)]...)
					for range 1 + r.IntN(2) {
						a.work.Go(func() { _ = clients[i].SetServers(ctx, list) })
					}
					if faults {
						switch r.IntN(8) {
						case 0, 1:
							networks[i].Drop()
						case 2:
							must(t, ens.Pause(member))
							time.Sleep(timeout)
							must(t, ens.Resume(member))
						case 3:
							ens.Lag(member)
							time.Sleep(timeout)
							ens.Unlag(member)
						}
					}
					time.Sleep(time.Duration(r.IntN(int(timeout / 2))))
				}
				cancel()
				a.work.Wait()
				for i := range n {
					networks[i].Heal()
					must(t, clients[i].Close())
				}
				if faults {
					time.Sleep(2 * timeout) // one that was lost is left to expire if no server answers
				}
				if left := len(ens.Sessions()); left != 0 {
					t.Errorf("seed %d: %d sessions are left", seed, left)
				}
				if losses, unsures := a.losses.Load(), a.unsures.Load(); !faults && losses+unsures > 0 {
					t.Errorf("seed %d: moves have cost %d leases and %d outcomes", seed, losses, unsures)
				}
				if grants, moves := a.grants.Load(), a.moves.Load(); grants < 20 || moves < 4 {
					t.Errorf("seed %d: %d grants, %d moves", seed, grants, moves)
				}
			})
		})
	}
}
