package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/ratelimit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// scene is a part of the demo in which clients share something.
type scene struct {
	name, title, promise string // promise is what was checked, with the number of grants
	dir                  string
	clients              []string // in the order of their arrival
	ledger
	play func(ctx context.Context, s *scene, name string) error // what one client does
	end  func(ctx context.Context) error                        // looks at the result; nil: there is nothing to look at
	all  <-chan struct{}                                        // closed when all have arrived, or the demo has failed; nobody works before
}

// lineScenes returns the scenes of locks.
func (d *demo) lineScenes() []*scene {
	return []*scene{{
		name: "mutex", title: "THE MUTEX: its holder posts to an account", dir: demoRoot + "/account",
		promise: "mutex: %d grants, never two holders, tokens strictly increasing, no posting lost",
		clients: demoClients, ledger: ledger{capacity: 1}, play: d.mutex,
	}, {
		name: "rwlock", title: "THE READ/WRITE LOCK: many read together, one writes alone", dir: demoRoot + "/config",
		promise: "read/write lock: %d grants, readers together, writers alone, first come first served",
		clients: demoClients, ledger: ledger{capacity: 2}, play: d.readersAndWriters,
	}, {
		name: "semaphore", title: "THE SEMAPHORE: 4 permits, taken one or several at a time", dir: demoRoot + "/workers",
		promise: "semaphore: %d grants, at most 4 permits taken at once",
		clients: demoClients, ledger: ledger{capacity: 4, unfenced: true}, play: d.semaphore,
	}, {
		name: "election", title: "THE ELECTION: the first in line leads", dir: demoRoot + "/office",
		promise: "election: %d terms, never two leaders, first come first served, tokens strictly increasing",
		clients: demoClients[:3], ledger: ledger{capacity: 1}, play: d.election,
	}}
}

const leaderStops, holderIsCut = 3, 7 // the grants of the mutex during which a fault occurs

// mutex posts to an account three times, in spite of faults.
func (d *demo) mutex(ctx context.Context, s *scene, name string) error {
	mutex, err := locks.NewMutex(d.clients[name], s.dir, recipes.WithData([]byte(name)))
	for posted := 0; err == nil && posted < 3; {
		var n, balance int
		var token recipes.Token
		d.say(name, "waits in line")
		err = recipes.Do(ctx, mutex, func(ctx context.Context, lease *recipes.Lease) error {
			token = lease.Token()
			n = s.take(name, 1, token)
			defer s.giveBack(name)
			others := slices.DeleteFunc(d.line(s), func(other string) bool { return other == name })
			d.say(name, "HOLDS the mutex, token %v; waiting: %s", token, cmp.Or(strings.Join(others, ", "), "nobody"))
			<-s.all
			_, balance = s.read()
			var failed error
			switch n {
			case leaderStops:
				failed = d.replaceLeader(ctx)
				// The session survives, and with it the lease.
				// Waiting makes the timeline clearer.
				_ = d.clients[name].WaitConnected(ctx)
			case holderIsCut:
				d.say("network", "the holder is cut off from every member")
				d.ensemble.ClientNet(name).Cut()
				<-ctx.Done() // work done in steps would check it
			}
			if ratelimit.Sleep(lease.Context(), demoWork) != nil {
				d.say(name, "has LOST the mutex and stops working: %v", lease.Err())
				return lease.Err()
			}
			d.say(name, "releases the mutex")
			return errors.Join(failed, s.post(balance, token))
		})
		switch lost := errors.Is(err, recipes.ErrNotHeld); {
		case lost && n == holderIsCut:
			// When another client has posted, it writes too, like a
			// program that was paused and has not noticed the loss.
			_ = d.until(ctx, func() bool { _, now := s.read(); return now > balance })
			// Were it accepted, the other's posting would be lost.
			d.say(name, "writes with its old token and is refused: %v", s.post(balance, token))
			d.ensemble.ClientNet(name).Heal()
			d.say("network", "%s can reach the ensemble again", name)
			err = nil
		case lost: // this machine stopped for long
			err = nil
		case n == holderIsCut:
			return fmt.Errorf("the lease of a client that was cut off was not lost, but ended with %v", err) //nolint:errorlint // it may be nil
		case err == nil:
			posted++
		}
	}
	return err
}

// replaceLeader stops the leader, and restarts it when another member leads.
func (d *demo) replaceLeader(ctx context.Context) error {
	old := d.ensemble.Leader()
	d.say("ensemble", "the leader, member %d, is stopped", old)
	stopped := d.ensemble.Stop(old)
	_ = d.until(ctx, func() bool { l := d.ensemble.Leader(); return l >= 0 && l != old })
	d.say("ensemble", "member %d leads", d.ensemble.Leader())
	defer d.say("ensemble", "member %d is back", old)
	return errors.Join(stopped, d.ensemble.Restart(old))
}

