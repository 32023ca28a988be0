package gssapi

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
)

// environment has what the environment names, or else the configuration: the
// credentials cache while it has a ticket that lives, and otherwise the keytab,
// if there is one.
type environment struct{ find func() (named, error) }

type named struct{ cache, keytab source } // keytab may be nil

// newEnvironment reads the configuration when the source is used first.
func newEnvironment(configFiles []string) source {
	return environment{sync.OnceValues(func() (named, error) { return findNamed(configFiles) })}
}

func findNamed(configFiles []string) (n named, err error) {
	cfg, err := readConfig(configFiles)
	if err != nil {
		return n, err
	}
	cache := os.Getenv("KRB5CCNAME")
	if cache == "" {
		if cache, err = expand(cfg.values["default_ccache_name"]); err != nil {
			return n, err
		}
	}
	if cache == "" {
		cache = "/tmp/krb5cc_" + strconv.Itoa(os.Getuid())
	}
	n.cache = newCCache(cache)
	if table := keytabFile(os.Getenv("KRB5_CLIENT_KTNAME")); table != "" {
		n.keytab = newKeytab(table, "")
		return n, nil
	}
	table, err := expand(cfg.values["default_client_keytab_name"])
	if _, missing := os.Stat(keytabFile(table)); err == nil && missing == nil {
		n.keytab = newKeytab(keytabFile(table), "")
	}
	return n, err
}

func keytabFile(name string) string { return strings.TrimPrefix(name, "FILE:") }

var parameter = regexp.MustCompile(`%\{[^}]*\}`)

// expand replaces the parameters in a name of the configuration.
func expand(name string) (string, error) {
	var wrong error
	name = parameter.ReplaceAllStringFunc(name, func(p string) string {
		switch p {
		case "%{uid}":
			return strconv.Itoa(os.Getuid())
		case "%{euid}":
			return strconv.Itoa(os.Geteuid())
		case "%{TEMP}":
			return os.TempDir()
		case "%{null}":
			return ""
		case "%{username}":
			if u, err := user.Current(); err == nil {
				return u.Username
			}
		}
		wrong = fmt.Errorf("configuration of Kerberos: %s: cannot expand %s", name, p)
		return p
	})
	return name, wrong
}

func (e environment) now() (source, error) {
	n, err := e.find()
	if err != nil {
		return nil, err
	}
	if _, err := n.cache.look(); err != nil && !errors.Is(err, errHalfWritten) && n.keytab != nil {
		return n.keytab, nil // perhaps of another principal
	}
	return n.cache, nil
}

func (e environment) check() error {
	s, err := e.now()
	if err != nil {
		return err
	}
	return s.check()
}

func (e environment) look() (principal, error) {
	s, err := e.now()
	if err != nil {
		return principal{}, err
	}
	return s.look()
}

func (e environment) login(cfg *config.Config, kept tgt) (*client.Client, tgt, error) {
	s, err := e.now()
	if err != nil {
		return nil, tgt{}, err
	}
	return s.login(cfg, kept)
}

func (e environment) changed() bool {
	n, err := e.find()
	return err == nil && (n.cache.changed() || n.keytab != nil && n.keytab.changed())
}
