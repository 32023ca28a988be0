package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
)

// A follower is another process of the same measurement. It connects and prints
// a line. It begins when it reads a line, and then prints its tally. When its
// stdin is closed it ends.
type follower struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

type followers []follower

// startFollowers starts all processes but this one, and returns when they are
// connected. Call end in any case.
func (b *bench) startFollowers(ctx context.Context, root string) (followers, error) {
	var all followers
	for range b.processes - 1 {
		f, err := startFollower(ctx, root)
		if err != nil {
			return all, failed(err)
		}
		all = append(all, f)
	}
	for _, f := range all {
		var connected bool
		if err := f.out.Decode(&connected); err != nil {
			return all, f.failed(ctx, err)
		}
	}
	return all, nil
}

func startFollower(ctx context.Context, root string) (follower, error) {
	program, err := os.Executable()
	if err != nil {
		return follower{}, err
	}
	cmd := exec.CommandContext(ctx, program, append(os.Args[1:], "--"+followFlag, root)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return follower{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return follower{}, err
	}
	cmd.Cancel = in.Close // so it releases its locks
	cmd.WaitDelay = 10 * time.Second
	return follower{cmd, in, json.NewDecoder(out)}, cmd.Start()
}

func (f follower) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("ended early")
	}
	return failed(fmt.Errorf("process %d: %w", f.cmd.Process.Pid, err))
}

func (all followers) begin(ctx context.Context) error {
	for _, f := range all {
		if _, err := fmt.Fprintln(f.in); err != nil {
			return f.failed(ctx, err)
		}
	}
	return nil
}

// addTo waits until all have measured, and adds what they have counted.
func (all followers) addTo(ctx context.Context, sum *tally) error {
	for _, f := range all {
		var t tally
		if err := f.out.Decode(&t); err != nil {
			return f.failed(ctx, err)
		}
		sum.Stats.add(&t.Stats)
		sum.Requests += t.Requests
	}
	return nil
}

// end makes all end, and waits for them.
func (all followers) end() {
	for _, f := range all {
		_ = f.in.Close() // it may be closed already
	}
	for _, f := range all {
		_ = f.cmd.Wait() // what matters of its work was read
	}
}

// follow is the work of a follower. Its session ends after the measurement of
// all, so that its end does not count.
func (b *bench) follow(ctx context.Context, in io.Reader, out io.Writer) error {
	requests := newRequestCount()
	client, err := b.to.connect(ctx, framework.WithObserver(requests.observer()))
	if err != nil {
		return err
	}
	defer client.Close() // its error is of no interest: the session ends in any case
	l, err := b.contest(client, b.root)
	if err != nil {
		return err
	}
	lines, words := bufio.NewReader(in), json.NewEncoder(out)
	if err := words.Encode(true); err != nil {
		return failed(err)
	}
	orphaned := &exit{exitFailed, nil} // the other process says why
	if _, err := lines.ReadString('\n'); err != nil {
		return orphaned
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // ends with the process
		_, _ = lines.ReadByte() // nothing comes but the end
		cancel(orphaned)
	}()
	t, err := b.count(ctx, client, b.root, l, requests)
	if err != nil {
		return err
	}
	if err := words.Encode(t); err != nil {
		return failed(err)
	}
	<-ctx.Done()
	return nil
}
