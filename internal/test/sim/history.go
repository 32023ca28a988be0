package sim

import (
	"fmt"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// History is what happened to one lock outside of the simulator. It is judged
// by the same model: see model.go. Times are any numbers, as long as they order
// the events. [Never] is the end of an operation of unknown outcome.
type History struct{ resource resource }

// Never is when an operation ends that may take effect at any time after it
// began, or not at all.
const Never int64 = never

// Grant is a lock's grant to a contender.
type Grant struct {
	// ID tells grants apart that may be held at the same time. It is below 256.
	ID int
	// Under is the ID of the grant that this one is nested in, or ID.
	Under     int
	Client    int
	Goroutine int
	Shared    bool
	Permits   int // of a semaphore
	Token     recipes.Token
	// Unordered says that the token is not judged.
	Unordered bool
}

// NewHistory returns the history of a lock, which is empty.
func NewHistory(name string) *History { return &History{resource{path: name}} }

func (h *History) add(g Grant, in input, call, ret int64) {
	in.id, in.znode, in.shared = g.ID, g.ID, g.Shared
	h.resource.ops = append(h.resource.ops, op{who: who{g.Client, g.Goroutine}, in: in, call: call, ret: ret})
}

// Granted adds that a lock was granted between two times.
func (h *History) Granted(g Grant, call, ret int64) {
	h.add(g, input{kind: acquire, root: g.Under, permits: g.Permits, token: g.Token, order: !g.Unordered}, call, ret)
}

// Ended adds that a grant ended between two times.
func (h *History) Ended(g Grant, call, ret int64) { h.add(g, input{kind: end}, call, ret) }

// Wrote adds that a guarded write made a version, the first of which is 1.
func (h *History) Wrote(g Grant, version int32, call, ret int64) {
	h.add(g, input{kind: write, version: version}, call, ret)
}

// MayHaveWritten adds a guarded write that was executed while the grant was
// held, or not at all.
func (h *History) MayHaveWritten(g Grant, call, ret int64) {
	h.add(g, input{kind: write, unknown: true}, call, ret)
}

// Judge returns what is wrong with the history. The limit is that of a
// semaphore, and 0 for other locks. If the history has no explanation, Judge
// writes a picture of it to the directory pictures, unless that is empty.
func (h *History) Judge(limit int, pictures string) error {
	for _, o := range h.resource.ops {
		if o.in.id < 0 || o.in.id > 255 || o.in.root < 0 || o.in.root > 255 {
			return fmt.Errorf("%s: a grant has the ID %d, under %d", h.resource.path, o.in.id, o.in.root)
		}
	}
	return h.resource.judge(limit, pictures)
}
