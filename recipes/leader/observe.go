package leader

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/missing"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recheck"
)

// Observe returns a channel that receives each new leader, of whatever process.
// It closes the channel when ctx ends or the client closes. The first value is
// the present leader; the zero Participant stands for nobody. A newer value
// replaces one that was not received yet: leaders that came and went in between
// may be left out, but the last one is never missed. It watches the leader's
// znode alone, and the directory while there is no leader. While it cannot read
// who leads, as where the client's chroot does not exist, it logs the error
// once a second and sends nothing; Leader returns that error.
func (e *Election) Observe(ctx context.Context) <-chan recipes.Participant {
	leaders := make(chan recipes.Participant, 1)
	if e.client == nil { // a zero Election
		close(leaders)
		return leaders
	}
	go func() {
		defer close(leaders)
		var last recipes.Participant
		told := false
		for {
			now, err := e.Leader(ctx)
			wiped := told && missing.Chroot(err) // with the leader
			if err != nil && !errors.Is(err, ErrNoLeader) && !wiped {
				if errors.Is(err, framework.ErrClosed) || ctx.Err() != nil {
					return
				}
				e.client.Logger().Warn("cannot observe the leader", zap.String("path", e.FullPath()), zap.Error(err))
				if e.rest(ctx, observePause) != nil {
					return
				}
				continue
			}
			if !told || now.Path != last.Path {
				select { // only this goroutine sends: after the old value is out there is room
				case <-leaders:
				default:
				}
				leaders <- now
				last, told = now, true
			}
			if err := e.awaitChange(ctx, now); err != nil && e.rest(ctx, observePause) != nil {
				return
			}
		}
	}()
	return leaders
}

// observePause spaces the looks of an observer that meets errors.
const observePause = time.Second

// awaitChange returns when now may lead no longer, or somebody may, if nobody
// did.
func (e *Election) awaitChange(ctx context.Context, now recipes.Participant) error {
	if now.Path == "" {
		return e.awaitCandidates(ctx, 1)
	}
	// Not WatchData, which goes on to watch for the znode to come again: that name
	// never does, and the watch would stay.
	sess, err := (*managed.Client)(e.client).AwaitSession(ctx)
	if err != nil {
		return err
	}
	changed, err := sess.Watch(ctx, now.Path)
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, framework.ErrSessionLost) {
		return nil
	}
	if err != nil {
		return err
	}
	defer sess.Unwatch(changed)
	for {
		select {
		case <-changed: // or the session is over
			return nil
		case <-ctx.Done(): // the next look says so
			return nil
		case <-time.After(recheck.Interval(sess)): // an event can be lost
			if recheck.Gone(ctx, sess, now.Path) {
				return nil
			}
		}
	}
}
