package serve

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

	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// rootFlag makes a process a part of the measurement of another one.
const rootFlag = "root"

// A follower is another process of the same measurement. It connects and prints
// a line. It begins when it reads a line, and then prints its tally. When its
// stdin is closed it ends.
type follower struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

type followers []follower

// startFollowers starts all processes but this one. It lets them begin when all
// are connected. Call end in any case.
func (b *bench) startFollowers(ctx context.Context, root string) (all followers, err error) {
	program, err := os.Executable()
	for i := 1; i < b.processes && err == nil; i++ {
		cmd := exec.CommandContext(ctx, program, append(os.Args[1:], "--"+rootFlag, root)...)
		cmd.Stderr = os.Stderr
		in, inErr := cmd.StdinPipe()
		out, outErr := cmd.StdoutPipe()
		if err = errors.Join(inErr, outErr); err != nil {
			break
		}
		cmd.Cancel = in.Close // so it releases its locks
		cmd.WaitDelay = 10 * time.Second
		if err = cmd.Start(); err == nil {
			all = append(all, follower{cmd, in, json.NewDecoder(out)})
		}
	}
	if err != nil {
		return all, cli.Failed(err)
	}
	for _, f := range all {
		var connected bool
		if err := f.out.Decode(&connected); err != nil {
			return all, f.failed(ctx, err)
		}
	}
	for _, f := range all {
		if _, err := fmt.Fprintln(f.in); err != nil {
			return all, f.failed(ctx, err)
		}
	}
	return all, nil
}

func (f follower) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("ended early")
	}
	return cli.Failed(fmt.Errorf("process %d: %w", f.cmd.Process.Pid, err))
}

// addTo waits until all have measured, and adds what they have counted.
func (all followers) addTo(ctx context.Context, sum *tally) error {
	for _, f := range all {
		var t tally
		if err := f.out.Decode(&t); err != nil {
			return f.failed(ctx, err)
		}
		sum.Grants, sum.Took = sum.Grants+t.Grants, max(sum.Took, t.Took)
		sum.Times.Add(&t.Times)
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

// follow is the work of a follower.
func (b *bench) follow(ctx context.Context, in io.Reader, out io.Writer) error {
	client, err := b.to.Connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close() // its error is of no interest: the session ends in any case
	run, err := b.load(client, b.root)
	if err != nil {
		return err
	}
	lines, words := bufio.NewReader(in), json.NewEncoder(out)
	if err := words.Encode(true); err != nil {
		return cli.Failed(err)
	}
	orphaned := &cli.Exit{Code: cli.ExitFailed} // the other process says why
	if _, err := lines.ReadString('\n'); err != nil {
		return orphaned
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // ends with the process
		_, _ = lines.ReadByte() // nothing comes but the end
		cancel(orphaned)
	}()
	t, err := run(ctx)
	if err != nil {
		return err
	}
	return cli.FailedIf(words.Encode(t))
}
