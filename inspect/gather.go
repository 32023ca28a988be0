package inspect

import (
	"context"
	"fmt"
	"sync"

	"github.com/zkrecipes/zkrecipes/framework"
)

// gather puts the reads of tasks into few calls of ReadAll: it makes one when
// all that run wait for a read. A nil gather counts nothing.
type gather struct {
	readAll func(ctx context.Context, reads ...framework.Read) ([]framework.ReadResult, error)

	mu      sync.Mutex // guards what follows
	running int        // tasks
	waiting []*gathered
}

type gathered struct {
	read   framework.Read
	result framework.ReadResult // set when done is closed
	done   chan struct{}
}

// begin counts what runs from now on: a task, or the loop that starts them.
func (g *gather) begin() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running++
}

// end takes back what begin has counted.
func (g *gather) end(ctx context.Context) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	g.serveLocked(ctx)
}

// read returns the result of a read.
func (g *gather) read(ctx context.Context, read framework.Read) framework.ReadResult {
	one := &gathered{read: read, done: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, one)
	g.serveLocked(ctx)
	g.mu.Unlock()
	<-one.done
	return one.result
}

func (g *gather) serveLocked(ctx context.Context) {
	if len(g.waiting) > 0 && len(g.waiting) >= g.running {
		go g.serve(ctx, g.waiting)
		g.waiting = nil
	}
}

func (g *gather) serve(ctx context.Context, all []*gathered) {
	reads := make([]framework.Read, len(all))
	for i, one := range all {
		reads[i], one.result.Err = one.read, errExited
	}
	defer func() { // also if user code ends the goroutine
		for _, one := range all {
			close(one.done)
		}
	}()
	results, err := g.readAll(ctx, reads...)
	if err == nil && len(results) != len(reads) {
		err = fmt.Errorf("ReadAll of %d reads has returned %d results", len(reads), len(results))
	}
	for i, one := range all {
		if err != nil {
			one.result = framework.ReadResult{Err: err}
		} else {
			one.result = results[i]
		}
	}
}
