package talk

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/serverlist"
)

// This file asks a server the word srvr, which needs no session.

// AskVersion asks a server for its version.
func (t *Talker) AskVersion(ctx context.Context, to serverlist.Server, limit time.Duration) (major, minor int, err error) {
	err = t.ask(ctx, to, limit, func(lines *bufio.Reader) error {
		line, err := lines.ReadSlice('\n') // of what fits into its buffer
		if err == nil {
			_, err = fmt.Sscanf(string(line), "Zookeeper version: %d.%d.", &major, &minor)
		}
		return err
	})
	return major, minor, err
}

// Condition is what a server says of itself.
type Condition struct {
	zxid int64
	mode string // "leader", "follower", ...; "": it has said none
}

// Serves returns an error unless a client that has seen the transaction seen
// can be served.
func (c Condition) Serves(seen int64) error {
	switch {
	case !slices.Contains([]string{"leader", "follower", "observer", "standalone"}, c.mode):
		return fmt.Errorf("it does not serve: its mode is %q", c.mode)
	case c.zxid < seen:
		return fmt.Errorf("it lags: its latest transaction is 0x%x, this session has seen 0x%x", c.zxid, seen)
	}
	return nil
}

// AskCondition asks a server for its condition.
func (t *Talker) AskCondition(ctx context.Context, to serverlist.Server, limit time.Duration) (is Condition, err error) {
	err = t.ask(ctx, to, limit, func(lines *bufio.Reader) error {
		is, err = parseCondition(io.LimitReader(lines, mostCondition))
		return err
	})
	return is, err
}

// mostCondition is how much of an answer to the word srvr is read.
const mostCondition = 4096

// parseCondition reads the answer to the word srvr, up to its mode.
func parseCondition(r io.Reader) (is Condition, err error) {
	lines, first, hasZxid := bufio.NewScanner(r), "", false
	for lines.Scan() {
		line := lines.Text()
		first = cmp.Or(first, line)
		what, value, _ := strings.Cut(line, ": ")
		switch what {
		case "Zxid":
			if is.zxid, err = strconv.ParseInt(strings.TrimSpace(value), 0, 64); err != nil {
				return is, fmt.Errorf("zxid: %w", err)
			}
			hasZxid = true
		case "Mode":
			if is.mode = strings.TrimSpace(value); !hasZxid {
				return is, fmt.Errorf("%w: a mode and no zxid", ErrBadAnswer)
			}
			return is, nil
		}
	}
	if err := lines.Err(); err != nil {
		return is, err
	}
	return is, fmt.Errorf("%w: %.100q", ErrBadAnswer, first)
}

// ask sends a server the word srvr, which needs no session, and reads the
// answer.
func (t *Talker) ask(ctx context.Context, to serverlist.Server, limit time.Duration, read func(lines *bufio.Reader) error) error {
	conn, err := t.DialServer(ctx.Done(), "tcp", to, t.dialTime(limit))
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return err
	}
	return read(bufio.NewReader(conn))
}
