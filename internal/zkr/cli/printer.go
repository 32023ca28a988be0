package cli

import (
	"io"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/escape"
)

// Printer prints what is sent to it, in a form that is safe for a terminal:
// names in it may be anybody's. A reader that takes its time does not keep
// zkr from noticing a signal or a loss.
type Printer struct {
	Lines   chan<- string
	Results <-chan error // one for each write
	printed int          // how many writes have succeeded
}

// StartPrinter returns a printer, whose goroutine ends with Finish or the
// process.
func StartPrinter(w io.Writer) *Printer {
	const most = 2 // the announcement and the revocation, or the revocation and the loss
	lines, results := make(chan string, most), make(chan error, most)
	go func() { // ends when lines is closed, or with the process
		defer close(results)
		for text := range lines {
			_, err := io.WriteString(w, escape.Lines(text))
			select {
			case results <- err:
			default: // nobody wants to know
			}
		}
	}()
	return &Printer{Lines: lines, Results: results}
}

// Offer prints text, unless nobody has read the texts before it.
func (p *Printer) Offer(text string) {
	select {
	case p.Lines <- text:
	default:
	}
}

// Say prints text. It waits for that at most so long: maybe nobody reads.
func Say(w io.Writer, most time.Duration, text string) {
	p := StartPrinter(w)
	p.Offer(text)
	p.Finish(most)
}

// Finish ends the printer. It waits at most so long until all is printed.
func (p *Printer) Finish(most time.Duration) {
	close(p.Lines)
	enough := time.After(most)
	for {
		select {
		case _, more := <-p.Results:
			if !more {
				return
			}
		case <-enough:
			return
		}
	}
}

// Note counts a write that has succeeded.
func (p *Printer) Note(err error) {
	if err == nil {
		p.printed++
	}
}

// HasPrinted reports whether the first text is printed, or will be in a moment:
// a reader may answer it before the write has returned.
func (p *Printer) HasPrinted() bool {
	if p.printed == 0 {
		const moment = time.Second
		select {
		case err := <-p.Results:
			p.Note(err)
		case <-time.After(moment):
		}
	}
	return p.printed > 0
}
