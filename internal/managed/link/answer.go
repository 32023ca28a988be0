package link

import (
	"encoding/binary"
	"slices"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// The wire client decodes answers without checking their lengths. It allocates
// as many names as a list claims to have. It panics, on one of its own
// goroutines, on a result that ends too early. Where a length goes beyond the
// end of its frame, it reads on in what an earlier, longer frame has left in
// its buffer. It also ignores an answer to no request, and then the request
// that was meant never ends. It passes on any notification, also one that the
// session has ended, which only it can know.
//
// So each answer is checked before the wire client gets its last byte: that it
// is to the request that is next, and that its body can be decoded. If not, the
// connection is closed, and what was under way is handled as after any loss of
// a connection.

// unanswered are the requests of a connection that are not answered yet, in
// order.
type unanswered struct {
	mu       sync.Mutex // guards what follows
	requests []pendingRequest
}

type pendingRequest struct {
	xid int32
	op  wire.Op
}

// add notes a request that is about to be sent. Pings all have the same number,
// and their answers have no body.
func (a *unanswered) add(xid int32, op wire.Op) {
	if xid == wire.XidPing {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests = append(a.requests, pendingRequest{xid, op})
}

// has reports whether a request for an operation waits for its answer, and
// whether nothing before it does.
func (a *unanswered) has(op wire.Op) (pending, oldest bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := slices.IndexFunc(a.requests, func(r pendingRequest) bool { return r.op == op })
	return at >= 0, at == 0
}

// take returns the operation that an answer belongs to. It reports false if
// there is none, or if another request must be answered first. Answers come in
// the order of their requests, except those to credentials, and refusals of
// operations that a server does not know: early says that this is one.
func (a *unanswered) take(xid int32, early bool) (op wire.Op, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := slices.IndexFunc(a.requests, func(r pendingRequest) bool { return r.xid == xid })
	if at < 0 {
		return 0, false
	}
	op = a.requests[at].op
	if op != wire.OpAuth && !early {
		for _, before := range a.requests[:at] {
			if before.op != wire.OpAuth {
				return 0, false
			}
		}
	}
	a.requests = slices.Delete(a.requests, at, at+1)
	return op, true
}

// fieldKind is a kind of field in the body of an answer.
type fieldKind byte

const (
	fixed       fieldKind = iota // n bytes, whatever they are
	text                         // a length, and as many bytes
	blob                         // the same, where -1 means no bytes
	list                         // a count, and as many elements
	elements                     // n of them
	results                      // of a multi, up to the one that says that there are no more
	readResults                  // the same of a multiRead
	eventType                    // of a znode's event, not of a session's
)

// field is one field of a body, with what its kind needs.
type field struct {
	kind fieldKind
	n    int
	of   []field // an element consists of these
}

// bodies are the fields of the answers to the operations that the wire client
// is asked for, and of those to our own. Nobody looks at the body of any other
// answer.
var (
	statField = field{kind: fixed, n: wire.StatSize}
	bodies    = map[wire.Op][]field{
		wire.OpCreate:          {{kind: text}},
		wire.OpCreateContainer: {{kind: text}},
		wire.OpCreateTTL:       {{kind: text}},
		wire.OpSync:            {{kind: text}},
		wire.OpExists:          {statField},
		wire.OpSetData:         {statField},
		wire.OpSetACL:          {statField},
		wire.OpGetData:         {{kind: blob}, statField},
		wire.OpGetChildren2:    {{kind: list, of: []field{{kind: text}}}, statField},
		wire.OpGetACL:          {{kind: list, of: []field{{kind: fixed, n: 4}, {kind: text}, {kind: text}}}, statField},
		wire.OpMulti:           {{kind: results}},
		wire.OpMultiRead:       {{kind: readResults}},
		wire.OpGetChildren:     {{kind: list, of: []field{{kind: text}}}},
	}
	notification = []field{{kind: eventType}, {kind: fixed, n: 4}, {kind: text}} // type, state, path
)

// resultHead is the size of the head of a result: the type of its operation,
// whether it is the end of the list, an error code.
const resultHead = 9

// bodyCheck checks that a body can be decoded, while its bytes pass by. It
// ignores what is behind the fields, as the wire client does.
type bodyCheck struct {
	todo []field // a stack: the next is the last
	left int     // bytes of the frame that have not passed yet
	skip int     // bytes of the current field that need no check
	num  [resultHead]byte
	have int // bytes of num
}

// begin expects a body of size bytes, and reports false if those are too few.
func (c *bodyCheck) begin(body []field, size int) bool {
	*c = bodyCheck{todo: c.todo[:0], left: size}
	c.push(body)
	return c.feed(nil)
}

func (c *bodyCheck) push(fields []field) {
	for _, p := range slices.Backward(fields) {
		c.todo = append(c.todo, p)
	}
}

// feed takes the next bytes, none of them beyond the frame, and reports false
// when the body cannot be decoded.
func (c *bodyCheck) feed(p []byte) bool {
	c.left -= len(p)
	for {
		n := min(c.skip, len(p))
		c.skip, p = c.skip-n, p[n:]
		if c.skip > 0 {
			return c.skip <= c.left
		}
		if len(c.todo) == 0 {
			return true
		}
		next := &c.todo[len(c.todo)-1]
		need := 4
		switch {
		case next.kind == elements && next.n > 0:
			next.n--
			c.push(next.of)
			continue
		case next.kind == elements, next.kind == fixed:
			c.skip = next.n
			c.pop()
			continue
		case next.kind == results, next.kind == readResults:
			need = resultHead
		}
		n = copy(c.num[c.have:need], p)
		c.have, p = c.have+n, p[n:]
		if c.have < need {
			return need-c.have <= c.left
		}
		c.have = 0
		if !c.take(*next, int(int32(binary.BigEndian.Uint32(c.num[:]))), len(p)+c.left) {
			return false
		}
	}
}

func (c *bodyCheck) pop() { c.todo = c.todo[:len(c.todo)-1] }

// take takes the number that a field begins with; rest is how many bytes follow
// it.
func (c *bodyCheck) take(next field, number, rest int) bool {
	if next.kind == results || next.kind == readResults {
		return c.result(next.kind, wire.Op(number), c.num[4] != 0)
	}
	c.pop()
	if next.kind == eventType {
		return number > 0
	}
	if next.kind == blob && number == -1 {
		return true
	}
	if number < 0 || number > rest { // no element is shorter than a byte
		return false
	}
	if next.kind != list {
		c.skip = number
		return true
	}
	c.todo = append(c.todo, field{kind: elements, n: number, of: next.of})
	return number*4*len(next.of) <= rest
}

// result takes the head of one result of a multi or a multiRead.
func (c *bodyCheck) result(of fieldKind, op wire.Op, last bool) bool {
	switch {
	case last:
		c.pop()
	case op == wire.OpError:
		c.todo = append(c.todo, field{kind: fixed, n: 4})
	case of == readResults && (op == wire.OpGetData || op == wire.OpGetChildren),
		of == results && (op == wire.OpCreate || op == wire.OpSetData):
		c.push(bodies[op])
	case of == results && (op == wire.OpDelete || op == wire.OpCheck):
	default:
		return false
	}
	return true
}
