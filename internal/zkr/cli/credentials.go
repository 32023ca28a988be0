package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
)

// credential is one that the client presents on each connection.
type credential struct{ scheme, secret string }

// identity returns the scheme, and of digest the user. What others have may be
// secret as a whole.
func (c credential) identity() string {
	user, _, _ := strings.Cut(c.secret, ":")
	if c.scheme != "digest" {
		user = "..."
	}
	return c.scheme + ":" + user
}

// parseCredential does not say what it refuses: it may be a password.
func parseCredential(text string) (credential, error) {
	scheme, secret, ok := strings.Cut(text, ":")
	if !ok || scheme == "" {
		return credential{}, errors.New("want scheme:credentials")
	}
	return credential{scheme, secret}, nil
}

// credentials returns those of --auth and of --auth-file.
func (e *Ensemble) credentials() ([]credential, error) {
	var all []credential
	for _, text := range e.Auth {
		c, err := parseCredential(text)
		if err != nil {
			return nil, fmt.Errorf("--auth or $%s: %w", VariableOf("auth"), err)
		}
		all = append(all, c)
	}
	if e.AuthFile == "" {
		return all, nil
	}
	fromFile, err := readAuthFile(e.AuthFile)
	if err != nil {
		return nil, fmt.Errorf("--auth-file: %w", err)
	}
	return append(all, fromFile...), nil
}

// longestAuthFile is the size of the largest file of credentials. It stops a
// mistake, such as a device, from filling the memory.
const longestAuthFile = 1 << 20

// readAuthFile reads one credential a line. Empty lines, and lines that begin
// with #, are ignored.
func readAuthFile(name string) ([]credential, error) {
	text, err := ReadPrivate(name)
	if err != nil {
		return nil, err
	}
	var all []credential
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, longestAuthFile+1)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimRight(lines.Text(), "\r")
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		c, err := parseCredential(line)
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", name, n, err)
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no credentials in it", name)
	}
	return all, nil
}

// ReadPrivate reads a file that other users may not read.
func ReadPrivate(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := checkPrivate(file); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, longestAuthFile+1))
	if err == nil && len(text) > longestAuthFile {
		err = fmt.Errorf("%s: longer than %d bytes", name, longestAuthFile)
	}
	return text, err
}

// checkPrivate returns an error if users outside of the file's owner and group
// may read or change it, or the group may change it. A service's secret often
// belongs to root and is readable by the service's group.
func checkPrivate(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode&0o027 != 0 { // Windows has no such bits
		return fmt.Errorf("%s has mode %04o, so other users may read or change it: chmod 600 %[1]s", file.Name(), mode)
	}
	return nil
}
