package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/sasl/digestmd5"
)

// saslFlags say how the client authenticates each connection.
type saslFlags struct{ mechanism, user, passwordFile string }

func (s *saslFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&s.mechanism, "sasl", "", "authenticate by SASL: digest-md5")
	flags.StringVar(&s.user, "sasl-user", "", "user for --sasl")
	flags.StringVar(&s.passwordFile, "sasl-password-file", "", "file with the password for --sasl, one line, that only its owner and group can read")
}

// option returns nil if no flag asks for SASL.
func (s *saslFlags) option() (framework.Option, error) {
	switch {
	case s.mechanism == "" && s.user == "" && s.passwordFile == "":
		return nil, nil
	case s.mechanism == "":
		return nil, errors.New("--sasl-user and --sasl-password-file need --sasl")
	case s.mechanism != "digest-md5":
		return nil, fmt.Errorf("--sasl %s: want digest-md5", s.mechanism)
	case s.user == "" || s.passwordFile == "":
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
	text, err := readPrivate(s.passwordFile)
	if err != nil {
		return "", fmt.Errorf("--sasl-password-file: %w", err)
	}
	line := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if line == "" || strings.ContainsAny(line, "\r\n") {
		return "", fmt.Errorf("--sasl-password-file: %s: want one line", s.passwordFile)
	}
	return line, nil
}
