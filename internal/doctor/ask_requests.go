package doctor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// askProof asks for a sync of the root, and for a write that changes nothing.
func askProof(ctx context.Context, p *probe) finding {
	c, err := p.open(ctx, p.ensemble.Timeout())
	if err != nil {
		return fails("%v", err)
	}
	defer c.close()
	timed := func(op wire.Op, body wire.Appender, into wire.Message) (time.Duration, error) {
		began := time.Now()
		_, err := c.do(op, body, into)
		return time.Since(began), err
	}
	bySync, err := timed(wire.OpSync, &wire.PathRequest{Path: "/"}, nil)
	var results wire.MultiResponse
	check := wire.MultiOp{Op: wire.OpCheck, Request: &wire.VersionRequest{Path: "/", Version: -1}}
	byWrite, refused := timed(wire.OpMulti, &wire.MultiRequest{Ops: []wire.MultiOp{check}}, &results)
	if refused == nil && (len(results.Results) != 1 || results.Results[0].Op != wire.OpCheck) {
		refused = errors.New("the check has failed")
	}
	const each = 10 * time.Microsecond
	switch allowed := (c.granted() / 3).Round(time.Millisecond); {
	case err != nil && refused == nil:
		return fails("sync of /: %v", err).or("use framework.WithProof(framework.ProofWrite); zkr has no flag for that")
	case err != nil:
		return fails("sync of /: %v", err)
	case refused != nil:
		return fails("multi of one check: %v", refused)
	case max(bySync, byWrite) > allowed/4:
		return noted("sync %v, write %v, of %v", bySync.Round(each), byWrite.Round(each), allowed).
			or("a longer --session-timeout; look for a slow disk, a full heap or a long way to the leader")
	default:
		return good("sync %v, write %v, of %v", bySync.Round(each), byWrite.Round(each), allowed)
	}
}

// askOrder sends requests in one write, each of which depends on the one
// before.
func askOrder(ctx context.Context, p *probe) finding {
	c, err := p.open(ctx, p.ensemble.Timeout())
	if err != nil {
		return fails("%v", err)
	}
	defer c.close()
	path := p.name + "order"
	err = c.send(
		request{wire.OpCreate, create(path, wire.ModePersistent)},
		request{wire.OpGetChildren, &wire.WatchRequest{Path: p.dir}},
		request{wire.OpSetData, &wire.SetDataRequest{Path: path, Data: []byte("set"), Version: -1}},
		request{wire.OpGetData, &wire.WatchRequest{Path: path}},
		request{wire.OpSync, &wire.PathRequest{Path: p.dir}},
		request{wire.OpDelete, &wire.VersionRequest{Path: path, Version: -1}},
		request{wire.OpExists, &wire.WatchRequest{Path: path}},
	)
	if err != nil {
		return fails("%v", err)
	}
	for n := int32(1); n <= c.xid; n++ {
		head, body, err := c.read()
		if err != nil {
			return fails("answer %d of %d that were asked for in one write: %v", n, c.xid, err)
		}
		if head.Xid != n {
			return fails("the answer to request %d comes in place of that to request %d", head.Xid, n)
		}
		var list wire.ChildrenResponse
		var data wire.DataResponse
		switch {
		case n == 2 && (wire.Unmarshal(body, &list) != nil || !slices.Contains(list.Children, path[len(p.dir)+1:])):
			return fails("a list behind a create does not show it")
		case n == 4 && (wire.Unmarshal(body, &data) != nil || string(data.Data) != "set"):
			return fails("a read behind a write does not show it")
		case n == 7 && head.Err != wire.NoNode:
			return fails("a read behind a delete does not show it")
		case n != 7 && head.Err != wire.OK:
			return fails("request %d: %v", n, head.Err)
		}
	}
	return good("%d requests in one write are answered in order, and see each other", c.xid)
}

