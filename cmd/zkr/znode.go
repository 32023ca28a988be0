package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// safeHelp is a part of the help of commands that print names of znodes.
const safeHelp = `Control characters in a name are printed as escapes.`

// paths returns a check of a command's arguments: from least to most valid
// paths.
func paths(least, most int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case least == 1 && most == 1 && len(args) != 1:
			return usage("want one PATH, got %d", len(args))
		case len(args) < least:
			return usage("no PATH")
		case len(args) > most:
			return usage("want at most one PATH, got %d", len(args))
		}
		for _, path := range args {
			if err := framework.ValidatePath(path); err != nil {
				return usage("%w", err)
			}
		}
		return nil
	}
}

// onZnodes runs the work of a subcommand for znodes with a connected client,
// until the work or a signal ends it.
func (e *ensemble) onZnodes(work func(context.Context, *framework.Client) error) error {
	return catchSignals().endWhile(func(ctx context.Context) error { return e.withClient(ctx, work) })
}

func (e *ensemble) withClient(ctx context.Context, work func(context.Context, *framework.Client) error) error {
	client, err := e.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close() // all requests have been answered, or their errors are reported
	err = work(ctx, client)
	if framework.MaybeApplied(err) { // whatever the reason, a script must not take it for nothing done
		return failed(err)
	}
	return requestFailed(err)
}

// requestFailed gives the error of a request its exit code.
func requestFailed(err error) error {
	var end *exit
	switch {
	case err == nil:
		return nil
	case errors.As(err, &end):
		return end
	case errors.Is(err, zk.ErrNoServer), errors.Is(err, zk.ErrConnectionClosed):
		return &exit{exitNoEnsemble, err}
	default:
		return failed(err)
	}
}

// znode is what --json prints of a znode. The names are for programs and stay
// as they are.
type znode struct {
	Path            string    `json:"path"`
	Session         string    `json:"session,omitempty"` // of an ephemeral znode; the servers do not tell other kinds apart
	Size            int32     `json:"size"`              // of the data, in bytes
	Children        int32     `json:"children"`
	Version         int32     `json:"version"`
	ChildrenVersion int32     `json:"children_version"`
	ACLVersion      int32     `json:"acl_version"`
	Created         time.Time `json:"created"`
	Modified        time.Time `json:"modified"`
	Czxid           string    `json:"czxid"`
	Mzxid           string    `json:"mzxid"`
	Pzxid           string    `json:"pzxid"`
	ACL             []string  `json:"acl,omitempty"`

	Data   *string `json:"data,omitempty"`        // text
	Binary []byte  `json:"data_base64,omitempty"` // data that is not text
}

func newZnode(path string, stat *zk.Stat) znode {
	return znode{
		Path: path, Session: ownerOf(stat), Size: stat.DataLength, Children: stat.NumChildren,
		Version: stat.Version, ChildrenVersion: stat.Cversion, ACLVersion: stat.Aversion,
		Created: time.UnixMilli(stat.Ctime).UTC(), Modified: time.UnixMilli(stat.Mtime).UTC(),
		Czxid: hex(stat.Czxid), Mzxid: hex(stat.Mzxid), Pzxid: hex(stat.Pzxid),
	}
}

func hex(n int64) string { return fmt.Sprintf("0x%x", uint64(n)) }

// ownerOf returns the session of an ephemeral znode, or an empty string.
func ownerOf(stat *zk.Stat) string {
	if stat.EphemeralOwner == 0 {
		return ""
	}
	return wire.SessionText(stat.EphemeralOwner)
}

func (z *znode) setData(data []byte) {
	if utf8.Valid(data) {
		text := string(data)
		z.Data = &text
	} else {
		z.Binary = data
	}
}

// jsonLine prints a value as JSON on one line.
func jsonLine(w io.Writer, value any) error {
	text, err := json.Marshal(value)
	if err == nil {
		_, err = fmt.Fprintln(w, escaped(string(text)))
	}
	return err
}

// isTerminal reports whether w is a terminal, or another device.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// shown makes text of several lines safe to print on a terminal. It ends with
// the end of a line.
func shown(data []byte) string {
	var out strings.Builder
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, data[0])
		case r == '\n' || r == '\t' || unicode.IsPrint(r):
			out.WriteRune(r)
		default:
			out.WriteString(printable(string(r)))
		}
		data = data[size:]
	}
	if text := out.String(); text != "" && !strings.HasSuffix(text, "\n") {
		out.WriteByte('\n')
	}
	return out.String()
}

// mostData is more than any ensemble accepts in a request.
const mostData = 32 << 20

// dataArgument returns the data that an argument stands for: stdin if it is -.
func dataArgument(cmd *cobra.Command, arg string) ([]byte, error) {
	if arg != "-" {
		return []byte(arg), nil
	}
	data, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), mostData+1))
	if err != nil {
		return nil, failed(fmt.Errorf("read stdin: %w", err))
	}
	if len(data) > mostData {
		return nil, failed(fmt.Errorf("read stdin: more than %d bytes", mostData))
	}
	return data, nil
}

// requestsAtOnce is how many requests a command makes at the same time. The
// servers of an ensemble in use should not notice it.
const requestsAtOnce = 32

// inParallel calls do for 0 to n-1, for several at the same time, and returns the
// first error. After an error, or the end of ctx, it begins no more calls.
func inParallel(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var workers sync.WaitGroup
	next := make(chan int)
	for range min(n, requestsAtOnce) {
		workers.Go(func() { // ends when next is closed
			for i := range next {
				if err := do(ctx, i); err != nil {
					end(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	workers.Wait()
	return context.Cause(ctx)
}
