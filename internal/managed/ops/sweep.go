package ops

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/managed/directories"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/talk"
)

// This file deletes directories: those that have stayed empty, and those that
// were never used. Package directories says which.

// sweep looks at the directories, until the client closes.
func (c *Client) sweep() {
	in := Scope{Client: c, Budget: &backoff.StopBackOff{}}
	for !closed.Within(c.Config.Sweep, c.Closing) {
		for _, look := range c.Directories.Looks() {
			answered := look.Make(func() ([]zk.ACL, *zk.Stat, error) {
				return in.GetACL(context.Background(), look.Path)
			}, func(stat *zk.Stat) error { return in.deleteEmpty(look.Path, stat) })
			if !answered {
				break // no server answers: in the next round
			}
		}
	}
}

// deleteEmpty deletes a directory if nothing was created in it since the look.
func (w Scope) deleteEmpty(full string, looked *zk.Stat) error {
	ops := directories.EmptyDelete(full, looked, w.Client.Config.ACL)
	return w.Do(context.Background(), request.NameMulti, full, OnceOnly, func(a *Attempt) error {
		_, err := Call(context.Background(), a.Session, Request{Op: request.NameMulti, Path: full, Operations: len(ops)}, func(conn *zk.Conn) ([]zk.MultiResponse, error) {
			return request.Multi(conn, ops)
		}, nil)
		return err
	})
}

// noteUnused notes a directory that is about to be created.
func (c *Client) noteUnused(full string, after int64) {
	if c.Directories.NoteUnused(full, after) {
		time.AfterFunc(c.Config.SessionTimeout, c.deleteUnused)
	}
}

// deleteUnused deletes those that were made a session timeout before, and does
// so again until there are none, or the client closes.
func (c *Client) deleteUnused() {
	dirs, runs := c.Directories.Older(time.Now().Add(-c.Config.SessionTimeout))
	if !runs || c.isClosing() {
		return
	}
	in := Scope{Client: c, Budget: &backoff.StopBackOff{}}
	for _, d := range dirs {
		acl, stat, err := in.GetACL(context.Background(), d.Path)
		if err == nil && d.IsUnused(stat, acl) && d.IsNoted() {
			err = in.deleteEmpty(d.Path, stat)
		}
		if c.isClosing() {
			return // the session's DeleteUnused does it
		}
		if !d.Forget(err) {
			break // no server answers, or for another reason: in the next round
		}
	}
	time.AfterFunc(c.Config.SessionTimeout, c.deleteUnused)
}

// DeleteUnused is that of a client which closes, on the session's last
// connection.
func (s *Session) DeleteUnused() {
	dirs, _ := s.Client.Directories.Older(time.Now())
	if len(dirs) == 0 {
		return
	}
	done := make(chan struct{})
	s.Client.tasks.Go(func() {
		defer close(done)
		for _, d := range dirs {
			acl, stat, err := s.Conn().GetACL(d.Path)
			if err == nil && d.IsUnused(stat, acl) {
				_, err = request.Multi(s.Conn(), directories.EmptyDelete(d.Path, stat, s.Client.Config.ACL))
			}
			if errors.Is(err, zk.ErrConnectionClosed) {
				return
			}
		}
	})
	closed.Within(talk.MaxStep/2, done)
}
