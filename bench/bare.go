package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/go-zookeeper/zk"

	protocol "github.com/zkrecipes/zkrecipes/internal/wire"
)

// bareReads is not a cache. It sends the requests of one: a recursive watch,
// and reads in multiReads of 256, four of them at a time. It keeps nothing.
type bareReads struct {
	conn net.Conn
	root string
	xid  int32
	read int // znodes
}

func startBareReads(ctx context.Context, at place) (copying, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", at.address)
	if err != nil {
		return nil, err
	}
	b := &bareReads{conn: conn, root: at.root}
	connect := &protocol.ConnectRequest{Timeout: int32(session.Milliseconds()), Password: make([]byte, 16)}
	if _, err = conn.Write(protocol.AppendFrame(nil, connect)); err == nil {
		_, err = protocol.ReadFrame(conn, largestFrame, nil)
	}
	return b, err
}

const (
	largestFrame = 64 << 20
	readsAtOnce  = 256
	askedAtOnce  = 4
)

func (b *bareReads) sync(context.Context) error {
	if _, err := b.ask(protocol.OpAddWatch, &protocol.AddWatchRequest{Path: b.root, Mode: protocol.WatchPersistentRecursive}); err != nil {
		return err
	}
	for paths := []string{b.root}; len(paths) > 0; {
		found, err := b.readAll(protocol.OpGetData, paths)
		if err != nil {
			return err
		}
		var above []string
		for i := range found {
			if found[i].Stat.NumChildren > 0 {
				above = append(above, paths[i])
			}
		}
		b.read += len(paths)
		if found, err = b.readAll(protocol.OpGetChildren, above); err != nil {
			return err
		}
		paths = nil
		for i := range found {
			for _, name := range found[i].Children {
				paths = append(paths, above[i]+"/"+name)
			}
		}
	}
	return nil
}

// readAll reads, with several requests under way.
func (b *bareReads) readAll(op protocol.Op, paths []string) (all []protocol.MultiResult, err error) {
	var requests []protocol.Appender
	for at := 0; at < len(paths); at += readsAtOnce {
		multi := &protocol.MultiRequest{}
		for _, path := range paths[at:min(at+readsAtOnce, len(paths))] {
			multi.Ops = append(multi.Ops, protocol.MultiOp{Op: op, Request: &protocol.WatchRequest{Path: path}})
		}
		requests = append(requests, multi)
	}
	answers, err := b.ask(protocol.OpMultiRead, requests...)
	for _, body := range answers {
		var answer protocol.MultiResponse
		err = errors.Join(err, protocol.Unmarshal(body, &answer))
		all = append(all, answer.Results...)
	}
	if err == nil && len(all) != len(paths) {
		err = fmt.Errorf("%d answers to %d reads", len(all), len(paths))
	}
	return all, err
}

// ask returns the bodies of the answers.
func (b *bareReads) ask(op protocol.Op, requests ...protocol.Appender) (answers [][]byte, err error) {
	for sent := 0; len(answers) < len(requests); {
		for ; sent < min(len(answers)+askedAtOnce, len(requests)); sent++ {
			b.xid++
			if _, err := b.conn.Write(protocol.AppendFrame(nil, &protocol.RequestHeader{Xid: b.xid, Op: op}, requests[sent])); err != nil {
				return nil, err
			}
		}
		frame, err := protocol.ReadFrame(b.conn, largestFrame, nil)
		if err != nil {
			return nil, err
		}
		var header protocol.ReplyHeader
		d := protocol.NewDecoder(frame)
		header.Decode(d)
		if err := d.Err(); err != nil || header.Err != protocol.OK {
			return nil, errors.Join(err, header.Err)
		}
		answers = append(answers, frame[len(frame)-d.Len():])
	}
	return answers, nil
}

func (b *bareReads) len() int                    { return b.read }
func (b *bareReads) again(context.Context) error { return errors.ErrUnsupported }
func (b *bareReads) close()                      { _ = b.conn.Close() } // and the server expires its session

// handWritten is what programs do with the bare wire client: two watches of a
// single event for each znode, 64 requests at a time.
type handWritten struct {
	*wire
	mu    sync.Mutex // guards what follows
	nodes map[string]handNode
}

type handNode struct {
	data              []byte
	stat              *zk.Stat
	changed, children <-chan zk.Event
}

func startHandWritten(_ context.Context, at place) (copying, error) {
	conn, events, err := zk.Connect([]string{at.address}, session, zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	h := &handWritten{wire: &wire{conn, at.root, events}, nodes: map[string]handNode{}}
	_, _, err = conn.Exists("/")
	return h, err
}

func (h *handWritten) sync(context.Context) error {
	paths := make(chan string, 1<<20) // more than any tree has
	var open, working sync.WaitGroup
	errs := make([]error, 64)
	open.Add(1)
	paths <- h.root
	for w := range errs {
		working.Go(func() {
			for path := range paths {
				names, err := h.read(path)
				errs[w] = errors.Join(errs[w], err)
				open.Add(len(names))
				for _, name := range names {
					paths <- path + "/" + name
				}
				open.Done()
			}
		})
	}
	open.Wait()
	close(paths)
	working.Wait()
	return errors.Join(errs...)
}

func (h *handWritten) read(path string) (names []string, err error) {
	var n handNode
	if n.data, n.stat, n.changed, err = h.conn.GetW(path); err != nil {
		return nil, err
	}
	if names, _, n.children, err = h.conn.ChildrenW(path); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nodes[path] = n
	return names, nil
}

func (h *handWritten) len() int                    { return len(h.nodes) }
func (h *handWritten) again(context.Context) error { return errors.ErrUnsupported }
