package recipes

import (
	"bytes"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/identity"
	"github.com/zkrecipes/zkrecipes/recipes/internal/bridge"
	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
)

// A LineOption is an option of NewLine. A bad value is an error of the
// constructor.
type LineOption = option.ForLine

// The options that several recipes have. Each means the same in all of them,
// and is only taken by the constructors where it makes sense. A type with more
// of them embeds the one before it. The zero values change nothing.

// A LockOption is accepted by NewLine, locks.NewMutex, locks.NewKeyed and
// rwlock.New.
type LockOption = option.LockOption

// A LeaseOption is accepted by what accepts a LockOption, and by semaphore.New.
// It embeds a LockOption.
type LeaseOption = option.LeaseOption

// A ZnodeOption is accepted by every recipe with a line: by what accepts a
// LeaseOption, and by leader.New. It embeds a LeaseOption.
type ZnodeOption = option.ZnodeOption

// A DataOption is accepted by what accepts a ZnodeOption, and by barrier.New
// and barrier.NewDouble. It embeds a ZnodeOption.
type DataOption = option.DataOption

// An AnyOption is accepted by what accepts a DataOption, and by presence.New
// and counter.New. It embeds a ZnodeOption.
type AnyOption = option.AnyOption

// A LabelOption is accepted by what accepts an AnyOption, and by cache.New. It
// embeds an AnyOption.
type LabelOption = option.LabelOption

// WithData sets the data of the contender's znode, by which others see who it
// is: "zkr inspect" and Participants show it. Default: the host's name and the
// process id, as "web-1 pid 4711". WithData(nil) leaves the data empty. For
// every recipe but presence, whose constructor takes the data: NewLine,
// locks.NewMutex, locks.NewKeyed, rwlock.New, semaphore.New, leader.New,
// barrier.New and barrier.NewDouble.
func WithData(data []byte) DataOption {
	data = bytes.Clone(data)
	return option.Data(func(s *option.Shared) { s.Data = data })
}

// WithACL sets the ACL of the recipe's own znode; directories have the
// client's. Default: the client's. For every recipe: NewLine, locks.NewMutex,
// locks.NewKeyed, rwlock.New, semaphore.New, leader.New, presence.New,
// counter.New, barrier.New and barrier.NewDouble.
func WithACL(acl ...zk.ACL) AnyOption {
	acl = append([]zk.ACL{}, acl...)
	return option.Any(func(s *option.Shared) { s.ACL = acl })
}

// WithMaxHold sets the longest time for which a lease is held. After that time
// the lease is declared lost, with ErrMaxHold. Its znode is removed when the
// holder releases the lease, or else at the deadline that the session has at
// the loss, which is at most a session timeout later. At least 1ms. Default 0:
// for as long as the session lives.
//
// A lease that re-enters another one ends with it. The limit of the first lease
// applies to both, and counts from the grant of the first one.
//
// A read lease from a downgrade has its own limit. With WithMaxHold only
// callers that were waiting together share a znode, and it does not linger.
// For NewLine, locks.NewMutex, locks.NewKeyed, rwlock.New and semaphore.New.
func WithMaxHold(d time.Duration) LeaseOption {
	return option.Lease(func(s *option.Shared) { s.MaxHold = d })
}

// WithHandoffs sets how often the znode of a released lease is handed off to
// the next waiter of the same client, without a request, before other processes
// in line are granted: n times, and for a session timeout at most. While nobody
// else stands in line it goes from one caller to the next without limit. 0
// turns handoffs off: each grant joins the end of the line. Default 16.
// For NewLine, locks.NewMutex, locks.NewKeyed and rwlock.New.
func WithHandoffs(n int) LockOption {
	return option.Lock(func(s *option.Shared) { s.Handoffs = n })
}

