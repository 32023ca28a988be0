package guard

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// This file runs while a process lives: it waits for its death, and kills its
// groups in time if it is stopped.

// watch waits for the death of the process, and does what is to be done then.
func (s *served) watch() error {
	s.mu.Lock()
	pidfd, event := s.charge.files[0], s.charge.files[1]
	s.mu.Unlock()
	// The files of the charge stay open for direct use; these are for the runtime.
	death, err := readable(pidfd)
	if err != nil {
		return err
	}
	defer death.Close()
	given, err := readable(event)
	if err != nil {
		return err
	}
	defer given.Close()
	reading := make(chan error, 1)
	go func() { reading <- s.read(func() bool { return false }) }() // ends when conn is closed
	dead, givenUp := awaitReadable(death), awaitReadable(given)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(s.untilKill())
		select {
		case <-dead:
			return s.onDeath(s.g.noticed(), event)
		case <-givenUp:
			return nil
		case err := <-reading:
			if reading = nil; err != nil && !errors.Is(err, io.EOF) { // its end says nothing: it may have been closed by an exec
				s.refuse(err)
				return fmt.Errorf("%v is refused: %w", s, err)
			}
		case <-s.later:
		case <-timer.C:
			s.killLate(event)
		}
	}
}

// untilKill returns how long the groups of the process may run on.
func (s *served) untilKill() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.charge.until == 0 || !s.g.kills || s.wrong != nil || !s.hasGroupLocked() {
		return time.Hour
	}
	return max(0, s.charge.until-bootTime())
}

func (s *served) hasGroupLocked() bool {
	for _, run := range s.charge.commands {
		if run.group != 0 {
			return true
		}
	}
	return false
}

// killLate kills the groups of a process that is stopped: its time has passed,
// and it has not told a later one. This guardian may have been stopped itself.
// So it reads all that is there, and looks at the time again.
func (s *served) killLate(event int) {
	s.drain()
	for _, group := range s.killPast(event) {
		s.log("it was stopped: process group %d is killed at the deadline", group)
	}
}

func (s *served) killPast(event int) (killed []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if isReadable(event) || s.wrong != nil || !s.charge.isPast(bootTime()) {
		return nil
	}
	s.charge.until = 0
	for _, run := range s.charge.commands {
		if run.group != 0 {
			run.kill()
			killed = append(killed, run.group)
		}
	}
	return killed
}
