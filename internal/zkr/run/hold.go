package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// holding is a lock command without a command to run: it prints the tokens and
// holds the lease until it is told to end.
type holding struct {
	*lockCommand
	eof <-chan struct{} // closed when stdin has ended; nil: nobody reads stdin
}

func newHolding(t *lockCommand) *holding {
	h := &holding{lockCommand: t}
	if t.untilEOF {
		eof := make(chan struct{})
		go func() { // ends with stdin or with the process
			defer close(eof)
			_, _ = io.Copy(io.Discard, t.in.Stdin) // an error also ends it
		}()
		h.eof = eof
	}
	return h
}

// whileStdin returns a context for the wait, which also ends when stdin does.
func (h *holding) whileStdin(ctx context.Context) (wait context.Context, end func()) {
	if h == nil || h.eof == nil {
		return ctx, func() {}
	}
	wait, cancel := context.WithCancelCause(ctx)
	go func() { // ends with the wait
		select {
		case <-h.eof:
			cancel(&cli.Exit{Code: cli.ExitFailed, Err: errors.New("stdin ended before the lock was acquired")})
		case <-wait.Done():
		}
	}()
	return wait, func() { cancel(nil) }
}

// until prints the tokens, and returns when the lease is to be released or was
// lost. The error is an exit. It is nil only if the tokens were printed and the
// lease is held.
func (h *holding) until(client *framework.Client, lease *recipes.Lease, revoked <-chan struct{}) error {
	text, err := h.announcement(client, lease)
	if err == nil {
		p := cli.StartPrinter(h.in.Stdout)
		defer close(p.Lines)
		p.Lines <- text
		err = h.await(lease, revoked, p)
	}
	if lost := lease.Err(); lost != nil { // also if a signal came first
		return h.lost(lost)
	}
	return err
}

// await returns when the lease is to be released, or was lost.
func (h *holding) await(lease *recipes.Lease, revoked <-chan struct{}, p *cli.Printer) error {
	for {
		select {
		case err := <-p.Results:
			if p.Note(err); err != nil {
				return cli.Failed(fmt.Errorf("%s: cannot print, so the lock is released: %w", h.path(), err))
			}
		case sig := <-h.in.Signals.Arrived:
			if ends, err := h.endedBy(sig, p); ends {
				return err
			}
		case <-h.eof:
			if !p.HasPrinted() {
				return cli.Failed(fmt.Errorf("%s: stdin ended before the token was printed", h.path()))
			}
			return nil
		case <-lease.Lost():
			return nil // the caller looks
		case <-revoked:
			revoked = nil
			p.Lines <- h.revocation()
		}
	}
}

// grant is what --json prints for each path.
type grant struct {
	Path    string `json:"path"`
	Token   string `json:"token"`
	Session string `json:"session"`
	Znode   string `json:"znode"`
}

// announcement returns a line for each path.
func (h *holding) announcement(client *framework.Client, lease *recipes.Lease) (string, error) {
	session, err := client.Session()
	if lost := lease.Err(); lost != nil {
		return "", h.lost(lost)
	} else if err != nil { // the session is over: the lease is about to be lost
		return "", h.lost(err)
	}
	var text strings.Builder
	for i, part := range h.leases(lease) {
		if !h.json {
			fmt.Fprintln(&text, part.Token())
			continue
		}
		line, err := json.Marshal(grant{h.paths[i], part.Token().String(), wire.SessionText(session.ID()), part.Path()})
		if err != nil {
			return "", cli.Failed(err)
		}
		fmt.Fprintln(&text, escape.JSON(string(line)))
	}
	return text.String(), nil
}

func (h *holding) revocation() string {
	if h.json {
		return "{\"revoked\":true}\n"
	}
	return "revoked\n"
}
