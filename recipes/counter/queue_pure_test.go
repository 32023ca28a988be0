package counter

import (
	"errors"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/managed"
)

// A caller that leaves when its batch is over gets the result of the batch,
// which it may not have seen yet.
func TestLeaveAfterTheEnd(t *testing.T) {
	for name, end := range map[string]func(w *writer, b *batch){
		"executed": func(w *writer, b *batch) { w.finish(b, make([]result, 2)) },
		"failed":   func(w *writer, b *batch) { w.fail(b, errors.New("why"), false) },
	} {
		k := &keeper{}
		of := &Counter{client: new(managed.Client), path: "/n"}
		b := &batch{cancel: func() {}}
		for range 2 {
			b.requests = append(b.requests, &request{counter: of, batch: b, done: make(chan struct{})})
		}
		if got := k.leave(b.requests[0]); got != goesOn {
			t.Errorf("%s: the first of two that leave: %d, want %d", name, got, goesOn)
		}
		b.left = 0
		end(&writer{keeper: k}, b)
		for _, r := range b.requests {
			if got := k.leave(r); got != ends {
				t.Errorf("%s: %d, want %d", name, got, ends)
			}
		}
	}
}
