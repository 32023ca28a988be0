package framework

import (
	"encoding/binary"
	"slices"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// The wire client takes the answers apart without looking how long they are: a
// list of a nonsensical length is room for as many names asked for, a result that
// ends too early is a panic on a goroutine of its own, and where a length goes
// beyond the end of its frame it reads on in what an earlier, longer frame has left
// in its buffer. It lets an answer to nobody pass, too, and then the request that
// it was meant for never ends. So each answer is looked at before the wire client
// gets the last byte of it: whether it is to the request whose turn it is, and
// whether its body can be taken apart. One that makes no sense costs its
// connection, and what was under way is made up for as after any loss.

// asked are the requests of a connection that are not answered yet, in order.
type asked struct {
	mu       sync.Mutex // guards what follows
	requests []pendingRequest
}

type pendingRequest struct {
	xid int32
	op  wire.Op
}

// add notes a request that leaves. Pings have no number of their own, and nothing
// in their answers.
func (a *asked) add(xid int32, op wire.Op) {
	if xid < 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests = append(a.requests, pendingRequest{xid, op})
}

// take gives the operation that an answer is to, and reports false if it is to
// none, or not to the one whose turn it is. Answers come in the order of their
// requests, but for those to credentials, which a server takes in passing.
func (a *asked) take(xid int32) (op wire.Op, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := slices.IndexFunc(a.requests, func(r pendingRequest) bool { return r.xid == xid })
	if at < 0 {
		return 0, false
	}
	op = a.requests[at].op
	if op != wire.OpAuth {
		for _, before := range a.requests[:at] {
			if before.op != wire.OpAuth {
				return 0, false
			}
		}
	}
	a.requests = slices.Delete(a.requests, at, at+1)
	return op, true
}

// part is a kind of piece that the body of an answer is made of.
type part byte

const (
	fixed    part = iota // n bytes, whatever they are
	text                 // a length, and as many bytes
	blob                 // the same, where -1 is no bytes
	list                 // a count, and as many elements
	elements             // n of them
	results              // of a multi, up to the one that says that there are no more
)

// piece is one of them, with what it needs.
type piece struct {
	part
	n  int
	of []piece // an element, of one or more pieces
}

const statSize = 68

// bodies are those of the answers to the operations that the wire client is asked
// for. What is not here has none that it looks at.
var (
	theStat = piece{part: fixed, n: statSize}
	bodies  = map[wire.Op][]piece{
		wire.OpCreate:          {{part: text}},
		wire.OpCreateContainer: {{part: text}},
		wire.OpSync:            {{part: text}},
		wire.OpExists:          {theStat},
		wire.OpSetData:         {theStat},
		wire.OpSetACL:          {theStat},
		wire.OpGetData:         {{part: blob}, theStat},
		wire.OpGetChildren2:    {{part: list, of: []piece{{part: text}}}, theStat},
		wire.OpGetACL:          {{part: list, of: []piece{{part: fixed, n: 4}, {part: text}, {part: text}}}, theStat},
		wire.OpMulti:           {{part: results}},
	}
	notification = []piece{{part: fixed, n: 8}, {part: text}} // type and state, path
)

// resultHead is the size of the head of a result: the type of its operation,
// whether there are no more, an error code.
const resultHead = 9

// anatomy looks whether a body can be taken apart, as its bytes come by. What
// stands behind its pieces is passed over, as the wire client does.
type anatomy struct {
	todo []piece // a stack: the next is the last
	left int     // bytes of the frame that have not come by
	skip int     // bytes of the present piece that need not be looked at
	num  [resultHead]byte
	have int // of what is being collected in num
}

// begin expects a body of size bytes, and reports false when that is too few.
func (a *anatomy) begin(body []piece, size int) bool {
	*a = anatomy{todo: a.todo[:0], left: size}
	a.push(body)
	return a.feed(nil)
}

func (a *anatomy) push(pieces []piece) {
	for _, p := range slices.Backward(pieces) {
		a.todo = append(a.todo, p)
	}
}

// feed takes the next bytes, none of them beyond the frame, and reports false when
// the body cannot be right.
func (a *anatomy) feed(p []byte) bool {
	a.left -= len(p)
	for {
		n := min(a.skip, len(p))
		a.skip, p = a.skip-n, p[n:]
		if a.skip > 0 {
			return a.skip <= a.left
		}
		if len(a.todo) == 0 {
			return true
		}
		next := &a.todo[len(a.todo)-1]
		need := 4
		switch {
		case next.part == elements && next.n > 0:
			next.n--
			a.push(next.of)
			continue
		case next.part == elements, next.part == fixed:
			a.skip = next.n
			a.pop()
			continue
		case next.part == results:
			need = resultHead
		}
		n = copy(a.num[a.have:need], p)
		a.have, p = a.have+n, p[n:]
		if a.have < need {
			return need-a.have <= a.left
		}
		a.have = 0
		if !a.take(*next, int(int32(binary.BigEndian.Uint32(a.num[:]))), len(p)+a.left) {
			return false
		}
	}
}

func (a *anatomy) pop() { a.todo = a.todo[:len(a.todo)-1] }

// take takes the number that a piece begins with; rest is what comes behind it.
func (a *anatomy) take(next piece, number, rest int) bool {
	if next.part == results {
		return a.result(wire.Op(number), a.num[4] != 0)
	}
	a.pop()
	if next.part == blob && number == -1 {
		return true
	}
	if number < 0 || number > rest { // no element is shorter than a byte
		return false
	}
	if next.part != list {
		a.skip = number
		return true
	}
	a.todo = append(a.todo, piece{part: elements, n: number, of: next.of})
	return number*4*len(next.of) <= rest
}

// result takes the head of one result of a multi.
func (a *anatomy) result(op wire.Op, last bool) bool {
	switch {
	case last:
		a.pop()
	case op == wire.OpError:
		a.todo = append(a.todo, piece{part: fixed, n: 4})
	case op == wire.OpCreate, op == wire.OpSetData:
		a.push(bodies[op])
	case op == wire.OpDelete, op == wire.OpCheck:
	default:
		return false
	}
	return true
}
