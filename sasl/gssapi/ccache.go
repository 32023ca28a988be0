package gssapi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/credentials"
	"github.com/jcmturner/gokrb5/v8/messages"
)

// ccacheSource is a file with tickets.
type ccacheSource struct {
	file string
	*version
}

func newCCache(file string) source { return ccacheSource{file, &version{}} }

// ccacheFile returns the path in a name of a credentials cache.
func ccacheFile(name string) (string, error) {
	kind, path, ok := strings.Cut(name, ":")
	switch {
	case !ok || strings.ContainsAny(kind, "/.") || len(kind) == 1: // a drive
		return name, nil
	case kind == "FILE":
		return path, nil
	}
	return "", refused("credentials cache %s: of the kinds of caches only FILE can be read: use a keytab, or kinit -c FILE:/path", name)
}

func (s ccacheSource) load() (*credentials.CCache, error) {
	file, err := ccacheFile(s.file)
	if err != nil {
		return nil, err
	}
	s.note(file)
	text, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, refused("credentials cache: %w: run kinit", err)
	case err != nil:
		return nil, fmt.Errorf("credentials cache: %w", err)
	}
	cache := &credentials.CCache{}
	if err := parse(func() error { return cache.Unmarshal(text) }); err != nil {
		return nil, fmt.Errorf("credentials cache: %s: %w: %w", file, errHalfWritten, err)
	}
	return cache, nil
}

func (s ccacheSource) check() error {
	_, err := ccacheFile(s.file)
	return err
}

func (s ccacheSource) look() (principal, error) {
	cache, err := s.load()
	if err != nil {
		return principal{}, err
	}
	_, err = s.find(cache)
	return ownerOf(cache), err
}

func ownerOf(cache *credentials.CCache) principal {
	return principal{cache.DefaultPrincipal.PrincipalName.PrincipalNameString(), cache.DefaultPrincipal.Realm}
}

// find returns the ticket-granting ticket that lives longest.
func (s ccacheSource) find(cache *credentials.CCache) (tgt, error) {
	of := ownerOf(cache)
	best := tgt{of: of}
	for _, c := range cache.GetEntries() {
		if c.Server.PrincipalName.PrincipalNameString() != "krbtgt/"+of.realm || c.Server.Realm != of.realm || !c.EndTime.After(best.ends) {
			continue
		}
		var t messages.Ticket
		if err := t.Unmarshal(c.Ticket); err != nil {
			return tgt{}, fmt.Errorf("credentials cache: %s: %w: %w", s.file, errHalfWritten, err)
		}
		best = tgt{of, t, c.Key, c.AuthTime, c.EndTime}
	}
	switch {
	case best.ends.IsZero(): // the owner is written first, and gokrb5 reads the beginning of a ticket as one of nobody
		return tgt{}, fmt.Errorf("credentials cache: %s has no ticket-granting ticket of %s: %w: run kinit", s.file, of, errHalfWritten)
	case !time.Now().Before(best.ends):
		return tgt{}, refused("credentials cache: the ticket of %s in %s has expired at %s: run kinit", of, s.file, best.ends.Format(time.RFC3339))
	}
	return best, nil
}

func (s ccacheSource) login(cfg *config.Config, _ tgt) (*client.Client, tgt, error) {
	cache, err := s.load()
	if err != nil {
		return nil, tgt{}, err
	}
	found, err := s.find(cache)
	return client.NewWithPassword(found.of.name, found.of.realm, "", cfg), found, err
}

func (s ccacheSource) changed() bool {
	file, err := ccacheFile(s.file)
	return err == nil && s.differs(file)
}
