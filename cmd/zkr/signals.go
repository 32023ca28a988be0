package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// signals are those that were sent to zkr.
type signals struct {
	arrived chan os.Signal
	last    bool // one that a command got was meant to be the end of zkr, too
}

// catchSignals catches what can be passed on to a command, except what zkr was started to ignore (nohup).
func catchSignals() *signals {
	s := &signals{arrived: make(chan os.Signal, 16)}
	for _, sig := range passedOn {
		if !signal.Ignored(sig) {
			signal.Notify(s.arrived, sig)
		}
	}
	return s
}

// endWhile runs wait, and ends its context when a signal arrives. wait has returned when endWhile does; the error is the
// exit that the signal asks for if there was one, whatever wait made of it.
func (s *signals) endWhile(wait func(context.Context) error) error {
	ctx, end := context.WithCancelCause(context.Background())
	defer end(nil)
	stop := s.endOn(end)
	err := wait(ctx)
	stop()
	return bySignal(ctx, err)
}

// endOn has each signal that arrives call end with the exit that it asks for, until stop: when that returns, the signals are
// the caller's again.
func (s *signals) endOn(end context.CancelCauseFunc) (stop func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop
		defer close(ended)
		for {
			select {
			case sig := <-s.arrived:
				if n, ok := sig.(syscall.Signal); ok && !harmless(n) {
					end(&exit{exitSignal + int(n), fmt.Errorf("ended by a signal: %v", sig)})
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

// bySignal is the exit that a signal asked for if one has ended ctx, and err otherwise.
func bySignal(ctx context.Context, err error) error {
	var end *exit
	if errors.As(context.Cause(ctx), &end) {
		return end
	}
	return err
}
