package znode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
)

// runTree prints what is at and below the path, and then every difference.
func (w *watcher) runTree(ctx context.Context, c *framework.Client, errs io.Writer) error {
	if err := cli.CheckTree(ctx, c, w.path); err != nil {
		return err
	}
	k, err := cache.New(c, w.path)
	if err != nil {
		return cli.Usage("%w", err)
	}
	k.Start()
	defer k.Close()
	batches, done := make(chan cache.Batch), make(chan struct{})
	defer close(done)
	defer k.Listen(func(b cache.Batch) {
		select {
		case batches <- b:
		case <-done:
		}
	})()
	stderr := cli.StartPrinter(errs)
	defer stderr.Finish(100 * time.Millisecond)
	say := func(text string) { stderr.Offer(fmt.Sprintf("zkr: %s: %s\n", escape.Text(w.path), text)) }
	var late <-chan time.Time // nil: the view is up to date
	said := ""                // why it is not
	var unreadable []string
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case b := <-batches:
			err := w.onBatch(b)
			if errors.Is(err, errSeen) {
				return nil
			} else if err != nil {
				return err
			}
			unreadable = stderr.OfferUnreadable(unreadable, b.Status.Unreadable)
			switch synced := b.Status.State == cache.Synced; {
			case synced && said != "":
				say("up to date again")
				fallthrough
			case synced:
				late, said = nil, ""
			case late == nil:
				late = time.After(cli.AWhile)
			}
		case <-late:
			late = time.After(cli.AWhile)
			why := ""
			if err := k.Status().Err; err != nil {
				why = " (" + cli.Plain(err) + ")"
			}
			if text := "not up to date" + why + ": changes are printed later"; text != said {
				said = text
				say(text)
			}
		}
	}
}

// onBatch prints the changes. Those of the first view are the present state.
func (w *watcher) onBatch(b cache.Batch) error {
	first := !w.began
	switch {
	case b.Status.State == cache.Failed:
		return b.Status.Err
	case b.View.Zxid() == 0:
		return nil
	case first && len(b.Changes) == 0:
		w.began = true
		return w.print(change{Event: eventMissing}, false)
	}
	w.began = true
	for _, one := range b.Changes {
		z := change{Event: eventDeleted, Path: one.Path()}
		switch n := one.New; {
		case first:
			z = changeTo(eventExists, n.Path, n.Stat.Version, n.Data)
		case one.Kind == cache.Added:
			z = changeTo(eventCreated, n.Path, n.Stat.Version, n.Data)
		case one.Kind == cache.Changed:
			z = changeTo(eventChanged, n.Path, n.Stat.Version, n.Data)
		}
		if err := w.print(z, !first); err != nil {
			return err
		}
	}
	return nil
}
