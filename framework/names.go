package framework

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
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// Each attempt to connect looks up the name that is called next, and also the
// others, unless their last answer is recent: all at the same time. The latest
// answer is remembered. It is used where the name server fails, or is silent
// for longer than silence allows. It is forgotten when the name server says
// that the name does not exist. So the name service may fail while the servers
// do not.

// knownName is what is known of a name of the server list. It is guarded by
// serverList.mu.
type knownName struct {
	given     bool               // it is looked up by nobody, or an address
	addresses []string           // in the latest answer, in random order
	answered  time.Time          // when that came; zero: a server was connected since
	err       error              // why the latest lookup has failed; nil: it has not
	cancel    context.CancelFunc // ends the lookup that is under way; nil: none is
	began     time.Time          // when that has begun
	calls     map[string]int     // by address: the attempt that called it last
	faults    map[string]error   // by address: why it was not connected last, since a server was
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

// server returns the server at one of the addresses.
func (n *knownName) server(name, address string, limit time.Duration) server {
	return server{name: name, address: address, oneOfSeveral: len(n.addresses) > 1, remembered: !n.isRecent(limit)}
}

// looksUp reports whether the name server is asked for this name.
func (r *serverList) looksUp(name string) bool {
	_, err := netip.ParseAddrPort(name)
	return r.resolver != nil && err != nil
}

func (r *serverList) looksUpAny() bool { return slices.ContainsFunc(r.names, r.looksUp) }

// knownLocked returns what is known of a name.
func (r *serverList) knownLocked(name string) *knownName {
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
func (r *serverList) lookUpLocked(limit time.Duration) {
	for i, name := range r.names {
		n := r.knownLocked(name)
		if r.closed || n.given || n.cancel != nil || i != r.at && n.isRecent(limit) {
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
func (r *serverList) onAnswer(n *knownName, found []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n.cancel, n.err = nil, err
	var answer *net.DNSError
	switch {
	case err == nil:
		n.addresses, n.answered = found, clock.Now()
	case errors.As(err, &answer) && answer.IsNotFound:
		n.addresses = nil
	}
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// awaitLocked looks up the names, and waits until enough reports true. It
// returns an error after limit, or when stop is closed. The mutex is unlocked
// while it waits, and not between enough and the return.
func (r *serverList) awaitLocked(stop <-chan struct{}, limit time.Duration, enough func() bool) error {
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

// connected notes that a server was connected: the answers until now will have
// to be confirmed before the next connection.
func (r *serverList) connected() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.known {
		n.answered = time.Time{}
	}
}

// forget removes a remembered address: another ensemble has it.
func (r *serverList) forget(s server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.knownLocked(s.name)
	n.addresses = slices.DeleteFunc(slices.Clone(n.addresses), func(a string) bool { return a == s.address })
}

// close ends all lookups, and waits for them.
func (r *serverList) close() {
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
func (r *serverList) resolve(ctx context.Context, name string) ([]string, error) {
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
