package servers

import (
	"cmp"
	"context"
	"errors"
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

	mu        sync.Mutex // guards what follows
	names     []string   // "host:port"
	members   members    // of the ensemble, as it says
	closed    bool
	turn      turn
	known     map[string]*knownName
	changed   chan struct{} // closed when a lookup has ended; nil: nobody waits
	preferred []string      // addresses that are called before all others, until a server other than back has answered
	back      string        // the address to which the client has gone back; "": it has not
}

// turn says where the calls are.
type turn struct {
	at           int           // index of the given name that is called next
	attemptsLeft int           // for this name; 0: not chosen yet
	attempts     int           // so far
	began        int           // of these, the ones before the present round
	silent       int           // members in the round that only the ensemble has named, and that were silent
	most         int           // of these there may be in a round; 0: one
	short        int           // attempts in the latest round, if it has ended early because of them; 0: it has not
	called       time.Time     // when the latest call has begun
	quick        time.Duration // a call that fails sooner was not silent
}

// quickPart is the part of the time of an attempt within which a call fails
// that was not silent.
const quickPart = 8

// Server is a server to be called.
type Server struct {
	Name    string // "host:port", as in the list
	Address string // to be dialed: the name, or an address of it

	oneOfSeveral bool // the name has other addresses
	remembered   bool // nobody has confirmed the address now: see ensemble.go
	chosen       bool // the client moves there by its own wish, or does not know its name (foreign.go), or another ensemble was found there
}

// String returns the name, and the address if it is another one.
func (s Server) String() string {
	if s.Address == s.Name || s.Address == "" {
		return s.Name
	}
	return s.Name + " at " + s.Address
}

// IsDoubtful reports whether the name server has not confirmed the address now,
// a later list has brought the server and the client was never there, or it
// moves there by its own wish. Then the server may be of another ensemble: see
// Vouch.
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
	return r.names[r.turn.at]
}

// named is a name with the addresses that are called.
type named struct {
	name      string
	addresses []string
	tracked   bool // the ensemble has named it, and nobody else
}

// allLocked returns all names: first those that were given, in their order.
// Then come the other members of the ensemble, without the addresses that a
// given name has, and without local addresses, unless a given name has such
// ones.
func (r *list) allLocked() []named {
	all := make([]named, 0, len(r.names)+len(r.members.names))
	for _, name := range r.names {
		all = append(all, named{name: name, addresses: r.knownLocked(name).addresses})
	}
	if len(r.members.names) == 0 {
		return all
	}
	seen, local := make(map[string]bool), false
	for _, one := range all {
		seen[keyOf(one.name)] = true
		local = local || isLocal(one.name)
		for _, a := range one.addresses {
			seen[keyOf(a)] = true
			local = local || isLocal(a)
		}
	}
	for _, name := range r.members.names {
		if seen[keyOf(name)] || isLocal(name) && !local {
			continue
		}
		one := named{name: name, tracked: true}
		for _, a := range r.knownLocked(name).addresses {
			if !seen[keyOf(a)] && (local || !isLocal(a)) {
				seen[keyOf(a)] = true
				one.addresses = append(one.addresses, a)
			}
		}
		all = append(all, one)
	}
	return all
}

// memberKeysLocked returns the names and addresses of all members.
func (r *list) memberKeysLocked() map[string]bool {
	keys := make(map[string]bool)
	for _, name := range r.members.names {
		n := r.knownLocked(name)
		keys[keyOf(name)] = true
		for _, a := range n.addresses {
			keys[keyOf(a)] = true
		}
	}
	return keys
}

// isFormerLocked reports whether a server was removed from the ensemble, and no
// member is there now, by whatever name.
func (r *list) isFormerLocked(at Server) bool {
	name, address := keyOf(at.Name), keyOf(at.Address)
	if !r.members.former[name] && !r.members.former[address] {
		return false
	}
	now := r.memberKeysLocked()
	return !now[name] && !now[address]
}

