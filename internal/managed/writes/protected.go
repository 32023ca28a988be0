package writes

import (
	"context"
	"fmt"
	"slices"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed/ephemerals"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/random"
)

// A protected create has a random id in the znode's name. If its answer is
// lost, the znode is found again by that id. If its outcome stays unknown, or
// the caller has returned, the znode may still be created, late: it would be a
// stray. So its id is remembered for a while, and a znode with that id is
// deleted as soon as a list of the directory shows it: see strays.go.

// Created is framework.Created.
type Created struct {
	Path     string
	Children []string
	Stat     *zk.Stat
}

// Protected is a create of a protected znode.
type Protected struct {
	Dir, Name string
	Data      []byte
	Flags     int32
	ACL       []zk.ACL       // none: the client's
	Also      []request.Read // in order, behind the list, in the same request
	Instead   string         // the path of a znode whose delete has begun, or empty
	Unhurried bool           // it does not return before its answer, or the end of the session
}

// Also is what a protected create has also found out.
type Also struct {
	// Results are those of the reads, nil where they are not made: the server has
	// no multiRead, or is not known to have it, the answers would be large, or the
	// answer that shows the znode did not come.
	Results []request.Result
	// Next says that the znode has replaced the one at Instead, and that no znode
	// was created in the directory in between: see replace.go. Then there is no
	// list.
	Next bool
}

// CreateProtected creates a protected znode, in a scope of this session. With
// Instead, both are one transaction where possible.
func (s *Writes) CreateProtected(ctx context.Context, w ops.Scope, p Protected) (Created, Also, error) {
	unprotected := layout.Join(p.Dir, p.Name)
	if err := request.ValidatePath(unprotected); err != nil {
		return Created{}, Also{}, &zkerr.Op{Op: request.NameCreate, Path: unprotected, Err: err}
	}
	acl := p.ACL
	if len(acl) == 0 {
		acl = w.Client.Config.ACL
	}
	size := request.TextSize(w.Root.Fix(unprotected)) + layout.ProtectionSize + request.CreateSize(p.Data, acl)
	if err := w.Client.Fits(size); err != nil {
		return Created{}, Also{}, &zkerr.Op{Op: request.NameCreate, Path: unprotected, Err: err}
	}
	also := make([]request.Read, len(p.Also))
	for i, r := range p.Also {
		also[i] = request.Read{Path: w.Root.Fix(r.Path), Children: r.Children}
	}
	instead := p.Instead
	if instead != "" {
		instead = w.Root.Fix(instead)
	}
	var found made
	err := w.Do(ctx, request.NameCreate, p.Dir, ops.Repeatable, func(a *ops.Attempt) (err error) {
		try := protectedCreate{session: s, dir: w.Root.Fix(p.Dir), id: random.ID(), also: also, instead: instead, unhurried: p.Unhurried, Allowance: w.Allowance}
		path := layout.Join(try.dir, layout.Protect(try.id, p.Name))
		found, err = try.create(ctx, a, &zk.CreateRequest{Path: path, Data: p.Data, Flags: p.Flags, Acl: acl})
		return err
	})
	if err != nil {
		return Created{}, Also{}, err
	}
	return Created{Path: w.Root.Unfix(found.path), Children: found.names, Stat: found.stat}, Also{found.also, found.next}, nil
}

// protectedCreate is one try of a protected create.
type protectedCreate struct {
	session   *Writes
	dir, id   string
	also      []request.Read // see groupedWrite
	instead   string         // the same
	unhurried bool           // see Session.Unhurried
	ephemerals.Allowance
}

func (p *protectedCreate) create(ctx context.Context, a *ops.Attempt, op *zk.CreateRequest) (made, error) {
	s := p.session
	write := newGroupedWrite(ctx, op)
	write.also, write.instead = p.also, p.instead
	patience := ctx
	if p.unhurried {
		patience = context.Background()
	}
	claim, err := s.Claim(ctx, p.Allowance, op)
	if err != nil {
		return made{}, err
	}
	found, err := ops.Detach(patience, s.Session, func() (made, error) {
		s.queue.enqueue(write, false)
		found, err := s.queue.await(write)
		claim.Settle(err, found.path)
		return found, err
	}, p.discardLate)
	if err == nil || ops.IsDetached(err) { // discardLate gets what is detached
		return found, err
	}
	if zkerr.Classify(err) == zkerr.Ambiguous {
		a.Unsure = true // whatever the search for the znode finds
		if found, err = p.findAgain(ctx, op.Flags, err, a.Budget); err != nil {
			return found, err // the claim stays unsure, also if the search has failed
		}
	}
	claim.Settle(err, found.path)
	return found, err
}

// discardLate handles the answer to a create whose caller has returned.
func (p *protectedCreate) discardLate(late made, err error) {
	switch {
	case err == nil:
		p.session.strays.discard(late.path)
	case zkerr.Classify(err) == zkerr.Ambiguous:
		p.session.strays.expect(p.dir, p.id)
	}
}

// findAgain looks for the znode of a create whose answer was lost with the
// error lost. If the znode is not there it returns that error, so that the
// create is retried.
func (p *protectedCreate) findAgain(ctx context.Context, flags int32, lost error, budget backoff.BackOff) (made, error) {
	found, err := p.find(ctx, flags, budget)
	if err == nil && found.path == "" {
		err = lost
	}
	if err != nil {
		p.session.strays.expect(p.dir, p.id)
		return made{}, err
	}
	return found, nil
}

// find looks for the znode by its id, once the session is connected again, and
// checks that it belongs to this session. If the connection ends meanwhile it
// goes on within the budget: others may count the znode already, so it is not
// given up for that.
func (p *protectedCreate) find(ctx context.Context, flags int32, budget backoff.BackOff) (made, error) {
	s := p.session
	w := ops.Scope{Client: s.Client, In: s.Session, Budget: budget}
	l, err := s.search(ctx, w, p.dir)
	if err != nil {
		return made{}, err
	}
	i := slices.IndexFunc(l.names, func(name string) bool { return idOf(name) == p.id })
	if i < 0 {
		return made{}, nil
	}
	path := layout.Join(p.dir, l.names[i])
	if request.IsEphemeral(flags) {
		found, stat, err := w.Exists(ctx, path)
		switch {
		case err != nil:
			return made{}, err
		case !found:
			return made{}, nil
		case stat.EphemeralOwner != s.Chain().ID():
			return made{}, fmt.Errorf("%w: the znode belongs to another session", zkerr.SessionLost)
		}
	}
	stat := *l.stat // others have the same list
	return made{path: path, listing: listing{slices.Clone(l.names), &stat}}, nil
}

// idOf returns the id in the name of a protected znode, or "" if there is none.
func idOf(name string) string {
	id, _, _ := layout.CutProtection(name)
	return id
}
