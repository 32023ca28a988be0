package inspect

import (
	"context"
	"errors"
)

// errExited is the error of a call that has not returned.
var errExited = errors.New("a function passed to this package has ended its goroutine")

// spread calls do for each task, and for each task that do returns, with as
// many calls at a time as the settings allow. It returns the first error, after
// all calls have returned; ctx of the others ends then.
func spread[T any](ctx context.Context, g *reading, tasks []T, do func(context.Context, T) (more []T, err error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		more []T
		err  error
	}
	outcomes := make(chan outcome)
	var first error
	g.many.begin() // this loop, while it does not wait
	defer g.many.end(ctx)
	for running := 0; running > 0 || len(tasks) > 0; {
		for running < g.concurrency && len(tasks) > 0 {
			task := tasks[len(tasks)-1] // depth first, which keeps few tasks
			tasks = tasks[:len(tasks)-1]
			running++
			g.many.begin()
			go func() {
				o := outcome{err: errExited}
				defer func() { outcomes <- o }() // also if user code ends the goroutine
				o.more, o.err = do(ctx, task)
			}()
		}
		g.many.end(ctx)
		o := <-outcomes // the loop goes on in place of the task
		running--
		tasks = append(tasks, o.more...)
		if o.err != nil && first == nil {
			first = o.err
			cancel()
		}
		if first != nil {
			tasks = nil
		}
	}
	return first
}
