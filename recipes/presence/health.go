package presence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// ErrUnhealthy is why a znode is Pending while the health check fails.
var ErrUnhealthy = errors.New("health check failed")

// checkHealth calls the check once per interval, until the Node is closed.
func (n *Node) checkHealth() {
	for {
		began := time.Now()
		result := supplied.Go(n.client.Logger(), func() error {
			ctx, cancel := context.WithTimeout(context.Background(), n.cfg.every)
			defer cancel()
			return n.cfg.health(ctx)
		})
		late := time.After(n.cfg.every)
		for returned := false; !returned; {
			select {
			case err := <-result:
				returned = true
				if time.Since(began) >= n.cfg.every {
					err = context.DeadlineExceeded
				}
				n.setHealth(err)
			case <-late:
				n.setHealth(context.DeadlineExceeded)
			case <-n.done:
				return
			}
		}
		select {
		case <-time.After(n.cfg.every - time.Since(began)):
		case <-n.done:
			return
		}
	}
}

func (n *Node) setHealth(err error) {
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrUnhealthy, err)
	}
	n.mu.Lock()
	n.ill = err
	n.mu.Unlock()
	n.poke()
}

func (n *Node) illness() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ill
}
