package gssapi

import (
	"fmt"
	"os"
	"strings"

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/keytab"
)

// keytabSource is a file with keys. Without a principal it is the first one in
// it.
type keytabSource struct {
	file, principal string
	*version
}

func newKeytab(file, of string) source { return keytabSource{file, of, &version{}} }

func (s keytabSource) load() (*keytab.Keytab, principal, error) {
	s.note(s.file)
	text, err := os.ReadFile(s.file)
	if err != nil {
		return nil, principal{}, fmt.Errorf("keytab: %w", err)
	}
	table := keytab.New()
	if err := parse(func() error { return table.Unmarshal(text) }); err != nil {
		return nil, principal{}, fmt.Errorf("keytab: %s: %w: %w", s.file, errHalfWritten, err)
	}
	if len(table.Entries) == 0 {
		return nil, principal{}, fmt.Errorf("keytab: %s has no keys: %w", s.file, errHalfWritten)
	}
	if s.principal == "" {
		first := table.Entries[0].Principal
		return table, principal{strings.Join(first.Components, "/"), first.Realm}, nil
	}
	of, err := parseClient(s.principal)
	if err != nil {
		return nil, of, err
	}
	for _, entry := range table.Entries {
		if strings.Join(entry.Principal.Components, "/") == of.name && entry.Principal.Realm == of.realm {
			return table, of, nil
		}
	}
	return nil, of, refused("keytab: %s has no key of %s", s.file, of)
}

func (s keytabSource) check() error {
	_, _, err := s.load()
	return err
}

func (s keytabSource) look() (principal, error) {
	if s.principal != "" {
		return parseClient(s.principal)
	}
	_, of, err := s.load()
	return of, err
}

func (s keytabSource) login(cfg *config.Config, kept tgt) (*client.Client, tgt, error) {
	table, of, err := s.load()
	if err != nil {
		return nil, tgt{}, err
	}
	return ask(client.NewWithKeytab(of.name, of.realm, table, cfg), cfg, of, kept)
}

func (s keytabSource) changed() bool { return s.differs(s.file) }
