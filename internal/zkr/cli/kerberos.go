package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/zkrecipes/zkrecipes/framework"
)

// Kerberos returns the mechanism of --sasl gssapi. It comes from the main of
// zkr that has Kerberos, since this module has not.
type Kerberos func(KerberosCredentials) framework.SASL

// KerberosCredentials are what the flags say. All but one of Password, Keytab
// and CCache are empty; or all, if the environment has the credentials.
type KerberosCredentials struct {
	User            string                 // app@REALM, of Password or Keytab
	Password        func() (string, error) // reads the file again
	Keytab, CCache  string                 // files
	ServerPrincipal string                 // may be empty
}

// errNoKerberos is returned by a zkr without Kerberos.
var errNoKerberos = errors.New("--sasl gssapi: this zkr has no Kerberos: use the one of a release, " +
	"or install github.com/zkrecipes/zkrecipes/sasl/gssapi/cmd/zkr")

func (s *saslFlags) gssapi(kerberos Kerberos) (framework.Option, error) {
	if kerberos == nil {
		return nil, errNoKerberos
	}
	sources := 0
	for _, file := range []string{s.passwordFile, s.keytab, s.ccache} {
		if file != "" {
			sources++
		}
	}
	switch {
	case sources > 1:
		return nil, errors.New("more than one of --sasl-password-file, --sasl-keytab and --sasl-ccache")
	case (s.keytab != "" || s.passwordFile != "") && s.user == "":
		return nil, errors.New("--sasl-keytab and --sasl-password-file need --sasl-user app@REALM")
	case s.keytab == "" && s.passwordFile == "" && s.user != "":
		return nil, errors.New("--sasl-user needs --sasl-keytab or --sasl-password-file")
	}
	c := KerberosCredentials{User: s.user, Keytab: s.keytab, CCache: s.ccache, ServerPrincipal: s.server}
	if s.passwordFile != "" {
		if _, err := s.password(); err != nil {
			return nil, err
		}
		c.Password = s.password
	}
	if err := checkFile("--sasl-keytab", s.keytab); err != nil {
		return nil, err
	}
	// A cache of another kind than FILE is no file. The mechanism refuses it.
	if cache := strings.TrimPrefix(s.ccache, "FILE:"); !strings.Contains(cache, ":") {
		if err := checkFile("--sasl-ccache", cache); err != nil {
			return nil, err
		}
	}
	return framework.WithSASL(kerberos(c)), nil
}

// checkFile returns an error if the file of a flag that was given cannot be
// read, or other users can read it.
func checkFile(flag, name string) error {
	if name == "" {
		return nil
	}
	file, err := os.Open(name)
	if err == nil {
		defer file.Close()
		err = checkPrivate(file)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return nil
}
