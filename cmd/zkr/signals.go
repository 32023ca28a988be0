package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// signals receives the signals sent to zkr.
type signals struct {
	arrived chan os.Signal
	last    bool // a signal passed to the command also asked zkr to end
}

// catchSignals catches the signals that can be passed on to a command, except
// those that zkr was started to ignore (nohup).
func catchSignals() *signals {
	s := &signals{arrived: make(chan os.Signal, 16)}
	for _, sig := range passedOn {
		if !signal.Ignored(sig) {
			signal.Notify(s.arrived, sig)
		}
	}
	return s
}

// outliveReaders makes a write to a pipe whose reader has ended fail. By default
// it ends the process, which then could neither stop its command nor release its
// lease.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// endWhile runs wait and ends its context when a signal arrives. It returns
// when wait has returned. If a signal arrived, the error is the exit for that
// signal, whatever wait has returned.
func (s *signals) endWhile(wait func(context.Context) error) error {
	ctx, end := context.WithCancelCause(context.Background())
	defer end(nil)
	stop := s.endOn(end)
	err := wait(ctx)
	stop()
	return bySignal(ctx, err)
}

// untilSignal is endWhile for work that goes on until zkr is asked to end: a
// signal that asks for that is no error once the work has called began.
func (s *signals) untilSignal(work func(ctx context.Context, began func()) error) error {
	started := false
	err := s.endWhile(func(ctx context.Context) error { return work(ctx, func() { started = true }) })
	var end *exit
	if errors.As(err, &end) && started && end.code > exitSignal && asksToEnd(syscall.Signal(end.code-exitSignal)) {
		return nil
	}
	return err
}

// endOn calls end with the exit for each signal that arrives, until stop is
// called. After stop has returned, the caller receives the signals again.
func (s *signals) endOn(end context.CancelCauseFunc) (stop func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop
		defer close(ended)
		for {
			select {
			case sig := <-s.arrived:
				if n, ok := sig.(syscall.Signal); ok && !harmless(n) {
					end(&exit{exitSignal + int(n), fmt.Errorf("ended by signal: %v", sig)})
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

// bySignal returns the exit for the signal that has ended ctx, or err if no
// signal has.
func bySignal(ctx context.Context, err error) error {
	var end *exit
	if errors.As(context.Cause(ctx), &end) {
		return end
	}
	return err
}
