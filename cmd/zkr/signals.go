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
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
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
	err := wait(ctx)
	close(over)
	<-ended
	var bySignal *exit
	if errors.As(context.Cause(ctx), &bySignal) {
		return bySignal
	}
	return err
}
