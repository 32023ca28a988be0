package writes

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// Creates of ephemeral znodes at fixed paths also share transactions, but not
// those of contenders: see groupcommit.go. They are not in any order, so
// several in one directory may share one, and those of a refused multi go again
// together. One request is under way at a time, and what is asked for meanwhile
// is sent with the next: a client that makes a thousand znodes in a new session
// needs five.
//
// A multi names only the first operation that is refused. Others may be refused
// for the same reason. That is found out by reads, which are no transactions,
// or concluded:
//
//   - A znode exists: all that wait look once whether theirs do.
//   - The directory is missing: so it is for all in it.
//   - Anything else, such as a quota: once a second create in the directory is
//     refused so, all in it with the same ACL are.
type plainCreates struct {
	session *Writes

	mu      sync.Mutex // guards what follows
	queue   []*plainCreate
	running bool
}

// gathering is how long the first create waits for others that are due at the
// same time, in goroutines of their own.
const gathering = time.Millisecond

// plainCreate is one create.
type plainCreate struct {
	op     *zk.CreateRequest // with an absolute path
	dir    string
	alone  bool       // the answer to a multi with it made no sense
	looked bool       // it did not exist shortly before
	told   bool       // the result is known
	result chan error // has room for one
}

func (c *plainCreate) tell(err error) {
	c.told = true
	c.result <- err
}

// CreateEphemeral creates an ephemeral znode, once: it is not repeated after a
// lost answer, when framework.MaybeApplied is true, and it waits for no
// connection (zk.ErrNoServer). It returns at the answer, or when the
// connection or the session has ended. Creates that are asked for while
// another is under way share transactions, also those in one directory. If one
// is refused, the others go on together. Without acl the znode has the
// client's.
func (s *Writes) CreateEphemeral(w ops.Scope, path string, data []byte, acl []zk.ACL) error {
	fail := func(err error, unsure bool) error {
		return w.NameMissingRoot(context.Background(), &zkerr.Op{Op: request.NameCreate, Path: path, Err: zkerr.WithMeaning(err), Maybe: unsure})
	}
	if err := request.ValidatePath(path); err != nil {
		return fail(err, false)
	}
	if len(acl) == 0 {
		acl = w.Client.Config.ACL
	}
	full := w.Root.Fix(path)
	if err := w.Client.Fits(request.TextSize(full) + request.CreateSize(data, acl)); err != nil {
		return fail(err, false)
	}
	if err := s.Err(); err != nil {
		return fail(err, false)
	}
	dir, _ := layout.Split(full)
	c := &plainCreate{op: &zk.CreateRequest{Path: full, Data: data, Acl: acl, Flags: zk.FlagEphemeral}, dir: dir, result: make(chan error, 1)}
	claim, err := s.Claim(context.Background(), w.Allowance, c.op)
	if err != nil {
		return fail(cmp.Or(s.Err(), err), false)
	}
	s.plain.add(c)
	select {
	case err := <-c.result:
		claim.Settle(err, full)
		if err == nil {
			return nil
		}
		what := zkerr.Classify(err)
		if what == zkerr.Expired {
			s.NoteExpired()
		}
		return fail(cmp.Or(s.Err(), err), what == zkerr.Ambiguous)
	case <-s.Over():
		claim.Settle(zk.ErrConnectionClosed)
		return fail(s.Err(), true)
	}
}

func (p *plainCreates) add(c *plainCreate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, c)
	if !p.running {
		p.running = true
		time.AfterFunc(gathering, p.run) // ends with the queue: every request is answered, or fails with its connection
	}
}

