package option

import (
	"time"

	"github.com/go-zookeeper/zk"
)

// Shared is what the options set that several recipes have.
type Shared struct {
	Data         []byte
	ACL          []zk.ACL // nil: the client's
	Label        string   // empty: none was given
	MaxHold      time.Duration
	Handoffs     int
	Linger       time.Duration
	AsyncRelease bool
	NoReentry    bool
}

// Set sets what an option of package recipes does. It reports whether it is
// one.
func (s *Shared) Set(opt any) bool {
	o, ok := opt.(interface{ apply(*Shared) })
	if ok {
		o.apply(s)
	}
	return ok
}

// The options of package recipes. The zero ones set nothing.
type (
	LockOption  struct{ set func(*Shared) }
	LeaseOption struct{ LockOption }
	ZnodeOption struct{ LeaseOption }
	DataOption  struct{ ZnodeOption }
	AnyOption   struct{ ZnodeOption }
	LabelOption struct{ AnyOption }
)

func (LockOption) forLine()       {}
func (LockOption) forMutex()      {}
func (LockOption) forRWLock()     {}
func (LeaseOption) forSemaphore() {}
func (ZnodeOption) forElection()  {}
func (DataOption) forBarrier()    {}
func (AnyOption) forBarrier()     {}
func (AnyOption) forPresence()    {}
func (AnyOption) forCounter()     {}
func (LabelOption) forCache()     {}

func (o LockOption) apply(s *Shared) {
	if o.set != nil {
		o.set(s)
	}
}

// Lock returns an option of each lock.
func Lock(set func(*Shared)) LockOption { return LockOption{set} }

// Lease returns an option of what gives leases to whoever comes.
func Lease(set func(*Shared)) LeaseOption { return LeaseOption{Lock(set)} }

// Znode returns an option of each recipe with a line.
func Znode(set func(*Shared)) ZnodeOption { return ZnodeOption{Lease(set)} }

// Data returns an option of each recipe with a line, and of barriers.
func Data(set func(*Shared)) DataOption { return DataOption{Znode(set)} }

// Any returns an option of each recipe that makes a znode.
func Any(set func(*Shared)) AnyOption { return AnyOption{Znode(set)} }

// Label returns recipes.WithLabel.
func Label(label string) LabelOption {
	return LabelOption{Any(func(s *Shared) { s.Label = label })}
}
