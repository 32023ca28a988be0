package barrier

import (
	"context"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/managed"
)

// bell hears of the creation of ready, also if it is deleted at once: a member
// of Kazoo deletes it as soon as it leaves.
type bell struct {
	sess *managed.Session
	path string          // of ready
	over <-chan struct{} // closed: events may be missed, look again; nil: it is not armed
	stop func()          // ends what arm has begun

	mu    sync.Mutex
	there bool          // the latest event was a creation
	waits bool          // see await
	rung  chan struct{} // closed: ready was created while the member waited
}

func newBell(sess *managed.Session, path string) *bell {
	return &bell{sess: sess, path: path, stop: func() {}, rung: make(chan struct{})}
}

// arm makes the bell hear of events, unless it does. anew is true if it did
// not: a list that was made before may lack a ready of which there is no event.
// arm uses a recursive watch, since a server from before 3.6 cannot remove any
// other.
func (b *bell) arm(ctx context.Context) (anew bool, err error) {
	switch {
	case closed.Is(b.over):
		b.stop()
		b.stop, b.over = func() {}, nil
	case b.over != nil:
		return false, nil
	}
	hear := func(_ uint64, what zk.EventType, _ string) { b.hear(what) }
	for tries := 3; tries > 0; tries-- {
		over := make(chan struct{}) // of this try: one that fails may be told of its end as well
		_, stop, err := b.sess.WatchTree(ctx, b.path, func(order uint64, what zk.EventType, path string) {
			if hear(order, what, path); what == zk.EventNotWatching {
				close(over)
			}
		})
		if err == nil {
			b.stop, b.over = stop, over
			return true, nil
		}
		if managed.TreesRefused(err) {
			break
		}
		if _, _, err := b.sess.Exists(ctx, b.path); err != nil { // waits for a connection
			return false, err
		}
	}
	_, _, changed, err := b.sess.WatchExists(ctx, b.path)
	if err != nil {
		return false, err
	}
	stop, err := b.sess.Events(b.path, func(_ uint64, what zk.EventType, _ string) { b.hearOnce(what) }, nil)
	if err != nil { // without a connection: over is about to be closed
		stop = func() {}
	}
	b.over, b.stop = changed, func() {
		stop()
		b.sess.Unwatch(changed)
	}
	return true, nil
}

// hear takes an event. It runs on the goroutine that reads the connection.
func (b *bell) hear(what zk.EventType) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch what {
	case zk.EventNodeCreated:
		b.there = true
	case zk.EventNodeDeleted, zk.EventNotWatching: // or it may have been deleted meanwhile
		b.there = false
	}
	b.ringLocked()
}

// hearOnce is hear for a watch of a single event, which does not hear of the
// deletion after a creation. So a creation counts only while the member waits.
func (b *bell) hearOnce(what zk.EventType) {
	b.mu.Lock()
	early := what == zk.EventNodeCreated && !b.waits
	b.mu.Unlock()
	if !early {
		b.hear(what)
	}
}

// await says that the member's znode is there, and that a list which was made
// later did not show ready: any creation from then on is a later one. An event
// comes before an answer that shows its change. So if the latest event so far
// was a creation, it came after the list.
func (b *bell) await() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waits = true
	b.ringLocked()
}

func (b *bell) ringLocked() {
	if b.there && b.waits && !closed.Is(b.rung) {
		close(b.rung)
	}
}
