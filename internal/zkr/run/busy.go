package run

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/ratelimit"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/internal/zkr/live"
)

// The look at who holds a lock that could not be acquired must not print a
// page.
const namedHolders = 3

// whoHolds says who holds the locks at paths and how many clients wait, in one
// line. It leaves out what the session own holds. It returns an empty text if
// it cannot find out in time, and whether a server has answered at all. It
// costs few requests, however many wait.
func whoHolds(ctx context.Context, c *framework.Client, paths []string, own int64) (text string, answered bool) {
	ctx, cancel := context.WithTimeout(ctx, cli.LookTimeout)
	defer cancel()
	r := &answers{Client: c}
	var all []string
	for _, path := range paths {
		line, err := inspect.Read(ctx, r, path, inspect.WithoutDetails())
		if err == nil {
			err = inspect.Fill(ctx, r, &line, namedHolders)
		}
		switch {
		case err != nil:
			return "", r.any || cli.IsAnswered(err)
		case len(line.Holders) == 0 && len(line.Waiting) == 0: // of several paths, another one is the busy one
			continue
		case own != 0 && slices.ContainsFunc(line.Holders, func(holder inspect.Contender) bool { return holder.Session == own }):
			continue
		}
		verb := "held"
		if line.Election {
			verb = "led"
		}
		text := fmt.Sprintf("%s by %s, %d waiting", verb, names(line.Holders), len(line.Waiting))
		if len(paths) > 1 {
			text = path + " " + text
		}
		all = append(all, text)
	}
	if len(all) == 0 {
		return "nobody holds it now", r.any
	}
	return strings.Join(all, "; "), r.any
}

// answers is a client that notes whether a server has answered its sync, which
// begins each look.
type answers struct {
	*framework.Client
	any bool
}

func (r *answers) Sync(ctx context.Context, path string) error {
	err := r.Client.Sync(ctx, path)
	r.any = r.any || cli.IsAnswered(err)
	return err
}

// sayWait says on stderr, after a while, which holders zkr waits for, unless it
// is to be quiet. From then on it also says when no server answers, until stop
// is called.
func (h *leaseCommand) sayWait(ctx context.Context, c *framework.Client, waiting string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { // ends with stop
		defer close(ended)
		if ratelimit.Sleep(ctx, cli.AWhile) != nil {
			return
		}
		var own int64
		if session, err := c.Session(); err == nil {
			own = session.ID()
		}
		text, answered := whoHolds(ctx, c, h.paths, own)
		if ctx.Err() != nil {
			return
		}
		if !answered {
			text = "no server answers"
		} else if h.quiet {
			text = ""
		}
		if text != "" {
			cli.Say(h.in.Stderr, 0, fmt.Sprintf("zkr: %s: %s: %s\n", escape.Text(h.path()), waiting, escape.Text(text)))
		}
		defer cli.SayDisconnects(c, h.in.Stderr, escape.Text(h.path())+": "+waiting)()
		<-ctx.Done()
	}()
	return func() {
		cancel()
		<-ended
	}
}

// names says who the first of the holders are.
func names(holders []inspect.Contender) string {
	if len(holders) == 0 {
		return "nobody now"
	}
	var all []string
	for i, c := range live.ContendersOf(holders[:min(namedHolders, len(holders))], time.Now()) {
		if holders[i].Created == 0 {
			all = append(all, "a client whose znode may not be read")
			continue
		}
		all = append(all, fmt.Sprintf("%s (session %s, joined %v ago)", c.Who(), c.Session, c.Age()))
	}
	if more := len(holders) - len(all); more > 0 {
		all = append(all, fmt.Sprintf("%d more", more))
	}
	return strings.Join(all, ", ")
}
