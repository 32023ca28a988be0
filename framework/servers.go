package framework

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/random"
)

// serverList decides which server is called next. A name may stand for several
// servers, such as one DNS name for a whole ensemble. So it is resolved at
// every attempt, and each attempt calls another of its addresses: a server that
// accepts and drops connections does not hide the others.
type serverList struct {
	names    []string      // "host:port"
	resolver *net.Resolver // nil: the dialer gets the names

	mu           sync.Mutex                // guards what follows
	at           int                       // index of the name that is called next
	attemptsLeft int                       // for this name; 0: not resolved yet
	attempts     int                       // so far
	addresses    map[string]map[string]int // by name and address: the attempt that called it last
}

// server is a server to be called.
type server struct {
	name         string // as in the list
	address      string // to be dialed: the name, or an address of it
	oneOfSeveral bool   // the name has other addresses
}

func (s server) String() string {
	if s.address == s.name {
		return s.name
	}
	return s.name + " at " + s.address
}

// name returns the name that is called next.
func (r *serverList) name() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.names[r.at]
}

// next returns the next server to call. It goes round over the names, and over
// the addresses of each name, the least recently called first. It continues
// where the previous session of the client stopped: a new session does not
// begin with the server that the previous one was lost on. round is how many
// attempts make a round.
func (r *serverList) next(limit time.Duration) (s server, round int, err error) {
	name := r.name()
	addresses, err := r.resolve(context.Background(), name, limit)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attempts++
	last := r.addresses[name]
	calls := make(map[string]int, len(addresses))
	for _, a := range addresses {
		calls[a] = last[a]
	}
	if r.addresses == nil {
		r.addresses = make(map[string]map[string]int)
	}
	r.addresses[name] = calls
	if r.attemptsLeft == 0 || r.attemptsLeft > len(calls) {
		r.attemptsLeft = max(1, len(calls))
	}
	if r.attemptsLeft--; r.attemptsLeft == 0 {
		r.at = (r.at + 1) % len(r.names)
	}
	for _, n := range r.names {
		round += max(1, len(r.addresses[n]))
	}
	if err != nil {
		return server{}, round, err
	}
	s = server{name: name, address: leastRecent(addresses, calls), oneOfSeveral: len(calls) > 1}
	calls[s.address] = r.attempts
	return s, round, nil
}

// leastRecent returns the address that was called least recently. Among equals
// it prefers another address family than that of the latest call: a host
// without a route to one of the two does not try all addresses of that one
// first.
func leastRecent(addresses []string, calls map[string]int) string {
	latest := slices.MaxFunc(addresses, func(a, b string) int { return cmp.Compare(calls[a], calls[b]) })
	best := ""
	for _, a := range addresses {
		switch {
		case best == "" || calls[a] < calls[best]:
			best = a
		case calls[a] == calls[best] && calls[latest] > 0 && isOneFamily(best, latest) && !isOneFamily(a, latest):
			best = a
		}
	}
	return best
}

// isOneFamily reports whether both addresses are of IPv4, or both of IPv6.
func isOneFamily(a, b string) bool { return (a[0] == '[') == (b[0] == '[') }

// all resolves all names, and returns the servers, in no order.
func (r *serverList) all(ctx context.Context, limit time.Duration) []server {
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
	random.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	return found
}

// resolve returns the addresses of a name, in no order.
func (r *serverList) resolve(ctx context.Context, name string, limit time.Duration) ([]string, error) {
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
	random.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	return addresses, nil
}
