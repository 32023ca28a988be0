package live

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// requestRate is a flag: requests per second, 0 for no limit.
type requestRate int

const unlimited = 0

func (r *requestRate) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return fmt.Errorf("want a number of requests per second, or 0")
	}
	*r = requestRate(n)
	return nil
}

func (r *requestRate) String() string { return strconv.Itoa(int(*r)) }

// Type returns what the help shows as the flag's argument.
func (r *requestRate) Type() string { return "n" }

func (r *requestRate) options() []inspect.Option {
	if *r == unlimited {
		return nil
	}
	return []inspect.Option{inspect.WithRate(int(*r))}
}

// printTree prints each line at and below a path.
func printTree(ctx context.Context, w io.Writer, r inspect.Reader, at string, asJSON bool, opts ...inspect.Option) error {
	forest, err := inspect.Tree(ctx, r, at, opts...)
	if err != nil {
		return cli.NotAcquired(err)
	}
	print := printText
	if asJSON {
		print = printJSON
	}
	if !forest.Exists {
		if err := cli.CheckChroot(ctx, r); err != nil {
			return cli.Failed(err)
		}
		return cli.FailedIf(print(w, snapshotOf(&inspect.Line{Path: at}, time.Now())))
	}
	if len(forest.Lines) == 0 && len(forest.Unreadable) == 0 && !asJSON {
		_, err := fmt.Fprintf(w, "%s: nothing at or below it is held or waited for\n", escape.Text(at))
		return cli.FailedIf(err)
	}
	now := time.Now()
	for i := range forest.Lines {
		s := snapshotOf(&forest.Lines[i], now)
		s.Others = nil // directories, which have been searched
		if err := print(w, s); err != nil {
			return cli.Failed(err)
		}
	}
	return cli.FailedIf(cli.MayNotRead(forest.Unreadable))
}
