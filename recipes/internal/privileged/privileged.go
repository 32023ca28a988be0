// Package privileged has the part of package framework that is only for the
// recipes of this module. Other recipes are written with package recipes, or
// with what package framework exports.
package privileged

import (
	"context"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/seam"
)

// Framework does what methods of Client and Session would do. Package framework
// implements it, in privileged.go: a wrong signature there is a panic when any
// program that imports this package starts.
var Framework = seam.Framework.(interface {
	// Attach returns the value that is attached to the client under key. If there
	// is none it attaches what newValue returns. If two goroutines do so at the
	// same time, both get the same value and the other one is dropped. The value
	// lives as long as the client, and all namespaces of the client share it. All
	// locks of one client find each other by it.
	Attach(c *framework.Client, key any, newValue func() any) any
	// Unhurried returns a view of the session in which a CreateProtected that was
	// sent does not return before its answer, or the end of the session, although
	// its context ends. If it has succeeded then, it returns the znode, without a
	// list. That saves a goroutine, and suits a caller that nobody waits for.
	Unhurried(s *framework.Session) *framework.Session
	// StartDelete begins to delete the znode at path, whatever its version, and
	// returns at once. Of ctx only the values are used, for the observers; it may
	// be nil. No create of a contender that is asked for later in this session is
	// executed before it, unless the delete has to be sent again: its answer is
	// lost, it was in a batch that was refused, or WithBatching is off. finish
	// does the rest, and has to be called, soon and on another goroutine. It
	// returns as Delete does: when the znode is gone, the session is over, or the
	// budget of the retry policy is used up. The delete may share a request with
	// other deletes and creates of contenders.
	StartDelete(ctx context.Context, s *framework.Session, path string) (finish func() error)

	// WantLeases reports whether any observer of the client has a function for
	// calls of Acquire or for leases. If none has, a recipe need not describe
	// them.
	WantLeases(c *framework.Client) bool
	// Values returns a context that has the values of ctx and never ends, for
	// requests that nobody waits for. If nobody observes requests or retries it
	// has no values either, which costs nothing. It calls nothing of ctx, which
	// may be user code.
	Values(ctx context.Context, c *framework.Client) context.Context
	// StartAcquire reports that a call of Acquire begins. It returns the context
	// for the rest of the call, and a function that must be called with the
	// result. If an observer ends the goroutine, StartAcquire reports the end
	// itself. It does not panic, nor do the methods that follow.
	StartAcquire(ctx context.Context, c *framework.Client, a framework.Acquire) (during context.Context, end func(framework.AcquireResult))
	// Released, LostReleased and Overran report an event, and wait for the
	// observers. Lost and Revoked do not wait.
	Released(ctx context.Context, c *framework.Client, r framework.Release)
	LostReleased(ctx context.Context, c *framework.Client, l framework.Loss)
	Overran(ctx context.Context, c *framework.Client, o framework.Overrun)
	Lost(ctx context.Context, c *framework.Client, l framework.Loss)
	Revoked(ctx context.Context, c *framework.Client, r framework.Revocation)
})
