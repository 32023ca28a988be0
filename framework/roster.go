package framework

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// roster is the list of servers, and decides which is called next. A name may stand
// for several servers, which one DNS name for a whole ensemble does: it is resolved
// at every attempt, and each attempt calls another of its addresses, so that one
// that accepts and drops does not hide the others.
type roster struct {
	names    []string      // "host:port"
	resolver *net.Resolver // nil: the dialer gets the names

	mu    sync.Mutex                // guards what follows
	turn  int                       // index of the name that is called next
	left  int                       // attempts before the next name; 0: its turn begins
	tries int                       // so many attempts there were
	known map[string]map[string]int // by name: its addresses, and when each was called last
}

// server is one to be called.
type server struct {
	name    string // as in the list
	address string // to be dialed: the name, or an address that it stands for
	others  bool   // the name stands for more than this
}

func (s server) String() string {
	if s.address == s.name {
		return s.name
	}
	return s.name + " at " + s.address
}

// name is the one that is called next.
func (r *roster) name() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.names[r.turn]
}

// next goes round over the names, and over the addresses of each, those first that
// were not called for the longest time. It goes on over all sessions of the client:
// the next does not begin with the server that cost the last. round is how many
// attempts make a round.
func (r *roster) next(limit time.Duration) (s server, round int, err error) {
	name := r.name()
	addresses, err := r.resolve(context.Background(), name, limit)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tries++
	last := r.known[name]
	calls := make(map[string]int, len(addresses))
	for _, a := range addresses {
		calls[a] = last[a]
	}
	if r.known == nil {
		r.known = make(map[string]map[string]int)
	}
	r.known[name] = calls
	if r.left == 0 || r.left > len(calls) {
		r.left = max(1, len(calls))
	}
	if r.left--; r.left == 0 {
		r.turn = (r.turn + 1) % len(r.names)
	}
	for _, n := range r.names {
		round += max(1, len(r.known[n]))
	}
	if err != nil {
		return server{}, round, err
	}
	s = server{name: name, address: pick(addresses, calls), others: len(calls) > 1}
	calls[s.address] = r.tries
	return s, round, nil
}

// pick is the address that was called least lately. Where several are as good it is
// one of the other family than the last: a host that has no way to one of the two
// does not try all of those in vain first.
func pick(addresses []string, calls map[string]int) string {
	latest := addresses[0]
	for _, a := range addresses {
		if calls[a] > calls[latest] {
			latest = a
		}
	}
	best := ""
	for _, a := range addresses {
		switch {
		case best == "" || calls[a] < calls[best]:
			best = a
		case calls[a] == calls[best] && calls[latest] > 0 && isIPv6(best) == isIPv6(latest) && isIPv6(a) != isIPv6(latest):
			best = a
		}
	}
	return best
}

func isIPv6(address string) bool { return address[0] == '[' }

// all resolves all names, and returns what can be called, in no order.
func (r *roster) all(ctx context.Context, limit time.Duration) []server {
	var mu sync.Mutex // guards found
	var found []server
	var each sync.WaitGroup
	for _, name := range r.names {
		each.Go(func() {
			addresses, err := r.resolve(ctx, name, limit)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, a := range addresses {
				found = append(found, server{name: name, address: a})
			}
		})
	}
	each.Wait()
	rand.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	return found
}

// resolve returns the addresses that a name stands for, in no order.
func (r *roster) resolve(ctx context.Context, name string, limit time.Duration) ([]string, error) {
	if r.resolver == nil {
		return []string{name}, nil
	}
	host, port, err := net.SplitHostPort(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	found, err := r.resolver.LookupIPAddr(ctx, host)
	if err == nil && len(found) == 0 {
		err = errors.New("no address")
	}
	if err != nil {
		return nil, fmt.Errorf("resolve %s: %w", host, err)
	}
	addresses := make([]string, len(found))
	for i, a := range found {
		addresses[i] = net.JoinHostPort(a.String(), port)
	}
	rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	return addresses, nil
}
