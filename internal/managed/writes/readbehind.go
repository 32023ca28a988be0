package writes

import (
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Whoever creates a contender needs a list of its directory that was made after
// that. So a request with creates has reads right behind it, in the same write
// to the connection: a session's requests are executed in order.
//
//   - A list counts only if it shows the contender. So nothing rests on which
//     request a list was sent behind, nor on that request's fate.
//   - The lists behind a batch are one multiRead, on servers that have it.
//   - A list in a multiRead has no stat, so there is a getData of the directory
//     before each list. If the list shows the contender, the directory is the
//     one that the contender was created in, since no directory is removed
//     before its children. It has stood from the create until the list, so the
//     getData between the two has read that one's czxid. A multiRead is not a
//     snapshot: a getData behind the list could read the czxid of a later
//     directory, and a token of that and of the contender's number would be
//     above all valid ones. The czxid never changes; other fields may be older
//     than the list.
//   - A large directory is listed by itself. So is one whose list has shared a
//     request that was not answered: perhaps the answer was too large.
//   - Each read has an error of its own. A list that fails is no error of the
//     create: the caller lists again.
//   - A create that replaces another znode has no list: see replace.go.
//
// The reads have no goroutine. The caller of one of the creates waits for the
// answer, and passes the lists on to the others.

const (
	// largeRead is how many bytes of an answer are too many to share a request.
	largeRead = 16 << 10
	// mostLarge is how many directories with large lists are remembered.
	mostLarge = 1024
)

// made is the answer to a write: of a delete it says nothing.
type made struct {
	path string
	listing
	also []request.Result // see groupedWrite.also; nil: not read
	next bool             // see groupedWrite.isNext
}

// listing is an answer to a list of a directory.
type listing struct {
	names []string
	stat  *zk.Stat // in made: as of a time between the create and the list
}

// readBehind is a request that reads what creates need, right behind them.
type readBehind struct {
	on     *link.Link
	writes []*groupedWrite
	shared bool // a multiRead; otherwise a list, behind one create
	began  time.Time
	answer <-chan link.Reply
}

// readBehind sends the reads behind a request with writes, which is about to be
// sent on a connection.
func (g *groupCommit) readBehind(writes []*groupedWrite, on *link.Link) {
	if !on.IsPresented() {
		return
	}
	var shared []*groupedWrite
	share := g.sharesReads(writes, on)
	for i, w := range writes {
		switch {
		case !w.wantsList():
		case share && !g.isLarge(w.dir):
			shared = append(shared, w)
		default:
			g.list(writes[i:i+1], on)
		}
	}
	if len(shared) == 1 && len(shared[0].also) == 0 {
		g.list(shared, on)
	} else if len(shared) > 0 {
		b := &readBehind{on: on, writes: shared, shared: true, began: time.Now()}
		b.answer = on.SendBehind(wire.OpMultiRead, b.request())
		b.sent()
	}
}

// list sends a list behind one create.
func (g *groupCommit) list(create []*groupedWrite, on *link.Link) {
	b := &readBehind{on: on, writes: create, began: time.Now()}
	b.answer = on.SendBehind(wire.OpGetChildren2, &wire.WatchRequest{Path: create[0].dir})
	b.sent()
}

func (b *readBehind) sent() {
	if b.answer == nil {
		return
	}
	for _, w := range b.writes {
		w.behind = b
	}
}

// sharesReads reports whether the reads behind writes may be one request, as
// far as is known. It asks the server where that pays.
func (g *groupCommit) sharesReads(writes []*groupedWrite, on *link.Link) bool {
	reads, size := 0, request.OperationHeadSize
	for _, w := range writes {
		if w.wantsList() {
			reads += 1 + len(w.also)
			size += 2 * request.ReadSize(w.dir)
			for _, r := range w.also {
				size += request.ReadSize(r.Path)
			}
		}
	}
	return reads > 1 && g.session.Client.Fits(size) == nil && g.session.HasOffer(on, wire.OpMultiRead)
}

// request returns the body of a multiRead.
func (b *readBehind) request() *wire.MultiRequest {
	n := b.operations()
	multi, requests := &wire.MultiRequest{Ops: make([]wire.MultiOp, 0, n)}, make([]wire.WatchRequest, 0, n)
	read := func(op wire.Op, path string) {
		requests = append(requests, wire.WatchRequest{Path: path})
		multi.Ops = append(multi.Ops, wire.MultiOp{Op: op, Request: &requests[len(requests)-1]})
	}
	for _, w := range b.writes {
		read(wire.OpGetData, w.dir) // before the list: see above
		read(wire.OpGetChildren, w.dir)
		for _, r := range w.also {
			_, op := r.Op()
			read(op, r.Path)
		}
	}
	return multi
}

// operations returns how many reads b has.
func (b *readBehind) operations() (n int) {
	if !b.shared {
		return 1
	}
	for _, w := range b.writes {
		n += 2 + len(w.also)
	}
	return n
}

// read waits for the answer to b, whose creates have succeeded, and passes it
// on to the callers of all of them.
func (g *groupCommit) read(b *readBehind) {
	ask := ops.Request{Op: request.NameList, Path: b.writes[0].dir, Operations: b.operations(), Began: b.began}
	if b.shared {
		ask.Op = request.NameReadAll
	}
	r, err := ops.Observed(b.writes[0].ctx, g.session.Session, ask, func(*zk.Conn) (link.Reply, error) { return b.on.Await(b.answer) })
	var found []found
	if err == nil {
		found = b.decode(r)
	}
	for i, w := range b.writes {
		m := made{path: w.made}
		if found != nil {
			g.session.strays.onList(w.dir, found[i].names)
			if _, own := layout.Split(w.made); slices.Contains(found[i].names, own) {
				m.listing, m.also = found[i].listing, found[i].also
			}
			g.noteSize(w.dir, found[i].size)
		} else if b.shared {
			g.noteSize(w.dir, largeRead)
		}
		w.next <- step{made: m}
	}
}

// found is what was read behind one create.
type found struct {
	listing
	also []request.Result
	size int // of the answer that shares a request
}

// decode returns what was read behind each create, nil if the answer is not one
// to these reads.
func (b *readBehind) decode(r link.Reply) []found {
	all := make([]found, len(b.writes))
	if !b.shared {
		list := wire.ChildrenResponse{HasStat: true}
		if wire.Unmarshal(r.Body, &list) != nil {
			return nil
		}
		stat := zk.Stat(list.Stat)
		all[0] = found{listing: listing{list.Children, &stat}, size: namesSize(list.Children) + int(stat.DataLength)}
		return all
	}
	answers := wire.MultiResponse{Results: make([]wire.MultiResult, 0, b.operations())}
	if wire.Unmarshal(r.Body, &answers) != nil || len(answers.Results) != b.operations() {
		return nil
	}
	rest := answers.Results
	take := func(read request.Read) (result request.Result, ok bool) {
		_, op := read.Op()
		got := &rest[0]
		rest = rest[1:]
		return request.ResultOf(got, r.Zxid, r.Order), got.Op == op || got.Op == wire.OpError && got.Err != wire.OK
	}
	for i, w := range b.writes {
		dir, ok := take(request.Read{Path: w.dir})
		list, isList := take(request.Read{Path: w.dir, Children: true})
		ok = ok && isList
		size := request.BlobSize(dir.Data) + namesSize(list.Children)
		for _, read := range w.also {
			result, isRight := take(read)
			ok = ok && isRight
			size += request.BlobSize(result.Data) + namesSize(result.Children)
			all[i].also = append(all[i].also, result)
		}
		if !ok {
			return nil
		}
		if all[i].size = size; dir.Err == nil && list.Err == nil {
			all[i].listing = listing{list.Children, dir.Stat}
		}
	}
	return all
}

func namesSize(names []string) (size int) {
	for _, name := range names {
		size += request.TextSize(name)
	}
	return size
}

func (g *groupCommit) isLarge(dir string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, large := g.large[dir]
	return large
}

// noteSize remembers whether the list of a directory may share a request.
func (g *groupCommit) noteSize(dir string, size int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if size < largeRead {
		delete(g.large, dir)
		return
	}
	if g.large == nil || len(g.large) == mostLarge {
		g.large = make(map[string]struct{})
	}
	g.large[dir] = struct{}{}
}