// askEvents changes what is watched, on the connection of the watch and on
// another one.
func askEvents(ctx context.Context, p *probe) finding {
	c, err := p.open(ctx, p.ensemble.Timeout())
	if err != nil {
		return fails("%v", err)
	}
	defer c.close()
	other, err := p.open(ctx, p.ensemble.Timeout())
	if err != nil {
		return fails("%v", err)
	}
	defer other.close()
	path := p.name + "events"
	for _, by := range []*conn{c, other} {
		if _, _, err := c.create(path, wire.ModePersistent); err != nil {
			return fails("%v", err)
		}
		if _, err := c.do(wire.OpGetData, &wire.WatchRequest{Path: path, Watch: true}, nil); err != nil {
			return fails("%v", err)
		}
		before := len(c.events)
		if err := by.delete(path); err != nil {
			return fails("%v", err)
		}
		if by == other { // the answer that shows the change is that of a read
			if _, err := c.exists(path); !errors.Is(err, wire.NoNode) {
				return fails("a delete by another session is not seen after a sync: %v", err)
			}
		}
		switch came := c.events[before:]; {
		case len(came) == 0:
			return fails("an answer shows a change, and the event has not come before it")
		case len(came) > 1 || came[0].Type != wire.EventDeleted || came[0].Path != path:
			return fails("a delete makes the event %d of %q", came[0].Type, came[0].Path)
		}
	}
	return good("an event comes before the answer that shows the change")
}

// askNumbers creates, deletes and creates again, in a directory that is itself
// made again.
func askNumbers(ctx context.Context, p *probe) finding {
	c, err := p.open(ctx, p.ensemble.Timeout())
	if err != nil {
		return fails("%v", err)
	}
	defer c.close()
	dir := p.name + "numbers"
	var all []growth
	for range 2 {
		if _, _, err := c.create(dir, wire.ModePersistent); err != nil {
			return fails("%v", err)
		}
		for range 2 {
			g, err := c.grow(dir)
			if err != nil {
				return fails("%v", err)
			}
			all = append(all, g)
		}
		if err := c.delete(dir); err != nil {
			return fails("%v", err)
		}
	}
	note := ""
	for i, now := range all {
		switch {
		case len(now.path) != len(dir)+len("/n-0123456789") || !strings.HasPrefix(now.path, dir+"/n-"):
			return fails("a sequential create makes %q", now.path)
		case i%2 == 1 && now.path <= all[i-1].path:
			return fails("after %q was deleted, a create makes %q", all[i-1].path, now.path)
		case i > 0 && now.stat.Czxid <= all[i-1].stat.Czxid:
			return fails("czxid %#x is followed by %#x", all[i-1].stat.Czxid, now.stat.Czxid)
		case i > 1 && now.dir.Czxid <= all[1].dir.Czxid:
			return fails("a directory that was made again has czxid %#x, and had %#x", now.dir.Czxid, all[1].dir.Czxid)
		case now.zxid != now.stat.Czxid:
			note = "the answer to a create does not name its transaction"
		case now.dir.Pzxid < now.stat.Czxid:
			note = "a create does not raise its parent's pzxid"
		case now.after.Pzxid <= now.dir.Pzxid:
			note = "a delete does not raise its parent's pzxid"
		}
	}
	if note != "" {
		return noted("%s", note).or("nothing for locks: an internal check of semaphores is weaker")
	}
	return good("sequence numbers, czxid and pzxid grow over deletes")
}

// growth is a sequential znode that was created and deleted.
type growth struct {
	path  string
	zxid  int64 // in the header of the answer
	stat  wire.Stat
	dir   wire.Stat // while it stood
	after wire.Stat // of the directory, when it was deleted
}

func (c *conn) grow(dir string) (g growth, err error) {
	path, head, err := c.create(dir+"/n-", wire.ModeSequential)
	if err != nil {
		return g, err
	}
	g.path, g.zxid = path, head.Zxid
	if g.stat, err = c.exists(path); err != nil {
		return g, err
	}
	if g.dir, err = c.exists(dir); err != nil {
		return g, err
	}
	if err = c.delete(path); err != nil {
		return g, err
	}
	g.after, err = c.exists(dir)
	return g, err
}
