package serverlist

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

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

// lookUpLocked begins to look up the names, each within limit.
func (r *List) lookUpLocked(limit time.Duration) {
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
			found, err := r.Resolve(ctx, name)
			r.onAnswer(n, found, err)
		})
	}
}

// onAnswer notes how a lookup has ended.
func (r *List) onAnswer(n *knownName, found []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n.cancel = nil
	n.note(Lookup{found, err})
	r.tellLocked()
}

// tellLocked wakes up those that wait in awaitLocked.
func (r *List) tellLocked() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// Lookup is how a lookup has ended.
type Lookup struct {
	addresses []string
	err       error
}

// note notes how a lookup has ended.
func (n *knownName) note(l Lookup) {
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

// LookUpAll looks up names that may not be in the list, all at the same time,
// within limit. It returns what was found of those that are looked up, and
// fails if ctx ends or stop is closed before that.
func (r *List) LookUpAll(ctx context.Context, stop <-chan struct{}, names []string, limit time.Duration) (map[string]Lookup, error) {
	type result struct {
		name string
		Lookup
	}
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	results, left := make(chan result, len(names)), 0
	r.mu.Lock()
	for _, name := range names {
		if r.looksUp(name) && !r.closed {
			left++
			r.lookups.Go(func() {
				addresses, err := r.Resolve(within, name)
				results <- result{name, Lookup{addresses, err}}
			})
		}
	}
	r.mu.Unlock()
	found := make(map[string]Lookup)
	for _, name := range names {
		if r.looksUp(name) {
			found[name] = Lookup{err: fmt.Errorf("resolve %s: no name server has answered within %v", name, limit)}
		}
	}
	for ; left > 0; left-- {
		select {
		case one := <-results:
			found[one.name] = one.Lookup
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

func (r *List) noteAddressesLocked(found map[string]Lookup) {
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

// LookUpAgain looks up all names, within limit, as long as ctx lasts. A name
// that cannot be looked up keeps the addresses that it has.
func (r *List) LookUpAgain(ctx context.Context, stop <-chan struct{}, limit time.Duration) {
	r.mu.Lock()
	var names []string
	for _, one := range r.allLocked() {
		names = append(names, one.name)
	}
	r.mu.Unlock()
	found, err := r.LookUpAll(ctx, stop, names, limit)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noteAddressesLocked(found)
	r.tellLocked()
}

// awaitLocked looks up the names, and waits until enough reports true. It
// returns an error after limit, or when stop is closed. The mutex is unlocked
// while it waits, and not between enough and the return.
func (r *List) awaitLocked(stop <-chan struct{}, limit time.Duration, enough func() bool) error {
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

// Forget removes a remembered address, unless it was given: another ensemble
// has it.
func (r *List) Forget(at Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.knownLocked(at.Name)
	if n.given {
		return
	}
	n.addresses = slices.DeleteFunc(slices.Clone(n.addresses), func(a string) bool { return a == at.Address })
}

// Close ends all lookups, and waits for them.
func (r *List) Close() {
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

// Resolve returns the addresses of a name, in random order.
func (r *List) Resolve(ctx context.Context, name string) ([]string, error) {
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
