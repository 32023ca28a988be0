package sim

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// A history is judged as the history of one object. Its state is the holders,
// the limit, the last token and the last version written. An operation that may
// not have been applied, or may not have ended, has no end in the history: it
// may take effect at any instant after its beginning, or after everything else,
// where it disturbs nothing.

// op is one operation of a history.
type op struct {
	who       who
	in        input
	call, ret int64
}

// never is the end of an operation of unknown outcome.
const never = math.MaxInt64 / 2

type kind int

const (
	acquire kind = iota
	end
	write
	setLimit
)

// input is an operation with its outcome.
type input struct {
	kind    kind
	id      int // of the holding
	root    int // of the holding that it is nested in
	znode   int // id of the first holding of the same znode
	shared  bool
	permits int
	token   recipes.Token
	order   bool // the token is in order
	version int32
	zxid    int64
	unknown bool
}

// state is comparable and small.
type state struct {
	holders string // five bytes for each: id, root, shared, permits, znode; by id
	limit   int    // of a semaphore; 0 for others
	version int32
	token   recipes.Token // of the last exclusive grant
}

const width = 5

func (s state) find(id int) int {
	for i := 0; i < len(s.holders); i += width {
		if int(s.holders[i]) == id {
			return i
		}
	}
	return -1
}

// stands reports whether any holder of a shared znode still holds it: then the
// znode guards an operation of a holder that has left.
func (s state) stands(znode int) bool {
	for i := 0; i < len(s.holders); i += width {
		if s.holders[i+2] == 1 && int(s.holders[i+4]) == znode {
			return true
		}
	}
	return false
}

// step is the model of every recipe; a limit marks a semaphore.
func step(s state, in input) (state, bool) {
	switch in.kind {
	case acquire:
		return s.acquire(in)
	case end:
		i := s.find(in.id)
		if i < 0 {
			return s, false
		}
		s.holders = s.holders[:i] + s.holders[i+width:]
	case write:
		switch held := s.find(in.id) >= 0 || in.shared && s.stands(in.znode); {
		case in.unknown && held:
			s.version++
		case in.unknown: // refused
		case !held || in.version != s.version+1:
			return s, false
		default:
			s.version++
		}
	case setLimit:
		s.limit = in.permits
	}
	return s, true
}

func (s state) acquire(in input) (state, bool) {
	sum := in.permits
	for i := 0; i < len(s.holders); i += width {
		sum += int(s.holders[i+3])
		shared, root := s.holders[i+2] == 1, int(s.holders[i+1])
		if s.limit == 0 && (!shared || !in.shared) && root != in.root {
			return s, false
		}
	}
	if s.limit > 0 && sum > s.limit {
		return s, false
	}
	if in.order && s.limit == 0 && in.root == in.id {
		if in.token.Compare(s.token) <= 0 {
			return s, false
		}
		if !in.shared {
			s.token = in.token
		}
	}
	entry := []byte{byte(in.id), byte(in.root), 0, byte(in.permits), byte(in.znode)}
	if in.shared {
		entry[2] = 1
	}
	at := 0
	for at < len(s.holders) && int(s.holders[at]) < in.id {
		at += width
	}
	s.holders = s.holders[:at] + string(entry) + s.holders[at:]
	return s, true
}

var hashSeed = maphash.MakeSeed()

// model is the model in porcupine's form.
func model(limit int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{limit: limit} },
		Step: func(s, in, _ any) (bool, any) {
			next, ok := step(s.(state), in.(input))
			return ok, next
		},
		Equal:             func(a, b any) bool { return a.(state) == b.(state) },
		Hash:              func(s any) uint64 { return maphash.Comparable(hashSeed, s.(state)) },
		DescribeOperation: func(in, _ any) string { return in.(input).String() },
		DescribeState:     func(s any) string { return s.(state).String() },
	}
}

