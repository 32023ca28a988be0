package framework

import "time"

// PresenceChange is a change of the state of a presence.Node.
type PresenceChange struct {
	// ID tells the Nodes of a process apart.
	ID uint64
	// Path is the path of the znode at the ensemble, as presence.New was given it.
	Path string
	// Label names a group of Nodes to count together. It is the label that
	// recipes.WithLabel has set, otherwise the path of the presence.Group that was
	// joined or of the service of package discovery, otherwise the path.
	Label string
	// From and To are "pending", "standing", "suspended", "taken", "removed" or
	// "closed": see presence.State. From is empty when the Node is started, and To
	// is "closed" once, at its end.
	From, To string
	At       time.Time
	// Away is when the Node was standing last, or was started. If To is
	// "standing", the znode has not stood, as far as was known, from Away to At.
	Away    time.Time
	Session int64         // that the znode belongs to: see presence.Status
	Timeout time.Duration // of the client's session
	Err     error         // why it is not standing
}

// CacheInfo says which cache an event is about.
type CacheInfo struct {
	ID    uint64 // tells the caches of a process apart
	Path  string // of the root at the ensemble
	Label string // that recipes.WithLabel has set, otherwise the path
}

// CacheChange is a change of the state of a cache.Cache.
type CacheChange struct {
	Cache CacheInfo
	// From and To are "syncing", "synced", "stale", "failed" or "closed": see
	// cache.State. From is empty when the cache is started.
	From, To string
	At       time.Time
	Err      error // why it is not synced
}

// CacheRead is one time that a cache has read znodes.
type CacheRead struct {
	Cache  CacheInfo
	Reason CacheReadReason
	Began  time.Time
	Took   time.Duration
	Err    error // nil: what was read is shown
	// Znodes, Bytes and Zxid are those of the view that is shown now: see
	// cache.Status.
	Znodes int
	Bytes  int64
	Zxid   int64
	// Added, Changed and Removed are its differences to the view before.
	Added, Changed, Removed int
}

// CacheReadReason says why a cache has read.
type CacheReadReason string

// Why a cache has read. After the first four it has walked through its whole
// tree.
const (
	// ReadFirst: there was no whole view yet.
	ReadFirst CacheReadReason = "first"
	// ReadReconnect: events may be missing, because the connection was lost, or
	// the watch. With one-shot watches that is so in a new session only.
	ReadReconnect CacheReadReason = "reconnect"
	// ReadOverflow: more events have come than a cache keeps.
	ReadOverflow CacheReadReason = "overflow"
	// ReadSize: the view seemed to be larger than cache.WithMaxBytes allows.
	ReadSize CacheReadReason = "size"
	// ReadEvents: events have named these znodes.
	ReadEvents CacheReadReason = "events"
	// ReadRecheck: the recheck has found that these znodes changed without an
	// event. The reads of the recheck itself are not reported: see
	// cache.WithRecheck.
	ReadRecheck CacheReadReason = "recheck"
	// ReadReach: Cache.Reach needs a later transaction.
	ReadReach CacheReadReason = "reach"
)

// Walk reports whether the whole tree was read.
func (r CacheReadReason) Walk() bool {
	switch r {
	case ReadFirst, ReadReconnect, ReadOverflow, ReadSize:
		return true
	}
	return false
}

// EphemeralsChange says how much of its limit a session uses for the paths of
// its ephemeral znodes.
type EphemeralsChange struct {
	Client  uint64 // tells the clients of a process apart
	Bytes   int    // in use, or reserved
	Limit   int    // what WithMaxEphemerals has set, or its default
	Percent int    // of the limit, rounded down
}

// wantReads reports whether any observer has a function for what caches read.
// If none has, a cache need not count it.
func (o observerList) wantReads() bool {
	for _, each := range o {
		if each.CacheRead != nil {
			return true
		}
	}
	return false
}

func (o observerList) presenceChanged(change PresenceChange) {
	for _, each := range o {
		if fn := each.PresenceChanged; fn != nil {
			each.events.Post(func() { fn(change) })
		}
	}
}

func (o observerList) cacheChanged(change CacheChange) {
	for _, each := range o {
		if fn := each.CacheChanged; fn != nil {
			each.events.Post(func() { fn(change) })
		}
	}
}

func (o observerList) cacheRead(r CacheRead) {
	for _, each := range o {
		if fn := each.CacheRead; fn != nil {
			each.events.Offer(func() { fn(r) })
		}
	}
}

func (o observerList) ephemeralsChanged(change EphemeralsChange) {
	for _, each := range o {
		if fn := each.EphemeralsChanged; fn != nil {
			each.events.Post(func() { fn(change) })
		}
	}
}