// readersAndWriters is the scene of the read/write lock. Two clients read
// together, one waits to write, and one that arrives later to read waits behind
// it. The writer downgrades to a reader before the next one writes.
func (d *demo) readersAndWriters(ctx context.Context, s *scene, name string) error {
	lock, err := rwlock.New(d.clients[name], s.dir, rwlock.WithHost(name), recipes.WithData([]byte(name)))
	if err != nil {
		return err
	}
	sides := map[string]recipes.Acquirer{"read": lock.Reader(), "write": lock.Writer()}
	takes := map[string]int{"read": 1, "write": s.capacity} // two read together, no more than two
	begin := func(ctx context.Context, doing string) (*recipes.Lease, error) {
		d.say(name, "waits to %s", doing)
		lease, err := sides[doing].Acquire(ctx)
		if err == nil {
			s.take(name, takes[doing], lease.Token())
			d.say(name, "may %s, token %v", doing, lease.Token())
			<-s.all
		}
		return lease, err
	}
	does := map[string][]string{"anna": {"read", "write"}, "ben": {"read"}, "carl": {"write"}, "dora": {"read"}}
	for _, doing := range does[name] {
		lease, err := begin(ctx, doing)
		if err == nil && name == "carl" {
			_ = d.until(ctx, func() bool { return slices.Contains(d.line(s), "anna") }) // behind dora, to write
			_ = ratelimit.Sleep(lease.Context(), demoWork)
			d.say(name, "downgrades, and goes on reading what it has written")
			write := lease
			lease, err = begin(write.Context(), "read")
			d.say(name, "releases the lock to write")
			doing, err = "read", errors.Join(err, write.Release(ctx))
		}
		if err != nil {
			return err
		}
		_ = ratelimit.Sleep(lease.Context(), demoWork) // if the lease is lost, its release fails
		d.say(name, "releases the lock to %s", doing)
		s.giveBack(name)
		if err := lease.Release(ctx); err != nil {
			return err
		}
	}
	return nil
}

// semaphore works two times with as many permits as the client needs. The first
// three clients take all permits, and the last one waits for three.
func (d *demo) semaphore(ctx context.Context, s *scene, name string) error {
	workers, err := semaphore.New(d.clients[name], s.dir, s.capacity, recipes.WithData([]byte(name)))
	need := map[string]int{"anna": 1, "ben": 1, "carl": 2, "dora": 3}[name]
	for shift := 0; err == nil && shift < 2; shift++ {
		d.say(name, "waits for %d", need)
		err = recipes.Do(ctx, workers.Permits(need), func(ctx context.Context, lease *recipes.Lease) error {
			s.take(name, need, lease.Token())
			defer s.giveBack(name)
			inUse, _ := s.read()
			d.say(name, "works with %d, %d left", need, s.capacity-inUse)
			<-s.all
			err := ratelimit.Sleep(ctx, demoWork)
			d.say(name, "returns %d", need)
			return err
		})
	}
	return err
}

// election is the scene in which leadership changes for three reasons: anna
// resigns and goes to the end of the line, ben is stopped, and carl is cut off.
// Then anna leads again.
func (d *demo) election(ctx context.Context, s *scene, name string) error {
	candidate, err := leader.New(d.clients[name], s.dir, leader.WithID(name))
	if err != nil {
		return err
	}
	campaign, stop := context.WithCancel(ctx)
	defer stop()
	err = candidate.Run(campaign, func(ctx context.Context, term *recipes.Lease) error {
		n := s.take(name, 1, term.Token())
		defer s.giveBack(name)
		d.say(name, "LEADS, token %v", term.Token())
		<-s.all
		_ = ratelimit.Sleep(ctx, demoWork/2) // it leads
		switch n {
		case 1:
			candidate.Resign()
		case 2:
			_ = d.until(ctx, func() bool { return slices.Contains(d.line(s), "anna") })
			d.say(name, "is stopped, like a program that gets SIGTERM")
			stop()
		case 3:
			context.AfterFunc(ctx, stop)
			d.say("network", "the leader is cut off from every member")
			d.ensemble.ClientNet(name).Cut()
		case 4:
			d.ensemble.ClientNet("carl").Heal()
			stop()
		}
		<-ctx.Done()
		d.say(name, "leads no longer: %v", context.Cause(ctx))
		return nil
	})
	if errors.Is(err, context.Canceled) { // it was stopped
		return nil
	}
	return err
}
