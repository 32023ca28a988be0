package znode

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

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
			out.WriteString(escape.Text(string(r)))
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
		return nil, cli.Failed(fmt.Errorf("read stdin: %w", err))
	}
	if len(data) > mostData {
		return nil, cli.Failed(fmt.Errorf("read stdin: more than %d bytes", mostData))
	}
	return data, nil
}

// requestsAtOnce is how many requests a command makes at the same time. The
// servers of an ensemble in use should not notice it.
const requestsAtOnce = 32

// inParallel calls do for 0 to n-1, for several at the same time, and returns
// the first error. After an error, or the end of ctx, it begins no more calls.
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
