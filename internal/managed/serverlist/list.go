package serverlist

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/random"
)

// List decides which server is called next. A name may stand for several
// servers, such as one DNS name for a whole ensemble. Each attempt calls
// another of its addresses: a server that accepts and drops connections does
// not hide the others. names.go has where the addresses come from.
type List struct {
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

// members are the members of the ensemble that are called in addition to the
// servers that were given. It is guarded by List.mu.
type members struct {
	names  []string        // "host:port" for clients, in random order
	former map[string]bool // names and addresses of those that were removed
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

	OneOfSeveral bool // the name has other addresses
	Remembered   bool // nobody has confirmed the address now
	Chosen       bool // the client moves there by its own wish, or a later list has brought it, or another ensemble was found there
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
// moves there by its own wish. Then the server may be of another ensemble.
func (s Server) IsDoubtful() bool { return s.Remembered || s.Chosen }

// New returns the list of names, which it shuffles. Without a resolver, and
// where a name is an address, a name is what the dialer gets.
func New(names []string, resolver *net.Resolver, log *zap.Logger) *List {
	return &List{names: shuffled(names), resolver: cancelable(resolver, log)}
}

func shuffled(names []string) []string {
	names = slices.Clone(names)
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names
}

// Names returns the names that were given, in the order in which they are
// called.
func (r *List) Names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.names)
}

// NextName returns the name that is called next.
func (r *List) NextName() string {
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
func (r *List) allLocked() []named {
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
		local = local || IsLocal(one.name)
		for _, a := range one.addresses {
			seen[keyOf(a)] = true
			local = local || IsLocal(a)
		}
	}
	for _, name := range r.members.names {
		if seen[keyOf(name)] || IsLocal(name) && !local {
			continue
		}
		one := named{name: name, tracked: true}
		for _, a := range r.knownLocked(name).addresses {
			if !seen[keyOf(a)] && (local || !IsLocal(a)) {
				seen[keyOf(a)] = true
				one.addresses = append(one.addresses, a)
			}
		}
		all = append(all, one)
	}
	return all
}

// memberKeysLocked returns the names and addresses of all members.
func (r *List) memberKeysLocked() map[string]bool {
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
func (r *List) isFormerLocked(at Server) bool {
	name, address := keyOf(at.Name), keyOf(at.Address)
	if !r.members.former[name] && !r.members.former[address] {
		return false
	}
	now := r.memberKeysLocked()
	return !now[name] && !now[address]
}

// nameOfLocked returns the name that has an address.
func (r *List) nameOfLocked(address string) (name string, ok bool) {
	all := r.allLocked()
	i := slices.IndexFunc(all, func(one named) bool { return slices.Contains(one.addresses, address) })
	if i < 0 {
		return "", false
	}
	return all[i].name, true
}

// Present returns the servers of the list, as far as they are known. It looks
// nothing up.
func (r *List) Present() (servers []Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.allLocked() {
		for _, address := range one.addresses {
			servers = append(servers, Server{Name: one.name, Address: address})
		}
	}
	return servers
}

// knownName is what is known of a name. It is guarded by List.mu.
type knownName struct {
	given     bool               // it is not looked up: it is an address, or there is no resolver
	addresses []string           // in the latest answer, in random order
	answered  time.Time          // when that came; zero: a server was connected since
	err       error              // why the latest lookup has failed; nil: it has not
	cancel    context.CancelFunc // ends the lookup that is under way; nil: none is
	began     time.Time          // when that has begun
	calls     calls
	faults    map[string]error // by address: why it was not connected last, since a server was
	failure   error            // the latest of all, lookups included; nil: there was none
	failed    time.Time        // when that was
}

// calls is what is known of the calls of a name. It is guarded by List.mu.
type calls struct {
	last    map[string]int  // by address: the attempt that called it last
	silent  map[string]bool // by address: the latest call was not answered soon
	tried   int             // attempts in the round that began after the attempt triedIn
	triedIn int
}

// silence is how long the name server may take before the client continues
// without its answer, in an attempt that may take limit.
func silence(limit time.Duration) time.Duration { return limit / 16 }

// isAwaited reports whether the name server still has time to answer.
func (n *knownName) isAwaited(limit time.Duration) bool {
	return n.cancel != nil && time.Since(n.began) < silence(limit)
}

// isRecent reports whether the addresses are given, or the answer has come
// since the latest connection, and in the time of one attempt.
func (n *knownName) isRecent(limit time.Duration) bool {
	return n.given || clock.Elapsed(n.answered, clock.Now()) < limit
}

// LooksUp reports whether the name server is asked for a name that was given.
func (r *List) LooksUp() bool { return slices.ContainsFunc(r.Names(), r.looksUp) }

// looksUp reports whether the name server is asked for this name.
func (r *List) looksUp(name string) bool {
	_, err := netip.ParseAddrPort(name)
	return r.resolver != nil && err != nil
}

// knownLocked returns what is known of a name.
func (r *List) knownLocked(name string) *knownName {
	n := r.known[name]
	if n == nil {
		n = &knownName{}
		if !r.looksUp(name) {
			n.given, n.addresses = true, []string{name}
		}
		if r.known == nil {
			r.known = make(map[string]*knownName)
		}
		r.known[name] = n
	}
	return n
}
