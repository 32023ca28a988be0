package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/closing"
)

// This file runs once a process is dead.

// onDeath ends what the process has left, and closes its sessions.
func (s *served) onDeath(died time.Time, event int) error {
	s.drain()
	if isReadable(event) {
		return nil
	}
	s.mu.Lock()
	c, wrong := s.charge, s.wrong
	c.prune(bootTime())
	s.ended = true // another process may have got the socket
	s.mu.Unlock()
	if wrong != nil {
		return fmt.Errorf("%v is refused: %w", s, wrong)
	}
	if len(c.sessions) == 0 {
		return nil
	}
	ctx, cancel := context.WithDeadline(context.Background(), died.Add(c.longest()))
	defer cancel()
	if err := s.endGroups(ctx, c); err != nil {
		return fmt.Errorf("%v has died, its sessions are left to their timeouts: %w", s, err)
	}
	select {
	case <-time.After(s.g.cfg.After):
	case <-ctx.Done():
	}
	for i := range s.g.closing { // in one order
		for _, room := range []chan struct{}{s.user.closing[i], s.g.closing[i]} {
			if !c.uses(i) {
				continue
			}
			select {
			case room <- struct{}{}:
				defer func() { <-room }()
			case <-ctx.Done():
				return fmt.Errorf("%v has died, its sessions are left to their timeouts: too many have died", s)
			}
		}
	}
	var sessions []closing.Session
	for _, each := range c.sessions {
		dead := closing.Session{DeadSession: each.DeadSession, Ensemble: s.g.cfg.Ensembles[each.ensemble].Closing}
		if each.left != 0 {
			dead.Left = time.Now().Add(each.left - bootTime())
		}
		sessions = append(sessions, dead)
	}
	closed, err := 0, error(nil)
	for _, e := range closing.Close(context.Background(), sessions, died) {
		if e == nil {
			closed++
		} else {
			err = e
		}
	}
	s.g.cfg.Log(fmt.Sprintf("%v has died: %d of %d sessions closed after %v", s, closed, len(sessions), time.Since(died).Round(100*time.Microsecond)))
	return err
}

// endGroups kills the groups of the commands, if that is this guardian's, until
// they are gone.
func (s *served) endGroups(ctx context.Context, c *charge) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		gone, starting := true, false
		for _, run := range c.commands {
			if run.group == 0 {
				starting = true
				continue
			}
			if s.g.kills {
				run.kill()
			}
			gone = run.isGone() && gone
		}
		switch {
		case starting: // nobody knows its group
			return errors.New("it was starting a command")
		case s.foreign && len(c.commands) > 0: // nobody knows when it is gone
			return errors.New("its command may be in another namespace of processes")
		case gone:
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("a command does not end")
		case <-time.After(pause):
		}
	}
}
