// Package option has what the options of all recipes are made of: which
// constructor takes them, and what they set. It knows no recipe and no engine,
// so a recipe without a line can have options of package recipes. What each
// means is said where users find it, in the packages that have aliases of these
// types.
package option

// A constructor takes what has its method. Nobody outside can declare one; by
// embedding a type has those of another one.
type (
	ForLine      interface{ forLine() }
	ForMutex     interface{ forMutex() }
	ForRWLock    interface{ forRWLock() }
	ForSemaphore interface{ forSemaphore() }
	ForElection  interface{ forElection() }
	ForBarrier   interface{ forBarrier() }
	ForPresence  interface{ forPresence() }
	ForCounter   interface{ forCounter() }
	ForCache     interface{ forCache() }
)

// An option that one recipe has alone sets something of its configuration, a C.
type (
	Mutex[C any]     func(*C)
	RWLock[C any]    func(*C)
	Semaphore[C any] func(*C)
	Election[C any]  func(*C)
	Presence[C any]  func(*C)
	Counter[C any]   func(*C)
	Cache[C any]     func(*C)
	Follow[C any]    func(*C) // of a cache that a group or a service has
)

func (Mutex[C]) forMutex()         {}
func (RWLock[C]) forRWLock()       {}
func (Semaphore[C]) forSemaphore() {}
func (Election[C]) forElection()   {}
func (Presence[C]) forPresence()   {}
func (Counter[C]) forCounter()     {}
func (Cache[C]) forCache()         {}
func (Follow[C]) forCache()        {}
func (Follow[C]) forPresence()     {}

// LineMark makes what embeds it an option of NewLine.
type LineMark struct{}

func (LineMark) forLine() {}

// SnapshotOf is an option of cache.New that names what the snapshot is of: so
// several caches can have one option for their files.
type SnapshotOf string

func (SnapshotOf) forCache() {}
