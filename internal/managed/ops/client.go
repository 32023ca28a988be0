package ops

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/managed/directories"
	"github.com/zkrecipes/zkrecipes/internal/managed/ephemerals"
	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/offers"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	life "github.com/zkrecipes/zkrecipes/internal/managed/session"
	"github.com/zkrecipes/zkrecipes/retry"
)

// Client is what the operations of one client share, whatever the session.
type Client struct {
	Config  Config          // nothing changes it
	Closing <-chan struct{} // closed: the client has begun to close

	*offers.Known // of the servers
	Ephemerals    *ephemerals.Account
	Directories   *directories.Known

	above    Above
	observer Observer
	tasks    *sync.WaitGroup // goroutines, each of which ends by itself

	mu    sync.Mutex                  // guards what follows
	roots map[request.Prefix]struct{} // chroots and namespaces that were found to exist since the latest connect
}

// Config is what operations must know of how their client was made.
type Config struct {
	Client         uint64 // tells the clients of this process apart
	Chroot         request.Prefix
	SessionTimeout time.Duration
	Retry          retry.Policy
	Log            *zap.Logger // never blocks
	ACL            []zk.ACL
	MaxRequest     int
	MaxEphemerals  int // 0: see ephemerals.Account.Limit
	CreateChroot   bool
	NoContainers   bool
	Sweep          time.Duration
}

// Above is the client that the operations are part of. No method is called
// with a mutex of this package held.
type Above interface {
	// Await waits until a session is Connected: in, or any if that is nil.
	// Meanwhile it uses up budget, pause by pause. A nil budget is endless. If
	// patient is true, it waits also while the ensemble rejects the client.
	Await(ctx context.Context, in *Session, budget backoff.BackOff, patient bool) (*Session, error)
	// Live returns the session that there is, nil if there is none.
	Live() *Session
	// GiveBack makes room for an ephemeral znode by another one that nobody
	// needs, and waits until that is gone. It reports false if there is none, or
	// ctx has ended before.
	GiveBack(ctx context.Context) bool
	// ChrootMade says that an operation has created the chroot.
	ChrootMade()
}

func (c *Client) isClosing() bool { return closed.Is(c.Closing) }

// Fits returns an error if a request whose body has size bytes is too large.
func (c *Client) Fits(size int) error { return request.Fits(size, c.Config.MaxRequest) }

// Session is one session, with what the operations in it share.
type Session struct {
	*life.Session
	*offers.Said // by the servers of its connections
	Client       *Client
	Ephemerals   ephemerals.Session
	onList       func(dir string, names []string) // see Listed

	answerSizes answerSizes
}

// Listed says that a directory was listed in this session, and what it has.
func (s *Session) Listed(dir string, names []string) { s.onList(dir, names) }

// explain is that of the chain. s may be nil.
func (s *Session) explain(err error, since time.Time) error {
	if s == nil {
		return err
	}
	return s.Chain().Explain(err, since)
}

// HasEnded reports whether a connection, or the session, has ended.
func (s *Session) HasEnded(on *link.Link) bool {
	select {
	case <-s.Over():
		return true
	default:
		return on.HasEnded()
	}
}