// run sends what is queued, until there is nothing.
func (p *plainCreates) run() {
	var waiting []*plainCreate
	refusals := make(map[refusal]int)
	for {
		p.mu.Lock()
		waiting, p.queue = append(waiting, p.queue...), nil
		if p.running = len(waiting) > 0; !p.running {
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		n := p.fit(waiting)
		p.send(waiting[:n:n], waiting[n:], refusals)
		waiting = slices.DeleteFunc(waiting, func(c *plainCreate) bool { return c.told })
	}
}

// refusal is why creates in a directory are refused.
type refusal struct{ dir, why string }

// fit returns how many of those that wait go into the next request.
func (p *plainCreates) fit(waiting []*plainCreate) int {
	room := p.session.Client.Config.MaxRequest / batchShare
	for n, c := range waiting {
		room -= request.OperationSize(c.op)
		if n > 0 && (room < 0 || n == batchOps || c.alone || waiting[0].alone || p.session.cfg.NoBatching) {
			return n
		}
	}
	return len(waiting)
}

// send sends one request, and tells results. Those of the batch that were not
// told have to be sent again.
func (p *plainCreates) send(batch, rest []*plainCreate, refusals map[refusal]int) {
	s := p.session
	tell := func(err error) {
		for _, c := range batch {
			c.tell(err)
		}
	}
	if !s.IsReady() {
		tell(zk.ErrNoServer)
		return
	}
	named, err := 0, error(nil)
	if len(batch) == 1 {
		op := batch[0].op
		_, err = ops.Observed(context.Background(), s.Session, ops.Request{Op: request.NameCreate, Path: op.Path}, func(conn *zk.Conn) (string, error) {
			end := s.Ephemerals.Begin(op.Path)
			made, err := request.Create(conn, op.Path, op.Data, op.Flags, op.Acl)
			end(ops.IsLost(err))
			return made, err
		})
	} else {
		operations := make([]any, len(batch))
		for i, c := range batch {
			operations[i] = c.op
		}
		var responses []zk.MultiResponse
		ask := ops.Request{Op: request.NameMulti, Path: batch[0].op.Path, Operations: len(operations)}
		responses, err = ops.Observed(context.Background(), s.Session, ask, func(*zk.Conn) ([]zk.MultiResponse, error) { return s.Multi(operations) })
		s.cfg.Observer.Batched(len(operations))
		if named = request.Refused(responses, len(operations)); named >= 0 {
			err = responses[named].Error
		}
	}
	if err == nil || zkerr.Classify(err) != zkerr.Final {
		tell(err)
		return
	}
	if named < 0 {
		for _, c := range batch {
			c.alone = true
		}
		return
	}
	refused := batch[named]
	refused.tell(err)
	if errors.Is(err, zk.ErrNodeExists) {
		p.look(batch)
		p.look(rest)
		return
	}
	why := refusal{refused.dir, err.Error()}
	if refusals[why]++; errors.Is(err, zk.ErrNoNode) || refusals[why] > 1 {
		for _, c := range slices.Concat(batch, rest) {
			if !c.told && c.dir == refused.dir && slices.Equal(c.op.Acl, refused.op.Acl) {
				c.tell(err)
			}
		}
	}
}

// look tells those whose znode exists. The server of this session has applied
// the transaction that was refused, so what exists then is seen.
func (p *plainCreates) look(all []*plainCreate) {
	all = slices.DeleteFunc(slices.Clone(all), func(c *plainCreate) bool { return c.looked || c.told })
	paths := make([]string, len(all))
	for i, c := range all {
		paths[i] = c.op.Path
	}
	if _, found, err := p.session.ReadMany(paths); err == nil {
		for i, c := range all {
			c.note(found[i].Err == nil || errors.Is(found[i].Err, zk.ErrNoAuth))
		}
		return
	}
	var looks sync.WaitGroup
	for _, c := range all {
		looks.Go(func() {
			found, err := ops.Observed(context.Background(), p.session.Session, ops.Request{Op: request.NameExists, Path: c.op.Path}, func(conn *zk.Conn) (bool, error) {
				found, _, err := conn.Exists(c.op.Path)
				return found, err
			})
			if err == nil {
				c.note(found)
			}
		})
	}
	looks.Wait()
}

// note notes what a look has found.
func (c *plainCreate) note(found bool) {
	if c.looked = true; found {
		c.tell(zk.ErrNodeExists)
	}
}
