package gssapi

import (
	"errors"
	"sync/atomic"

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
)

// passwordSource has a password that may change.
type passwordSource struct {
	principal string
	ask       func() (string, error)
	last      *atomic.Pointer[string] // of the latest login
}

func newPassword(of string, ask func() (string, error)) source {
	return passwordSource{of, ask, &atomic.Pointer[string]{}}
}

func (s passwordSource) password() (string, error) {
	if s.ask == nil {
		return "", errors.New("WithPasswordFunc(nil)")
	}
	password, err := s.ask()
	if err == nil && password == "" {
		err = errors.New("no password")
	}
	return password, err
}

func (s passwordSource) check() error {
	if _, err := s.password(); err != nil {
		return err
	}
	_, err := s.look()
	return err
}

func (s passwordSource) look() (principal, error) { return parseClient(s.principal) }

func (s passwordSource) login(cfg *config.Config, kept tgt) (*client.Client, tgt, error) {
	of, err := s.look()
	if err != nil {
		return nil, tgt{}, err
	}
	password, err := s.password()
	if err != nil {
		return nil, tgt{}, err
	}
	s.last.Store(&password)
	return ask(client.NewWithPassword(of.name, of.realm, password, cfg), cfg, of, kept)
}

func (s passwordSource) changed() bool {
	password, err := s.password()
	last := s.last.Load()
	return err == nil && last != nil && *last != password
}
