package gssapi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/credentials"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"
)

// source has the credentials of a client.
type source interface {
	// check returns what is wrong with it before anything is asked.
	check() error
	// look returns whose credentials it has now. It asks no KDC.
	look() (principal, error)
	// login returns a client of KDCs, and a ticket-granting ticket: the one
	// that was kept, or a new one.
	login(cfg *config.Config, kept tgt) (*client.Client, tgt, error)
	// changed reports whether it has other credentials than at the last login.
	changed() bool
}

// tgt is a ticket-granting ticket.
type tgt struct {
	of          principal
	ticket      messages.Ticket
	key         types.EncryptionKey
	began, ends time.Time
}

// fresh reports whether it is of the client and has a fifth of its life left.
func (t tgt) fresh(of principal) bool { return t.of == of && time.Now().Before(due(t.began, t.ends)) }

// due returns when 80 % of a life are over.
func due(began, ends time.Time) time.Time { return began.Add(ends.Sub(began) / 5 * 4) }

// ask logs in, unless the ticket that was kept is fresh.
func ask(cl *client.Client, cfg *config.Config, of principal, kept tgt) (*client.Client, tgt, error) {
	if kept.fresh(of) {
		return cl, kept, nil
	}
	if err := hasKDC(cfg, of.realm); err != nil {
		return nil, tgt{}, err
	}
	now := time.Now()
	request, err := messages.NewASReqForTGT(of.realm, cfg, cl.Credentials.CName())
	if err != nil {
		return nil, tgt{}, err
	}
	answer, err := cl.ASExchange(of.realm, request, 0)
	if err != nil {
		return nil, tgt{}, fmt.Errorf("log in as %s: %w", of, explain(err, cfg))
	}
	return cl, tgt{of, answer.Ticket, answer.DecryptedEncPart.Key, now, answer.DecryptedEncPart.EndTime}, nil
}

type passwordSource struct{ principal, password string }

func (s passwordSource) check() error {
	if s.password == "" {
		return errors.New("no password")
	}
	_, err := parseClient(s.principal)
	return err
}

func (s passwordSource) look() (principal, error) { return parseClient(s.principal) }

func (s passwordSource) login(cfg *config.Config, kept tgt) (*client.Client, tgt, error) {
	of, err := s.look()
	if err != nil {
		return nil, tgt{}, err
	}
	return ask(client.NewWithPassword(of.name, of.realm, s.password, cfg), cfg, of, kept)
}

func (passwordSource) changed() bool { return false }

// version tells one content of a file from another.
type version struct {
	mu       sync.Mutex // guards what follows
	read     bool
	size     int64
	modified time.Time
}

func (v *version) note(file string) {
	info, err := os.Stat(file)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.read = true; err == nil {
		v.size, v.modified = info.Size(), info.ModTime()
	}
}

func (v *version) differs(file string) bool {
	info, err := os.Stat(file)
	v.mu.Lock()
	defer v.mu.Unlock()
	return err == nil && v.read && (info.Size() != v.size || !info.ModTime().Equal(v.modified))
}

// keytabSource is a file with keys. Without a principal it is the first one in
// it.
type keytabSource struct {
	file, principal string
	*version
}

func (s keytabSource) load() (*keytab.Keytab, principal, error) {
	s.note(s.file)
	text, err := os.ReadFile(s.file)
	if err != nil {
		return nil, principal{}, fmt.Errorf("keytab: %w", err)
	}
	table := keytab.New()
	if err := parse(func() error { return table.Unmarshal(text) }); err != nil {
		return nil, principal{}, refused("keytab: %s: %w", s.file, err)
	}
	if s.principal == "" {
		if len(table.Entries) == 0 {
			return nil, principal{}, refused("keytab: %s has no keys", s.file)
		}
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

// ccacheSource is a file with tickets.
type ccacheSource struct {
	file string
	*version
}

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
		return nil, fmt.Errorf("credentials cache: %s: %w", file, err) // perhaps half written
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
			return tgt{}, refused("credentials cache: %s: %w", s.file, err)
		}
		best = tgt{of, t, c.Key, c.AuthTime, c.EndTime}
	}
	switch {
	case best.ends.IsZero():
		return tgt{}, refused("credentials cache: %s has no ticket-granting ticket of %s: run kinit", s.file, of)
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

// environment returns the credentials that the environment names.
func environment() source {
	cache := os.Getenv("KRB5CCNAME")
	if cache == "" {
		cache = "/tmp/krb5cc_" + strconv.Itoa(os.Getuid())
	}
	first := newCCache(cache)
	if table := strings.TrimPrefix(os.Getenv("KRB5_CLIENT_KTNAME"), "FILE:"); table != "" {
		return either{first, newKeytab(table, "")}
	}
	return first
}

func newCCache(file string) source { return ccacheSource{file, &version{}} }

func newKeytab(file, of string) source { return keytabSource{file, of, &version{}} }

// either is a credentials cache while it has a ticket that lives, and else a
// keytab.
type either struct{ cache, keytab source }

func (e either) now() source {
	if _, err := e.cache.look(); err == nil {
		return e.cache
	}
	return e.keytab
}

func (e either) check() error             { return e.now().check() }
func (e either) look() (principal, error) { return e.now().look() }
func (e either) changed() bool            { return e.cache.changed() || e.keytab.changed() }

func (e either) login(cfg *config.Config, kept tgt) (*client.Client, tgt, error) {
	return e.now().login(cfg, kept)
}

// parse calls a parser of gokrb5, some of which panic where a file is cut off.
func parse(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("malformed: %v", p)
		}
	}()
	return fn()
}
