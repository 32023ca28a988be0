package servers

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// list decides which server is called next. A name may stand for several
// servers, such as one DNS name for a whole ensemble. Each attempt calls
// another of its addresses: a server that accepts and drops connections does
// not hide the others. names.go has where the addresses come from.
type list struct {
	resolver *net.Resolver // nil: the dialer gets the names
	lookups  sync.WaitGroup

	mu           sync.Mutex // guards what follows
	names        []string   // "host:port"
	closed       bool
	at           int // index of the name that is called next
	attemptsLeft int // for this name; 0: not chosen yet
	attempts     int // so far
	known        map[string]*knownName
	changed      chan struct{} // closed when a lookup has ended; nil: nobody waits
	preferred    []string      // addresses that are called before all others, until a server has answered
}

// Server is a server to be called.
type Server struct {
	Name    string // "host:port", as in the list
	Address string // to be dialed: the name, or an address of it

	oneOfSeveral bool // the name has other addresses
	remembered   bool // the name server has not confirmed the address now: see ensemble.go
	chosen       bool // the client moves there by its own wish, or has, and has found another ensemble
}

// String returns the name, and the address if it is another one.
func (s Server) String() string {
	if s.Address == s.Name || s.Address == "" {
		return s.Name
	}
	return s.Name + " at " + s.Address
}

// IsDoubtful reports whether the name server has not confirmed the address now,
// or the client moves there by its own wish. Then the server may be of another
// ensemble: see Vouch.
func (s Server) IsDoubtful() bool { return s.remembered || s.chosen }

// errNoAddress is why no server is called where no lookup has failed: what the
// name server has said last belongs to another ensemble, or the client closes.
var errNoAddress = errors.New("no address is known")

func shuffled(names []string) []string {
	names = slices.Clone(names)
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names
}

func (r *list) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.names)
}

func (r *list) nextName() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.names[r.at]
}

// next returns the next server to call. It goes round over the names, and over
// the addresses of each name, the least recently called first. It passes over
// names without an address. It continues where the previous session of the
// client stopped: a new session does not begin with the server that the
// previous one was lost on. Servers that the client should move to come first.
// round is how many attempts make a round. It fails with supplied.ErrStopped
// when stop is closed.
func (r *list) next(stop <-chan struct{}, limit time.Duration) (to Server, round int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := -1
	err = r.awaitLocked(stop, limit, func() (done bool) {
		i, done = r.chooseLocked(limit)
		return done
	})
	if errors.Is(err, supplied.ErrStopped) {
		return Server{}, 0, err
	}
	r.attempts++
	for _, name := range r.names {
		switch n := r.knownLocked(name); {
		case len(n.addresses) > 0:
			round += len(n.addresses)
		case n.isAwaited(limit):
			round++
		}
	}
	round = max(1, round)
	if to, ok := r.preferredLocked(limit); ok {
		return to, round, nil
	}
	if i < 0 {
		err = cmp.Or(r.knownLocked(r.names[r.at]).err, err, errNoAddress)
		to.Name = r.names[r.at]
		r.at, r.attemptsLeft = (r.at+1)%len(r.names), 0
		return to, round, err
	}
	if i != r.at {
		r.at, r.attemptsLeft = i, 0
	}
	name := r.names[i]
	n := r.knownLocked(name)
	calls := make(map[string]int, len(n.addresses))
	for _, a := range n.addresses {
		calls[a] = n.calls[a]
	}
	n.calls = calls
	maps.DeleteFunc(n.faults, func(address string, _ error) bool { return !slices.Contains(n.addresses, address) })
	if r.attemptsLeft == 0 || r.attemptsLeft > len(calls) {
		r.attemptsLeft = len(calls)
	}
	if r.attemptsLeft--; r.attemptsLeft == 0 {
		r.at = (r.at + 1) % len(r.names)
	}
	to = n.server(name, leastRecent(n.addresses, calls), limit)
	calls[to.Address] = r.attempts
	return to, round, nil
}

// chooseLocked returns the index of the next name that has an address, -1 if
// none has. done reports whether there is nothing to wait for.
func (r *list) chooseLocked(limit time.Duration) (i int, done bool) {
	done = true
	for k := range r.names {
		i := (r.at + k) % len(r.names)
		switch n := r.knownLocked(r.names[i]); {
		case n.isAwaited(limit):
			return -1, false
		case len(n.addresses) > 0:
			return i, true
		case n.cancel != nil:
			done = false
		}
	}
	return -1, done
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

// nameOfLocked returns the name that has an address.
func (r *list) nameOfLocked(address string) (name string, ok bool) {
	i := slices.IndexFunc(r.names, func(name string) bool { return slices.Contains(r.knownLocked(name).addresses, address) })
	if i < 0 {
		return "", false
	}
	return r.names[i], true
}

// preferredLocked returns the next server that is called before all others, if
// there is one.
func (r *list) preferredLocked(limit time.Duration) (to Server, ok bool) {
	for len(r.preferred) > 0 {
		address := r.preferred[0]
		r.preferred = r.preferred[1:]
		if name, ok := r.nameOfLocked(address); ok {
			return r.knownLocked(name).server(name, address, limit), true
		}
	}
	return Server{}, false
}

// present returns the servers of the list, as far as they are known. It looks
// nothing up.
func (r *list) present() (servers []Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range r.names {
		for _, address := range r.knownLocked(name).addresses {
			servers = append(servers, Server{Name: name, Address: address})
		}
	}
	return servers
}

// find returns the servers of all names that have an address, in random order.
func (r *list) find(ctx context.Context, limit time.Duration) (found []Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.awaitLocked(ctx.Done(), limit, func() bool {
		found = nil
		done := true
		for _, name := range r.names {
			n := r.knownLocked(name)
			if n.isAwaited(limit) {
				return false
			}
			for _, a := range n.addresses {
				found = append(found, n.server(name, a, limit))
			}
			done = done && n.cancel == nil
		}
		return done || len(found) > 0
	})
	random.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	return found
}
