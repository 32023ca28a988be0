package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// holding is a lock command without a command to run: it prints the tokens and
// holds the lease until it is told to end.
type holding struct {
	*lockCommand
	stdout io.Writer
	eof    <-chan struct{} // closed when stdin has ended; nil: nobody reads stdin
}

func newHolding(t *lockCommand, stdout io.Writer) *holding {
	h := &holding{lockCommand: t, stdout: stdout}
	if t.untilEOF {
		eof := make(chan struct{})
		go func() { // ends with stdin or with the process
			defer close(eof)
			_, _ = io.Copy(io.Discard, os.Stdin) // an error is an end, too
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
			cancel(&exit{exitFailed, errors.New("stdin ended before the lock was acquired")})
		case <-wait.Done():
		}
	}()
	return wait, func() { cancel(nil) }
}

// until prints the tokens, and returns when the lease is to be released or was
// lost. The error is an exit. It is nil only if the tokens were printed and the
// lease is held.
func (h *holding) until(client *framework.Client, lease *recipes.Lease, revoked <-chan struct{}, signals *signals) error {
	text, err := h.announcement(client, lease)
	if err == nil {
		p := startPrinter(h.stdout)
		defer close(p.lines)
		p.lines <- text
		err = h.await(lease, revoked, signals, p)
	}
	if lost := lease.Err(); lost != nil { // also if a signal came first
		return h.lost(lost)
	}
	return err
}

// await returns when the lease is to be released, or was lost.
func (h *holding) await(lease *recipes.Lease, revoked <-chan struct{}, signals *signals, p *printer) error {
	for {
		select {
		case err := <-p.results:
			if p.note(err); err != nil {
				return failed(fmt.Errorf("%s: cannot print, so the lock is released: %w", h.path(), err))
			}
		case sig := <-signals.arrived:
			n, ok := sig.(syscall.Signal)
			switch {
			case asksToEnd(sig) && p.hasPrinted():
				return nil
			case ok && !harmless(n):
				return &exit{exitSignal + int(n), fmt.Errorf("%s: ended by signal: %v", h.path(), sig)}
			}
		case <-h.eof:
			if !p.hasPrinted() {
				return failed(fmt.Errorf("%s: stdin ended before the token was printed", h.path()))
			}
			return nil
		case <-lease.Lost():
			return nil // the caller looks
		case <-revoked:
			revoked = nil
			p.lines <- h.revocation()
		}
	}
}

// printer prints what is sent to it. A reader that takes its time does not keep
// zkr from noticing a signal or a loss.
type printer struct {
	lines   chan<- string
	results <-chan error // one for each write
	printed int          // how many writes have succeeded
}

func startPrinter(w io.Writer) *printer {
	const most = 2 // the announcement and the revocation, or the revocation and the loss
	lines, results := make(chan string, most), make(chan error, most)
	go func() { // ends when lines is closed, or with the process
		defer close(results)
		for text := range lines {
			_, err := io.WriteString(w, text)
			select {
			case results <- err:
			default: // nobody wants to know
			}
		}
	}()
	return &printer{lines: lines, results: results}
}

// offer prints text, unless nobody has read the texts before it.
func (p *printer) offer(text string) {
	select {
	case p.lines <- text:
	default:
	}
}

// say prints text. It waits for that at most so long: maybe nobody reads.
func say(w io.Writer, most time.Duration, text string) {
	p := startPrinter(w)
	p.offer(text)
	p.finish(most)
}

// finish ends the printer. It waits at most so long until all is printed.
func (p *printer) finish(most time.Duration) {
	close(p.lines)
	enough := time.After(most)
	for {
		select {
		case _, more := <-p.results:
			if !more {
				return
			}
		case <-enough:
			return
		}
	}
}

func (p *printer) note(err error) {
	if err == nil {
		p.printed++
	}
}

// hasPrinted reports whether the first text is printed, or will be in a moment:
// a reader may answer it before the write has returned.
func (p *printer) hasPrinted() bool {
	if p.printed == 0 {
		const moment = time.Second
		select {
		case err := <-p.results:
			p.note(err)
		case <-time.After(moment):
		}
	}
	return p.printed > 0
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
			return "", failed(err)
		}
		fmt.Fprintln(&text, escaped(string(line)))
	}
	return text.String(), nil
}

func (h *holding) revocation() string {
	if h.json {
		return "{\"revoked\":true}\n"
	}
	return "revoked\n"
}
