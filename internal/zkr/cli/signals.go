package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Signals receives the signals sent to zkr.
type Signals struct {
	Arrived chan os.Signal
	Last    bool // a signal passed to the command also asked zkr to end

	printed []*output // a write to them does not keep EndWhile waiting
}

// CatchSignals catches the signals that end the work of a subcommand. The
// reader of what that prints may be stuck: see output.
func (e *Ensemble) CatchSignals() *Signals {
	s := e.Signals
	if s == nil {
		s = catchSignals()
	}
	s.printed = e.printed
	return s
}

// catchSignals catches the signals that can be passed on to a command, except
// those that zkr was started to ignore (nohup).
func catchSignals() *Signals {
	s := &Signals{Arrived: make(chan os.Signal, 16)}
	for _, sig := range passedOn {
		if !signal.Ignored(sig) {
			signal.Notify(s.Arrived, sig)
		}
	}
	return s
}

// EndWhile runs wait and ends its context when a signal arrives. It returns
// when wait has returned. If a signal arrived, the error is the exit for that
// signal, whatever wait has returned.
func (s *Signals) EndWhile(ctx context.Context, wait func(context.Context) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	stop := s.EndOn(end)
	for _, o := range s.printed {
		o.until(ctx.Done())
	}
	err := wait(ctx)
	stop()
	return BySignal(ctx, err)
}

// UntilSignal is EndWhile for work that goes on until zkr is asked to end: a
// signal that asks for that is no error once the work has called began.
func (s *Signals) UntilSignal(ctx context.Context, work func(ctx context.Context, began func()) error) error {
	started := false
	err := s.EndWhile(ctx, func(ctx context.Context) error { return work(ctx, func() { started = true }) })
	if started && IsInterruption(err) {
		return nil
	}
	return err
}

// IsInterruption reports whether err is the exit for a signal that asks zkr to
// end.
func IsInterruption(err error) bool {
	var end *Exit
	return errors.As(err, &end) && end.Code > ExitSignal && AsksToEnd(syscall.Signal(end.Code-ExitSignal))
}

// EndOn calls end with the exit for each signal that arrives, until stop is
// called. After stop has returned, the caller receives the signals again.
func (s *Signals) EndOn(end context.CancelCauseFunc) (stop func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop
		defer close(ended)
		for {
			select {
			case sig := <-s.Arrived:
				if n, ok := sig.(syscall.Signal); ok && !Harmless(n) {
					end(&Exit{ExitSignal + int(n), fmt.Errorf("ended by signal: %v", sig)})
				}
			case <-over:
				return
			}
		}
	}()
	return func() {
		close(over)
		<-ended
	}
}

// BySignal returns the exit for the signal that has ended ctx, or err if no
// signal has.
func BySignal(ctx context.Context, err error) error {
	var end *Exit
	if errors.As(context.Cause(ctx), &end) {
		return end
	}
	return err
}
