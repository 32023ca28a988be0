package guard

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"
)

// This file runs while a process lives: it waits for its death, and kills its
// groups in time if it is stopped, or they do not end.

// seekPause is how long after a deadline a guardian looks again for a command
// that was not to be found.
const seekPause = 100 * time.Millisecond

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
	if s.charge.until == 0 || !s.g.kills || s.wrong != nil || len(s.charge.commands) == 0 {
		return time.Hour
	}
	return max(0, s.charge.until-bootTime())
}

// killLate kills the groups of a process whose time has passed, and which has
// not told a later one: it is stopped, or has lost its lease, and the groups do
// not end. This guardian may have been stopped itself.
// So it reads all that is there, and looks at the time again.
//
// The process may have been stopped when it had started a command, and could
// not say which group that leads. So killLate seeks it, before it reads.
func (s *served) killLate(event int) {
	s.drain()
	found := s.seek()
	defer func() {
		for _, run := range found {
			_ = syscall.Close(run.pidfd)
		}
	}()
	s.drain()
	for _, group := range s.killPast(event, found) {
		s.log("it was stopped, or its command does not end: process group %d is killed at the deadline", group)
	}
}

// seek returns the commands that the process has started, and has not told of
// yet. There are none unless it is certain which they are.
func (s *served) seek() (found []*command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, since := s.charge.starting()
	if n == 0 || since == 0 || s.foreign {
		return nil
	}
	found = begun(s.peer.pid, since, s.charge.commands)
	if len(found) <= n {
		return found
	}
	for _, run := range found { // some of them are no commands
		_ = syscall.Close(run.pidfd)
	}
	return nil
}

// killPast kills the groups of the commands, if the time is over. That includes
// what a command has left that has ended since the process was stopped: nobody
// has given the lease back, so nothing may go on behind it.
func (s *served) killPast(event int, found []*command) (killed []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := bootTime()
	if isReadable(event) || s.wrong != nil || !s.charge.isPast(now) {
		return nil
	}
	starting, _ := s.charge.starting()
	if starting < len(found) { // it has told of one in between
		found = nil
	}
	s.charge.until = 0
	if starting > len(found) {
		s.charge.until = now + seekPause
	}
	all := slices.Clone(found)
	for _, run := range s.charge.commands {
		if run.group != 0 && !run.killed {
			all = append(all, run)
		}
	}
	for _, run := range all {
		run.kill()
		run.killed = true
		killed = append(killed, run.group)
	}
	return killed
}
