package writes

import (
	"context"

	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
)

// Writes are the writes of one session that share requests, and the
// znodes of the session that must not be left behind.
type Writes struct {
	*ops.Session
	cfg      Config
	queue    groupCommit
	plain    plainCreates
	searches searches
	strays   strays
}

// Config is what writes must know of their client. Nothing changes it.
type Config struct {
	NoBatching bool // each write is a request
	Observer   Observer
}

// Observer hears of writes. No method waits for an observer of the
// user's.
type Observer interface {
	// Batched says that a request with so many operations was answered.
	Batched(operations int)
	// Values returns a context that has the values of ctx that observers use, and
	// never ends. It calls nothing of ctx, which may be user code.
	Values(ctx context.Context) context.Context
}

// New returns the writes of a session.
func New(s *ops.Session, cfg Config) *Writes {
	w := &Writes{Session: s, cfg: cfg}
	w.queue.session, w.plain.session, w.searches.session, w.strays.session = w, w, w, w
	return w
}

// Listed discards the strays that a list of a directory shows. It never
// blocks.
func (s *Writes) Listed(dir string, names []string) { s.strays.onList(dir, names) }

// Discard deletes a znode in the background, while the session lives. The
// channel it returns is closed when the znode is gone, or the session is over.
func (s *Writes) Discard(full string) (done <-chan struct{}) { return s.strays.discard(full) }