// next returns the next server to call: see order.go. It passes over names
// without an address. It continues where the previous session of the client
// stopped: a new session does not begin with the server that the previous one
// was lost on. Servers that the client should move to come first. round is how
// many attempts make a round. It fails with supplied.ErrStopped when stop is
// closed.
func (r *list) next(stop <-chan struct{}, limit time.Duration) (to Server, round int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var c choice
	err = r.awaitLocked(stop, limit, func() (done bool) {
		c, done = r.chooseLocked(limit)
		return done
	})
	if errors.Is(err, supplied.ErrStopped) {
		return Server{}, 0, err
	}
	r.turn.attempts++
	for _, one := range r.allLocked() {
		switch {
		case len(one.addresses) > 0:
			round += len(one.addresses)
		case r.knownLocked(one.name).isAwaited(limit):
			round++
		}
	}
	if round = max(1, round); r.turn.short > 0 {
		round = min(round, r.turn.short)
	}
	if to, ok := r.preferredLocked(limit); ok {
		r.turn.called, r.turn.quick = time.Now(), limit/quickPart
		return to, round, nil
	}
	if c.name == "" {
		err = cmp.Or(r.knownLocked(r.names[r.turn.at]).err, err, errNoAddress)
		to.Name = r.names[r.turn.at]
		r.turn.at, r.turn.attemptsLeft = (r.turn.at+1)%len(r.names), 0
		return to, round, err
	}
	return r.takeLocked(c, limit), round, nil
}

// leastRecent returns the address that was called least recently, by the
// attempt that has called each last. Among equals it prefers another address
// family than that of the latest call: a host without a route to one of the two
// does not try all addresses of that one first.
func leastRecent(addresses []string, calls map[string]int) string {
	latest, best := "", ""
	for a, attempt := range calls {
		if latest == "" || attempt > calls[latest] {
			latest = a
		}
	}
	for _, a := range addresses {
		switch {
		case best == "" || calls[a] < calls[best]:
			best = a
		case calls[a] == calls[best] && latest != "" && isOneFamily(best, latest) && !isOneFamily(a, latest):
			best = a
		}
	}
	return best
}

// isOneFamily reports whether both addresses are of IPv4, or both of IPv6.
func isOneFamily(a, b string) bool { return (a[0] == '[') == (b[0] == '[') }

// nameOfLocked returns the name that has an address.
func (r *list) nameOfLocked(address string) (name string, ok bool) {
	all := r.allLocked()
	i := slices.IndexFunc(all, func(one named) bool { return slices.Contains(one.addresses, address) })
	if i < 0 {
		return "", false
	}
	return all[i].name, true
}

// preferredLocked returns the next server that is called before all others, if
// there is one.
func (r *list) preferredLocked(limit time.Duration) (to Server, ok bool) {
	for len(r.preferred) > 0 {
		address := r.preferred[0]
		r.preferred = r.preferred[1:]
		if name, ok := r.nameOfLocked(address); ok {
			return r.serverLocked(name, address, limit), true
		}
	}
	return Server{}, false
}

// present returns the servers of the list, as far as they are known. It looks
// nothing up.
func (r *list) present() (servers []Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.allLocked() {
		for _, address := range one.addresses {
			servers = append(servers, Server{Name: one.name, Address: address})
		}
	}
	return servers
}

// find returns the servers of all names that have an address, in random order,
// apart from what order.go says.
func (r *list) find(ctx context.Context, limit time.Duration) (found []Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.awaitLocked(ctx.Done(), limit, func() bool {
		found = nil
		done := true
		for _, one := range r.allLocked() {
			n := r.knownLocked(one.name)
			if n.isAwaited(limit) {
				return false
			}
			for _, a := range one.addresses {
				found = append(found, r.serverLocked(one.name, a, limit))
			}
			done = done && n.cancel == nil
		}
		return done || len(found) > 0
	})
	random.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	slices.SortStableFunc(found, func(a, b Server) int { return cmp.Compare(r.rankLocked(a), r.rankLocked(b)) })
	return found
}
