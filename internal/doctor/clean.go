package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// opened notes a session, which has to be closed.
func (d *Doctor) opened(at servers.Server, session wire.ConnectResponse) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sessions[session.SessionID] = openSession{at, session.Password}
}

// closed notes that a session is known to be gone.
func (d *Doctor) closed(id int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.sessions, id)
}

// clean removes the directory and closes the sessions that are left. A session
// that cannot be closed ends with its timeout, so that is no error.
func (d *Doctor) clean(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all []error
	removed := map[*probe]bool{}
	for _, p := range d.probes {
		if !p.works || slices.ContainsFunc(p.peers, func(o *probe) bool { return removed[o] }) {
			continue
		}
		err := p.removeDir(ctx)
		if removed[p] = err == nil; err != nil {
			all = append(all, fmt.Errorf("remove %s at %s: %w", d.dir, p.at.Name, err))
			continue
		}
		all = nil
	}
	d.mu.Lock()
	left := d.sessions
	d.sessions = map[int64]openSession{}
	d.mu.Unlock()
	var closing sync.WaitGroup
	for id, s := range left {
		closing.Go(func() {
			if d.ensemble.Close(ctx, s.at, d.within(ctx), id, s.password, true) != nil {
				_ = d.ensemble.Close(ctx, s.at, d.within(ctx), id, s.password, false) // a server that requires nothing obeys
			}
		})
	}
	closing.Wait()
	return errors.Join(all...)
}

// removeDir removes the directory and all below it.
func (p *probe) removeDir(ctx context.Context) error {
	c, err := p.open(ctx, p.ensemble.Timeout())
	if err != nil {
		return err
	}
	defer c.close()
	if _, err := c.exists(p.dir); err != nil {
		return ignore(err, wire.NoNode)
	}
	return c.remove(p.dir, 2)
}

// remove deletes a znode and what is below it, to a depth. A server that lies
// cannot make it delete anything else.
func (c *conn) remove(path string, depth int) error {
	var list wire.ChildrenResponse
	if _, err := c.do(wire.OpGetChildren, &wire.WatchRequest{Path: path}, &list); err != nil {
		return ignore(err, wire.NoNode)
	}
	for _, name := range list.Children {
		below := path + "/" + name
		if depth == 0 || strings.Contains(name, "/") || framework.ValidatePath(below) != nil {
			return fmt.Errorf("%q: not made by this process", below)
		}
		if err := c.remove(below, depth-1); err != nil {
			return err
		}
	}
	return ignore(c.delete(path), wire.NoNode)
}

// ignore returns nil for an error that does no harm.
func ignore(err error, harmless wire.Code) error {
	if errors.Is(err, harmless) {
		return nil
	}
	return err
}
