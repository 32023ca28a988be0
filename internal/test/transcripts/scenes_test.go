package transcripts_test

import (
	"context"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// scene is a file of testdata.
type scene struct {
	file, title, look string
	play              func(s *stage)
}

const ms = time.Millisecond

var scenes = []scene{
	{"01-acquire", "An uncontended acquire", `
A create and a list leave together, so an uncontended acquire takes one round
trip (the second one here; the first one finds no directory and makes it).
Only a lease that is held for 0.3 s watches its znode.
`, func(s *stage) {
		s.begin()
		a := s.connects("A")
		pass(98 * ms)
		first := a.acquires(a.mutex())
		pass(100 * ms)
		first.releases()
		pass(98 * ms)
		second := a.acquires(a.mutex())
		pass(400 * ms)
		second.releases()
	}},
	{"02-handoff", "A handoff in a process", `
The second goroutine waits in the process: its list, with a watch, shows that
no other process is in line. So the release of the first sends nothing, and
the lock is passed on. Only the third number of the token grows.
`, func(s *stage) {
		s.has("/lock")
		a := s.connects("A")
		m := a.mutex()
		s.begin()
		one := a.goroutine(1, "goroutine 1: ", m)
		pass(100 * ms)
		two := a.goroutine(2, "goroutine 2: ", m)
		pass(100 * ms)
		one.releases()
		pass(100 * ms)
		two.releases()
	}},
	{"03-three-waiters", "Three waiters and a release", `
A waiter watches its own znode and the two directly ahead. The deletion of the
znode ahead grants B without another list. C is notified too, since it would
be next if B left first. D is not: a release wakes at most two clients.
`, func(s *stage) {
		s.has("/lock")
		a, b, c, d := s.connects("A"), s.connects("B"), s.connects("C"), s.connects("D")
		s.begin()
		holder := a.acquires(a.mutex())
		for _, waiter := range []*client{b, c, d} {
			pass(100 * ms)
			waiter.acquires(waiter.mutex())
		}
		pass(200 * ms)
		holder.releases()
		pass(400 * ms)
	}},
	{"04-loss", "A loss", `
A is cut off. It stops its work (the lease is lost) a stop margin of 1 s before
its deadline, 10 s after the connect: the last contact that is proven. B is
granted only when the ensemble has ended the session, later than that.
`, func(s *stage) {
		s.has("/lock")
		b := s.connects("B")
		s.begin()
		a := s.connects("A")
		pass(98 * ms)
		holder := a.acquires(a.mutex())
		pass(100 * ms)
		b.acquires(b.mutex())
		pass(2800 * ms)
		a.does("the network is cut")
		s.ClientNet("A").Cut()
		pass(10 * time.Second)
		a.does("the network is back")
		s.ClientNet("A").Heal()
		pass(100 * ms)
		holder.releases()
	}},
	{"05-reconnect", "A reconnect", `
A broken connection costs nobody the lock or the place in line: each client
names its session again, and arms its watches by new reads. B pauses before it
connects, since its server has not proved to be in touch with its leader.
`, func(s *stage) {
		s.has("/lock")
		a, b := s.connects("A"), s.connects("B")
		s.begin()
		holder := a.acquires(a.mutex())
		pass(100 * ms)
		b.acquires(b.mutex())
		pass(300 * ms)
		a.does("the connection breaks")
		s.ClientNet("A").Drop()
		pass(100 * ms)
		b.does("the connection breaks")
		s.ClientNet("B").Drop()
		pass(100 * ms)
		holder.releases()
		pass(100 * ms)
	}},
	{"06-revocation", "A revocation", `
B looks who holds the lock and asks for it, by a write to the holder's znode.
A, which watches that, decides by itself when to release.
`, func(s *stage) {
		s.has("/lock")
		a, b := s.connects("A"), s.connects("B")
		s.begin()
		holder := a.acquires(a.mutex())
		pass(100 * ms)
		a.does("Revoked")
		revoked := holder.lease.Revoked()
		go func() {
			<-revoked
			a.told(1, "revoked")
			time.Sleep(50 * ms)
			holder.releases()
		}()
		pass(100 * ms)
		m := b.mutex()
		b.does("Participants")
		all := must(m.Participants(s.t.Context()))
		b.told(1, "%d: %s", len(all), all[0].Data)
		pass(100 * ms)
		b.does("Revoke")
		if err := m.Revoke(s.t.Context(), all[0]); err != nil {
			s.t.Fatal(err)
		}
		b.told(1, "asked")
		pass(100 * ms)
	}},
	{"07-linger", "A try at a lingering lock", `
A keeps the znode of a lock that nobody uses. A try of another process finds
the lock busy, and its znode never joins the line. A contender that waits makes
A leave: A watches the directory.
`, func(s *stage) {
		s.has("/lock")
		a, b := s.connects("A"), s.connects("B")
		s.begin()
		holder := a.acquires(a.mutex(recipes.WithLinger(10 * time.Second)))
		pass(100 * ms)
		holder.releases()
		pass(100 * ms)
		b.does("TryAcquire")
		_, err := b.mutex().TryAcquire(s.t.Context())
		b.told(1, "%v", err)
		pass(50 * ms)
		b.acquires(b.mutex())
		pass(100 * ms)
	}},
	{"08-expiry", "An expiry", `
Nobody can foresee that an administrator ends a session. B is granted before A
knows, 2 ms later: for that time only the token keeps A's writes out. A's
client opens another session, but the lease is never A's again.
`, func(s *stage) {
		s.has("/lock")
		a, b := s.connects("A"), s.connects("B")
		s.begin()
		holder := a.acquires(a.mutex())
		pass(100 * ms)
		b.acquires(b.mutex())
		pass(300 * ms)
		a.does("an administrator ends the session")
		s.Expire(a.Client)
		pass(100 * ms)
		holder.releases()
		pass(100 * ms)
	}},
	{"09-semaphore", "A semaphore", `
Of two permits. The first in line reads the limit and the permits that are
taken, and exchanges its place for a permit in one multi. Without room it
watches both, and looks once more, since a permit may have been returned.
`, func(s *stage) {
		s.has("/sem")
		a, b, c := s.connects("A"), s.connects("B"), s.connects("C")
		for _, each := range []*client{a, b, c} {
			first := each.acquires(each.semaphore())
			pass(100 * ms)
			first.releases()
		}
		pass(100 * ms)
		s.begin()
		holder := a.acquires(a.semaphore())
		pass(100 * ms)
		b.acquires(b.semaphore())
		pass(100 * ms)
		c.acquires(c.semaphore())
		pass(100 * ms)
		holder.releases()
		pass(100 * ms)
	}},
	{"10-election", "An election", `
A candidate is a contender that runs a function while it leads. After Resign A
joins the line again, at its end, and B leads.
`, func(s *stage) {
		s.has("/election")
		a, b := s.connects("A"), s.connects("B")
		s.begin()
		e := a.election()
		a.runs(e)
		pass(500 * ms)
		b.runs(b.election())
		pass(500 * ms)
		a.does("Resign")
		e.Resign()
		pass(200 * ms)
	}},
}

// lead is what a candidate runs in a term.
func (c *client) lead(ctx context.Context, term *recipes.Lease) error {
	c.told(1, "leads, token %s", token(term))
	<-ctx.Done()
	c.told(1, "its term ends: %v", context.Cause(ctx))
	return nil
}
