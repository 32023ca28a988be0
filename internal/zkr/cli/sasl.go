package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/sasl/digestmd5"
)

// saslFlags say how the client authenticates each connection.
type saslFlags struct {
	mechanism, user, passwordFile, keytab, ccache, server string

	piped string // the password, if it came from a pipe, which gives it once
}

func (s *saslFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&s.mechanism, "sasl", "", "authenticate by SASL: digest-md5, or gssapi (Kerberos, by default with KRB5CCNAME or KRB5_CLIENT_KTNAME)")
	flags.StringVar(&s.user, "sasl-user", "", "user for --sasl; with gssapi app@REALM")
	flags.StringVar(&s.passwordFile, "sasl-password-file", "", "file with the password for --sasl, one line, that only its owner and group can read")
	flags.StringVar(&s.keytab, "sasl-keytab", "", "file with the key of --sasl-user for --sasl gssapi, that only its owner and group can read")
	flags.StringVar(&s.ccache, "sasl-ccache", "", "file with tickets for --sasl gssapi, as kinit makes it")
	flags.StringVar(&s.server, "sasl-server-principal", "", "the servers' principal for --sasl gssapi; by default zookeeper/host of each")
}

// option returns nil if no flag asks for SASL. kerberos may be nil.
func (s *saslFlags) option(kerberos Kerberos) (framework.Option, error) {
	switch s.mechanism {
	case "":
		if *s != (saslFlags{}) {
			return nil, errors.New("the other --sasl flags need --sasl")
		}
		return nil, nil
	case "digest-md5":
		return s.digest()
	case "gssapi":
		return s.gssapi(kerberos)
	}
	return nil, fmt.Errorf("--sasl %s: want digest-md5 or gssapi", s.mechanism)
}

func (s *saslFlags) digest() (framework.Option, error) {
	if s.keytab != "" || s.ccache != "" || s.server != "" {
		return nil, errors.New("--sasl-keytab, --sasl-ccache and --sasl-server-principal are for --sasl gssapi")
	}
	if s.user == "" || s.passwordFile == "" {
		return nil, errors.New("--sasl digest-md5 needs --sasl-user and --sasl-password-file")
	}
	if _, err := s.password(); err != nil {
		return nil, err
	}
	return framework.WithSASL(digestmd5.Func(func() (user, password string, err error) {
		password, err = s.password() // at each connection: the file may change
		return s.user, password, err
	})), nil
}

func (s *saslFlags) password() (string, error) {
	if s.piped != "" {
		return s.piped, nil
	}
	text, err := ReadPrivate(s.passwordFile)
	if err != nil {
		return "", fmt.Errorf("--sasl-password-file: %w", err)
	}
	line := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if line == "" || strings.ContainsAny(line, "\x00\r\n") {
		return "", fmt.Errorf("--sasl-password-file: %s: want one line, without zero bytes", s.passwordFile)
	}
	if info, err := os.Stat(s.passwordFile); err == nil && !info.Mode().IsRegular() {
		s.piped = line
	}
	return line, nil
}