// WithLinger keeps the znode for d after its last release, while nobody else
// stands in line: an Acquire of this process within d makes no request. The
// lock counts as in use meanwhile, and Participants lists this process as its
// holder. It is given up as soon as another process joins the line, so an
// Acquire there waits for a round trip or two more. A TryAcquire there does not
// join, and fails with ErrBusy: an Acquire with a short time (Within) gets the
// lock. It costs a watch and a list for each lease that made requests, and a
// list every quarter of the session timeout. At least 1ms. Default 0: the znode
// is removed immediately.
// For NewLine, locks.NewMutex, locks.NewKeyed and rwlock.New.
func WithLinger(d time.Duration) LockOption {
	return option.Lock(func(s *option.Shared) { s.Linger = d })
}

// WithoutReentry makes an Acquire fail at once with ErrDeadlock if its context
// carries a held lease on the same lock, or its owner has one. A downgrade of a
// read/write lock is no re-entry. Default: such an Acquire returns another
// lease at once.
// For NewLine, locks.NewMutex, locks.NewKeyed and rwlock.New.
func WithoutReentry() LockOption {
	return option.Lock(func(s *option.Shared) { s.NoReentry = true })
}

// WithAsyncRelease makes Release return without waiting for the ensemble's
// answer. Release then checks by the clock that the lease was held until now,
// begins to remove the znode, and returns. The next Acquire of this client does
// not wait for the answer either: the ensemble executes the requests of a
// session in order. So an uncontended Acquire and its Release take one round
// trip together, not two. The delete waits up to a millisecond for the next
// create of any lock of this client, unless others are known to wait: both are
// one request then, and one transaction. If it is the same lock, that request
// is all that the next Acquire costs, as long as no other child of the lock's
// directory is seen. If several leases share a znode, as when a lock is
// re-entered, the option of the lease that is released last counts.
//
// A nil error then means that the lease was not lost, as far as this client
// knew and the clock can prove. What such a Release cannot know:
//   - whether somebody else deleted the znode shortly before: the client logs
//     it when the answer to the delete arrives;
//   - when the znode is gone, which is when others are granted. If the delete
//     fails, it is repeated in the background until it succeeds or the session
//     ends. A refusal, for instance by an ACL, is only logged, and the next
//     Acquire waits behind the znode.
//
// EndLinger waits until these znodes are gone. A process that is about to exit
// should close the client, which removes the znode by ending the session.
// Default: Release returns when the znode is gone.
// For every recipe: NewLine, locks.NewMutex, locks.NewKeyed, rwlock.New,
// semaphore.New and leader.New.
func WithAsyncRelease() ZnodeOption {
	return option.Znode(func(s *option.Shared) { s.AsyncRelease = true })
}

// WithLabel sets what observers count together: see Acquire. Default:
// the path at the ensemble, for the locks of a locks.Keyed its root, for the
// members of a presence.Group its path, and for instances of a service that of
// the service. There should not be many labels in a process. The log lines of
// presences, caches, counters and barriers have it. For every recipe: NewLine,
// locks.NewMutex, locks.NewKeyed, rwlock.New, semaphore.New, leader.New,
// presence.New, presence.NewGroup, discovery.New, cache.New, counter.New,
// barrier.New and barrier.NewDouble. To import this package, for an option too,
// links the engine of the locks: caches, presences, barriers and services do
// without it otherwise.
func WithLabel(label string) LabelOption { return option.Label(label) }

// settings is what the options of a line set.
type settings struct {
	option.Shared
	inside bridge.Inside
}

// newSettings applies opts to the defaults.
func newSettings(opts []LineOption) (settings, error) {
	s := settings{option.Shared{Data: []byte(identity.Process()), Handoffs: line.DefaultHandoffs}, bridge.Inside{Package: "recipes"}}
	for _, opt := range opts {
		if inside, ok := opt.(bridge.Inside); ok {
			s.inside = inside
		} else if !s.Set(opt) {
			return s, fmt.Errorf("option %T: not an option of this package", opt)
		}
	}
	if s.inside.OwnQueue {
		s.Handoffs = 0
	}
	return s, nil
}

// config is what the engine takes of them.
func (s *settings) config() line.Config {
	return line.Config{
		Data: s.Data, ACL: s.ACL, MaxHold: s.MaxHold, Handoffs: s.Handoffs, Linger: s.Linger,
		AsyncRelease: s.AsyncRelease, StopLinger: s.inside.StopLinger,
	}
}
