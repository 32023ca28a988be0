// Package follow has the part of package cache that is only for the recipes of
// this module that show a cache in another form.
package follow

import (
	"context"

	"github.com/zkrecipes/zkrecipes/internal/seam"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
)

// Cache does what methods of cache.Cache would do. Package cache implements it,
// in views.go: a wrong signature there is a panic when any program that imports
// this package starts.
var Cache = seam.Cache.(interface {
	// Look returns what the cache shows now. over says that it was not started,
	// is closed, or has Failed. changed is closed at the next change.
	Look(c *cache.Cache) (view cache.View, status cache.Status, over bool, changed <-chan struct{})
	// During returns a context that ends with ctx, and when the cache is closed or
	// has failed. Its state says so by then.
	During(c *cache.Cache, ctx context.Context) (context.Context, context.CancelFunc)
})
