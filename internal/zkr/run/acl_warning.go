package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// warnOfOpenACL says on stderr that anybody can delete the znodes of the lock,
// if credentials were given, but no ACL. Deleting needs a right at the
// directory alone, which its owner may have restricted. It costs up to three
// requests for each path until it finds an open directory.
func (h *leaseCommand) warnOfOpenACL(ctx context.Context, c *framework.Client) {
	if len(h.acl) > 0 || len(h.to.Auth) == 0 && h.to.AuthFile == "" {
		return
	}
	for _, at := range h.paths {
		if h.isOpen(ctx, c, at) {
			cli.Say(h.in.Stderr, time.Second, fmt.Sprintf("zkr: %s: anybody can delete its znodes and so take the lock, "+
				"since the credentials protect nothing without --acl (auth::cdrwa is for their owner alone)\n", escape.Text(at)))
			return
		}
	}
}

// isOpen reports whether anybody may delete the children of one of the
// directories of the line at a path. One that does not exist will be created
// so.
func (h *leaseCommand) isOpen(ctx context.Context, c *framework.Client, at string) bool {
	dirs := []string{at}
	if h.inSubdirectories {
		dirs = inspect.Directories(at)[1:3]
	}
	return slices.ContainsFunc(dirs, func(dir string) bool {
		acl, _, err := c.GetACL(ctx, dir)
		if err != nil {
			return errors.Is(err, zk.ErrNoNode)
		}
		return slices.ContainsFunc(acl, func(entry zk.ACL) bool {
			return entry.Scheme == "world" && entry.ID == "anyone" && entry.Perms&zk.PermDelete != 0
		})
	})
}
