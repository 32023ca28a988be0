package load

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/test/sim"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// historian makes histories of a ledger: one of each part that ends with a
// "quiet" line, for then everything that was not known is decided. The order of
// the lines is the time.
//
// What is not known:
//
//   - When a lease that was lost ended: between its "out" and the quiet. That
//     its holder had left before the next one came is what the model checks.
//   - Whether a guarded write was executed that has failed without an answer:
//     at any time between its beginning and the quiet, if its holder still held
//     then. The version at the quiet must also be explained.
type historian struct {
	name     string
	limit    int
	pictures string

	history *sim.History
	base    int   // the version at the beginning of this part
	line    int64 // the time: lines times step
	actors  map[string]*actor
	taken   map[int]bool // IDs
	ops     int
	parts   int
}

// actor is a goroutine, with what it is doing.
type actor struct {
	number  int
	asked   int64
	id      int        // of the grant that it asks for; negative if it does not
	last    int64      // its last line
	grant   *sim.Grant // what it holds
	outer   *sim.Grant // the write lease of a downgrade, until "gave"
	left    []int      // IDs that are free when it has left
	out     int64      // its "out"
	writing int64      // the line of a write under way
	version int
}

// step is the time between two lines.
const step = 4

// JudgeHistory has porcupine judge a ledger, and returns how many operations
// and parts it had.
func JudgeHistory(name, text string, limit int, pictures string) (ops, parts int, err error) {
	h := &historian{name: name, limit: limit, pictures: pictures}
	h.begin(0)
	for line := range strings.Lines(text) {
		h.line += step
		words := strings.Fields(line)
		if len(words) < 2 {
			words = []string{"", ""}
		}
		if err := h.read(words); err != nil {
			return h.ops, h.parts, fmt.Errorf("%s: line %d: %w", name, h.line/step, err)
		}
	}
	if len(h.actors) > 0 {
		return h.ops, h.parts, fmt.Errorf("%s: it does not end quietly", name)
	}
	return h.ops, h.parts, nil
}

func (h *historian) begin(base int) {
	h.history = sim.NewHistory(h.name)
	h.base = base
	h.actors, h.taken = map[string]*actor{}, map[int]bool{}
}

func (h *historian) read(words []string) error {
	if words[0] == "quiet" {
		version, err := strconv.Atoi(words[1])
		if err != nil {
			return err
		}
		return h.quiet(version)
	}
	who := words[len(words)-1]
	a := h.actors[who]
	if a == nil {
		a = &actor{number: len(h.actors), id: -1, asked: h.line, last: h.line}
		h.actors[who] = a
	}
	err := h.act(a, words)
	a.last = h.line
	return err
}

func (h *historian) act(a *actor, words []string) (err error) {
	switch words[0] {
	case "down", "wrote", "out":
		if a.grant == nil {
			return errors.New("it holds nothing")
		}
	case "gave":
		if a.outer == nil {
			return errors.New("it has not downgraded")
		}
	}
	switch words[0] {
	case "ask":
		a.asked = h.line
		if a.id < 0 {
			a.id = h.take()
		}
	case "in":
		if a.grant != nil { // of the last term, which has ended
			h.ended(*a.grant, a.out, h.line)
			h.free(a)
		}
		if a.id < 0 {
			return errors.New("comes without having asked")
		}
		a.grant, err = h.granted(a, a.id, words[1], words[2], a.asked, nil)
		a.id = -1
	case "down":
		a.outer = a.grant
		a.grant, err = h.granted(a, h.take(), Shared, words[1], a.last, a.outer)
		a.out = h.line
	case "gave":
		h.ended(*a.outer, a.out, h.until(words[1]))
		a.outer = nil
	case "out":
		a.out = h.line
	case "left":
		if a.grant == nil {
			break // it had lost it before
		}
		h.ended(*a.grant, a.out, h.until(words[1]))
		if words[1] == "true" {
			h.free(a)
		}
		a.grant, a.left = nil, nil
	case "writing":
		a.writing = h.line
		a.version, err = strconv.Atoi(words[1])
	case "wrote":
		h.wrote(a, words[1])
	case "at", "none":
	default:
		err = errors.New("not understood")
	}
	return err
}

// until is when something ended: now, or nobody knows.
func (h *historian) until(known string) int64 {
	if known == "true" {
		return h.line
	}
	return sim.Never
}

// take returns an ID that is not in use.
func (h *historian) take() int {
	id := 0
	for h.taken[id] {
		id++
	}
	h.taken[id] = true
	return id
}

func (h *historian) granted(a *actor, id int, mode, token string, call int64, under *sim.Grant) (*sim.Grant, error) {
	a.left = append(a.left, id)
	parsed, err := recipes.ParseToken(token)
	if err != nil {
		return nil, err
	}
	g := sim.Grant{ID: id, Under: id, Client: a.number, Shared: mode == Shared, Permits: permitsOf(mode), Token: parsed}
	if under != nil {
		g.Under = under.ID
	}
	h.ops++
	h.history.Granted(g, call, h.line)
	return &g, nil
}

func (h *historian) ended(g sim.Grant, call, ret int64) {
	h.ops++
	h.history.Ended(g, call, ret)
}

// free lets others have the IDs of a holder that has left for certain.
func (h *historian) free(a *actor) {
	for _, id := range a.left {
		delete(h.taken, id)
	}
	a.grant, a.left = nil, nil
}

func (h *historian) wrote(a *actor, outcome string) {
	h.ops++
	switch outcome {
	case "yes":
		h.history.Wrote(*a.grant, int32(a.version-h.base), a.writing, h.line)
	case "unknown":
		h.history.MayHaveWritten(*a.grant, a.writing, sim.Never)
	}
}

// quiet ends a part: somebody comes last, and finds this version.
func (h *historian) quiet(version int) error {
	for _, a := range h.actors {
		if a.grant != nil { // of the last term
			h.ended(*a.grant, a.out, h.line)
		}
	}
	if h.limit == 0 {
		last := sim.Grant{ID: 255, Under: 255, Client: len(h.actors), Unordered: true}
		h.history.Granted(last, h.line, h.line+1)
		h.history.Wrote(last, int32(version-h.base+1), h.line+2, h.line+3)
	}
	err := h.history.Judge(h.limit, h.pictures)
	h.parts++
	h.begin(version)
	return err
}
