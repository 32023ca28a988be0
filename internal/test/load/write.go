package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// guardedWrite replaces the last tokens at a worker's places by those of an
// exclusive holder.
type guardedWrite struct {
	tokens []recipes.Token
	last   []string // what was there
	ops    []any
	late   bool // the same holder may have written before
}

// prepare prepares a write over what is there now. It returns nil if that
// cannot be read.
func (w Worker) prepare(ctx context.Context, l *recipes.Lease) *guardedWrite {
	g := &guardedWrite{tokens: w.tokens(l)}
	for i, p := range w.Places {
		data, stat, err := w.Client.Get(ctx, p.Resource)
		if err != nil {
			return nil // no server answers, or the lease was lost
		}
		g.last = append(g.last, string(data))
		g.ops = append(g.ops, &zk.SetDataRequest{Path: p.Resource, Data: []byte(g.tokens[i].String()), Version: stat.Version})
	}
	return g
}

func (w Worker) writes() bool { return w.Places[0].Resource != "" && w.Mode == Exclusive }

// write makes a guarded write. A write of a lost lease is not executed, however
// late it comes: a token that follows a greater one is an error.
func (w Worker) write(l *recipes.Lease) error {
	if !w.writes() {
		return nil
	}
	ctx := l.Context() // it ends with the lease, so that no work outlives it
	g := w.prepare(ctx, l)
	if g == nil {
		return nil
	}
	err := w.writing(g)
	if err == nil {
		_, multiErr := l.Multi(ctx, g.ops...)
		err = w.wrote(g, multiErr)
	}
	return err
}

// guard returns a guard for writeLate, of some leases: a guard prevents
// handoffs.
func (w Worker) guard(l *recipes.Lease) []any {
	if !w.History || !w.writes() || w.Reader != nil || rand.IntN(2) == 0 {
		return nil
	}
	return l.Guard()
}

// writeLate is what no holder should do: it writes after the lease was lost, as
// soon as a server answers again. The guard prevents that as soon as another
// one may have been granted.
func (w Worker) writeLate(l *recipes.Lease, guard []any) error {
	if guard == nil || l.Err() == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience/2)
	defer cancel()
	g := w.prepare(ctx, l)
	if g == nil {
		return nil
	}
	g.late = true
	w.Figures.Note(func(f *Figures) { f.Late++ })
	err := w.writing(g)
	if err == nil {
		_, multiErr := w.Client.Multi(ctx, append(guard, g.ops...)...)
		err = w.wrote(g, multiErr)
	}
	return err
}

// writing records that a write begins, and which versions it would make.
func (w Worker) writing(g *guardedWrite) error {
	var errs []error
	for i, op := range g.ops {
		if w.History {
			errs = append(errs, w.Places[i].Ledger.Append("writing %d %s", op.(*zk.SetDataRequest).Version+1, w.Who))
		}
	}
	return errors.Join(errs...)
}

// wrote records how a write has ended. It returns what was wrong with it.
func (w Worker) wrote(g *guardedWrite, outcome error) error {
	word := "yes"
	w.Figures.Note(func(f *Figures) {
		switch {
		case outcome == nil:
			f.Writes++
		case framework.MaybeApplied(outcome):
			f.Unknown++
			word = "unknown"
		default:
			f.Refused++
			word = "no"
		}
	})
	err := w.record("wrote %s %s", word, w.Who)
	for i, last := range g.last {
		if last == "" || outcome != nil {
			continue
		}
		token, parseErr := recipes.ParseToken(last)
		if order := g.tokens[i].Compare(token); parseErr == nil && (order < 0 || order == 0 && !g.late) {
			parseErr = fmt.Errorf(judge.Mark+"%s writes token %v to %s over %v", w.Who, g.tokens[i], w.Places[i].Resource, token)
		}
		err = errors.Join(err, parseErr)
	}
	return err
}
