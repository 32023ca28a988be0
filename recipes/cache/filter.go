package cache

import (
	"fmt"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// failure is an error that ends a cache.
type failure struct{ error }

func (f *failure) Unwrap() error { return f.error }

// passing returns those of the reads that the filter lets through, with all
// that is above them. What the tree holds has passed before. The filter is the
// user's: it may block, panic or end its goroutine.
func (c *Cache) passing(reads []request.Read, held *tree) ([]request.Read, error) {
	if c.cfg.filter == nil {
		return reads, nil
	}
	var pass []request.Read
	at := ""
	ended := supplied.Go(c.client.Logger(), func() error {
		for _, read := range reads {
			for at = read.Path; at != c.root && held.get(at) == nil && c.cfg.filter(at); {
				at = parent(at)
			}
			if at == c.root || held.get(at) != nil {
				pass = append(pass, read)
			}
		}
		return nil
	})
	select {
	case err := <-ended:
		if err != nil {
			return nil, &failure{fmt.Errorf("the filter failed at %s: %w", at, err)}
		}
		return pass, nil
	case <-c.life.Done():
		return nil, c.life.Err()
	}
}