func (in input) String() string {
	switch in.kind {
	case acquire:
		mode := "exclusive"
		if in.shared {
			mode = "shared"
		}
		if in.permits > 0 {
			mode = fmt.Sprint(in.permits, " permits")
		}
		return fmt.Sprintf("#%d granted, %s, token %v", in.id, mode, in.token)
	case end:
		return fmt.Sprintf("#%d ends", in.id)
	case write:
		if in.unknown {
			return fmt.Sprintf("#%d may have written", in.id)
		}
		return fmt.Sprintf("#%d writes version %d", in.id, in.version)
	}
	return fmt.Sprintf("limit %d", in.permits)
}

func (s state) String() string {
	var held []string
	for i := 0; i < len(s.holders); i += width {
		held = append(held, fmt.Sprintf("#%d", s.holders[i]))
	}
	return fmt.Sprintf("held by [%s], version %d, token %v", strings.Join(held, " "), s.version, s.token)
}

// patienceOfTheJudge is how long porcupine may take for a history. If it takes
// longer, the history was not judged, which is a failure.
const patienceOfTheJudge = 20 * time.Second

// NotJudged is in what is said of such a history.
const NotJudged = "was not judged"

// judge returns what is wrong with the history of a resource. If the history
// has no explanation, it writes a picture of it to the directory pictures,
// unless that is empty.
func (r *resource) judge(limit int, pictures string) error {
	r.boundEnds()
	slices.SortFunc(r.ops, func(a, b op) int { return cmp.Compare(a.call, b.call) })
	history := make([]porcupine.Operation, 0, len(r.ops))
	for _, o := range r.ops {
		history = append(history, porcupine.Operation{ClientId: o.who.client*8 + o.who.goroutine, Input: o.in, Call: o.call, Return: o.ret})
	}
	switch porcupine.CheckOperationsTimeout(model(limit), history, patienceOfTheJudge) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("%s: the history of %d operations %s in %v", r.path, len(history), NotJudged, patienceOfTheJudge)
	}
	err := fmt.Errorf("%s: the history is not that of one object", r.path)
	if pictures == "" {
		return err
	}
	picture, drawErr := paint(model(limit), history, pictures)
	if drawErr != nil {
		return fmt.Errorf("%w; no picture: %w", err, drawErr)
	}
	return fmt.Errorf("%w, see %s", err, picture)
}

// boundEnds says until when each end has happened at the latest: else porcupine
// tries it at every later place, and each one doubles the places of the others.
// Nothing fails because an end comes earlier but the writes that its holding
// guards. So where it could come later, it could come right behind the last of
// these. An unknown write says nothing.
func (r *resource) boundEnds() {
	held, last := make(map[int]input), make(map[int]int64) // by id
	guarded := make(map[int]int64)                         // the same as last, of all who share a znode
	for _, o := range r.ops {
		switch o.in.kind {
		case acquire:
			held[o.in.id] = o.in
			last[o.in.id] = max(last[o.in.id], o.ret)
		case write:
			last[o.in.id] = max(last[o.in.id], o.ret)
			if o.in.shared {
				guarded[o.in.znode] = max(guarded[o.in.znode], o.ret)
			}
		}
	}
	for i := range r.ops {
		o := &r.ops[i]
		if o.in.kind != end {
			continue
		}
		bound := max(o.call, last[o.in.id])
		if h := held[o.in.id]; h.shared {
			bound = max(bound, guarded[h.znode])
		}
		if bound < never {
			o.ret = min(o.ret, bound+1)
		}
	}
}

// paint writes the picture of a history and returns its path.
func paint(m porcupine.Model, history []porcupine.Operation, dir string) (string, error) {
	last := int64(0)
	for _, o := range history {
		if last = max(last, o.Call); o.Return < never {
			last = max(last, o.Return)
		}
	}
	for i := range history { // or the other operations would be points beside it
		history[i].Return = min(history[i].Return, last+10)
	}
	_, info := porcupine.CheckOperationsVerbose(m, history, patienceOfTheJudge)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	file, err := os.CreateTemp(dir, "history-*.html")
	if err != nil {
		return "", err
	}
	path, err := filepath.Abs(file.Name())
	if err == nil {
		err = porcupine.Visualize(m, info, file)
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return path, err
}
