package managed

import (
	"context"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/writes"
)

// This file has the writes of contenders and presences in a view of a session.

// CreateProtected is framework.Session.CreateProtected.
func (s *Session) CreateProtected(ctx context.Context, dir, name string, data []byte, flags int32, acl ...zk.ACL) (writes.Created, error) {
	made, _, err := s.createProtected(ctx, writes.Protected{Dir: dir, Name: name, Data: data, Flags: flags, ACL: acl})
	return made, err
}

// CreateProtectedAndRead is CreateProtected, and does other reads, in order,
// behind the list, in the same request. There are no results where that is not
// possible: the server has no multiRead, or is not known to have it, the
// answers would be large, or the answer that shows the znode did not come. Each
// result has an error of its own.
func (s *Session) CreateProtectedAndRead(ctx context.Context, dir, name string, data []byte, flags int32, acl []zk.ACL, also ...request.Read) (writes.Created, []request.Result, error) {
	created, found, err := s.createProtected(ctx, writes.Protected{Dir: dir, Name: name, Data: data, Flags: flags, ACL: acl, Also: also})
	return created, found.Results, err
}

// CreateProtectedInstead is CreateProtected of a sequential znode, after
// StartDelete of another one in dir, at the path replaced. If the delete was
// not sent yet, both are one transaction where possible, and there is no list:
// Children and Stat are nil. next then says whether the new znode's number is
// the next one, so that nothing was created in dir in between. If they are not
// one transaction, there is a list.
func (s *Session) CreateProtectedInstead(ctx context.Context, dir, name string, data []byte, flags int32, acl []zk.ACL, replaced string) (_ writes.Created, next bool, err error) {
	created, found, err := s.createProtected(ctx, writes.Protected{Dir: dir, Name: name, Data: data, Flags: flags, ACL: acl, Instead: replaced})
	return created, found.Next, err
}

func (s *Session) createProtected(ctx context.Context, p writes.Protected) (writes.Created, writes.Also, error) {
	p.Unhurried = s.unhurried
	return s.session().writes.CreateProtected(ctx, s.scope(), p)
}

// CreateAllProtected is framework.Session.CreateAllProtected.
func (s *Session) CreateAllProtected(ctx context.Context, b ProtectedBatch) (paths []string, failed int, err error) {
	return s.session().writes.CreateAllProtected(ctx, s.scope(), b, s.unhurried)
}

// BatchFits returns ErrTooLarge if CreateAllProtected would.
func (c *Client) BatchFits(b ProtectedBatch) error { return b.Fits(c.scope()) }

// CreateEphemeral creates an ephemeral znode, once: it is not repeated after a
// lost answer, when framework.MaybeApplied is true, and it waits for no
// connection (zk.ErrNoServer). It returns at the answer, or when the connection
// or the session has ended. Creates that are asked for while another is under
// way share transactions, also those in one directory. If one is refused, the
// others go on together. Without acl the znode has the client's.
func (s *Session) CreateEphemeral(path string, data []byte, acl []zk.ACL) error {
	return s.session().writes.CreateEphemeral(s.scope(), path, data, acl)
}

// StartDelete begins to delete the znode at path, whatever its version, and
// returns at once. Of ctx only the values are used, for the observers; it may
// be nil. No create of a contender that is asked for later in this session is
// executed before it, unless the delete has to be sent again: its answer is
// lost, it was in a batch that was refused, or WithBatching is off. finish does
// the rest, and has to be called, soon and on a goroutine of its own: it may
// have to send other writes as well. It returns as Delete does: when the znode
// is gone, the session is over, or the budget of the retry policy is used up.
// The delete may share a request with other deletes and creates of contenders.
// If patient is true, it waits up to a millisecond for one of them.
func (s *Session) StartDelete(ctx context.Context, path string, patient bool) (finish func() error) {
	return s.session().writes.StartDelete(ctx, s.scope(), path, patient)
}

// LookForStrays looks once for the znodes dir/_c_<uuid>-name... of protected
// creates of this session that have failed. left is nil if none is there.
// Otherwise one is being removed, and left is closed when it is gone. A create
// that is executed later is still looked for.
func (s *Session) LookForStrays(dir, name string) (left <-chan struct{}, err error) {
	return s.session().writes.LookForStrays(s.scope(), dir, name)
}

// Discard is framework.Session.Discard.
func (s *Session) Discard(path string) (done <-chan struct{}) {
	return s.session().writes.Discard(s.root.Fix(path))
}

// Created is a protected znode, with a list of its directory.
type Created = writes.Created

// ProtectedBatch is several protected znodes, with other operations.
type ProtectedBatch = writes.Batch
