package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// Each attempt to connect looks up the name that is called next, and also the
// others, unless their last answer is recent: all at the same time. The latest
// answer is remembered. It is used where the name server fails, or is silent
// for longer than silence allows. It is forgotten when the name server says
// that the name does not exist. So the name service may fail while the servers
// do not.

// knownName is what is known of a name. It is guarded by list.mu.
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

// calls is what is known of the calls of a name. It is guarded by list.mu.
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

// looksUp reports whether the name server is asked for this name.
func (r *list) looksUp(name string) bool {
	_, err := netip.ParseAddrPort(name)
	return r.resolver != nil && err != nil
}

// knownLocked returns what is known of a name.
func (r *list) knownLocked(name string) *knownName {
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

// lookUpLocked begins to look up the names, each within limit.
func (r *list) lookUpLocked(limit time.Duration) {
	for i, one := range r.allLocked() {
		name := one.name
		n := r.knownLocked(name)
		if r.closed || n.given || n.cancel != nil || i != r.turn.at && n.isRecent(limit) {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		n.cancel, n.began = cancel, time.Now()
		r.lookups.Go(func() {
			defer cancel()
			found, err := r.resolve(ctx, name)
			r.onAnswer(n, found, err)
		})
	}
}

// onAnswer notes how a lookup has ended.
func (r *list) onAnswer(n *knownName, found []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n.cancel = nil
	n.note(lookup{found, err})
	r.tellLocked()
}

// tellLocked wakes up those that wait in awaitLocked.
func (r *list) tellLocked() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// lookup is how a lookup has ended.
type lookup struct {
	addresses []string
	err       error
}

// note notes how a lookup has ended.
func (n *knownName) note(l lookup) {
	n.err = l.err
	var answer *net.DNSError
	switch {
	case l.err == nil:
		n.addresses, n.answered = l.addresses, clock.Now()
	case errors.As(l.err, &answer) && answer.IsNotFound:
		n.addresses = nil
	}
	if l.err != nil {
		n.failure, n.failed = l.err, time.Now()
	}
}

// lookUpAll looks up names that may not be in the list, all at the same time,
// within limit. It returns what was found of those that are looked up, and
// fails if ctx ends or stop is closed before that.
func (r *list) lookUpAll(ctx context.Context, stop <-chan struct{}, names []string, limit time.Duration) (map[string]lookup, error) {
	type result struct {
		name string
		lookup
	}
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	results, left := make(chan result, len(names)), 0
	r.mu.Lock()
	for _, name := range names {
		if r.looksUp(name) && !r.closed {
			left++
			r.lookups.Go(func() {
				addresses, err := r.resolve(within, name)
				results <- result{name, lookup{addresses, err}}
			})
		}
	}
	r.mu.Unlock()
	found := make(map[string]lookup)
	for _, name := range names {
		if r.looksUp(name) {
			found[name] = lookup{err: fmt.Errorf("resolve %s: no name server has answered within %v", name, limit)}
		}
	}
	for ; left > 0; left-- {
		select {
		case one := <-results:
			found[one.name] = one.lookup
		case <-stop:
			return nil, zkerr.Closed
		case <-within.Done():
			if ctx.Err() != nil {
				return nil, ctxerr.Of(ctx)
			}
			return found, nil
		}
	}
	if ctx.Err() != nil {
		return nil, ctxerr.Of(ctx)
	}
	return found, nil
}

// noteAddresses notes what was found by lookUpAll of names of the list.
func (r *list) noteAddresses(found map[string]lookup) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noteAddressesLocked(found)
	r.tellLocked()
}

func (r *list) noteAddressesLocked(found map[string]lookup) {
	for _, one := range r.allLocked() {
		if l, ok := found[one.name]; ok {
			r.knownLocked(one.name).note(l)
		}
	}
	r.preferred = slices.DeleteFunc(slices.Clone(r.preferred), func(address string) bool {
		_, known := r.nameOfLocked(address)
		return !known
	})
}

// awaitLocked looks up the names, and waits until enough reports true. It
// returns an error after limit, or when stop is closed. The mutex is unlocked
// while it waits, and not between enough and the return.
func (r *list) awaitLocked(stop <-chan struct{}, limit time.Duration, enough func() bool) error {
	r.lookUpLocked(limit)
	silent, late := time.After(silence(limit)), time.After(limit)
	for !enough() {
		if r.changed == nil {
			r.changed = make(chan struct{})
		}
		changed := r.changed
		r.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-silent:
		case <-late:
			err = fmt.Errorf("no name server has answered within %v", limit)
		case <-stop:
			err = supplied.ErrStopped
		}
		r.mu.Lock()
		if err != nil {
			return err
		}
	}
	return nil
}

// forget removes a remembered address, unless it was given: another ensemble
// has it.
func (r *list) forget(at Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.knownLocked(at.Name)
	if n.given {
		return
	}
	n.addresses = slices.DeleteFunc(slices.Clone(n.addresses), func(a string) bool { return a == at.Address })
}

// close ends all lookups, and waits for them.
func (r *list) close() {
	r.mu.Lock()
	r.closed = true
	for _, n := range r.known {
		if n.cancel != nil {
			n.cancel()
		}
	}
	r.mu.Unlock()
	r.lookups.Wait()
}

// resolve returns the addresses of a name, in random order.
func (r *list) resolve(ctx context.Context, name string) ([]string, error) {
	if !r.looksUp(name) {
		return []string{name}, nil
	}
	host, port, err := net.SplitHostPort(name)
	if err != nil {
		return nil, err
	}
	// One resolver shares the lookups of a host, and then ends none of them.
	once := net.Resolver{PreferGo: r.resolver.PreferGo, StrictErrors: r.resolver.StrictErrors, Dial: r.resolver.Dial}
	found, err := once.LookupIPAddr(ctx, host)
	if err == nil && len(found) == 0 {
		err = &net.DNSError{Err: "no address", Name: host, IsNotFound: true}
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

// cancelable returns a resolver as r, whose lookups leave nothing behind when
// their context ends: Go's resolver would leave a goroutine that reads from the
// name server, for 5s by default. Those of the C library cannot be ended.
func cancelable(r *net.Resolver, log *zap.Logger) *net.Resolver {
	if r == nil {
		return nil
	}
	dial := r.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	return &net.Resolver{PreferGo: r.PreferGo, StrictErrors: r.StrictErrors, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		var conn net.Conn
		dialed := supplied.Go(log, func() (err error) {
			if conn, err = dial(ctx, network, address); err == nil {
				context.AfterFunc(ctx, func() { _ = conn.Close() })
			}
			return err
		})
		select {
		case err := <-dialed:
			if err != nil {
				return nil, err
			}
			return conn, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
}
