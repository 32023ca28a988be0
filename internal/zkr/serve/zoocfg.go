package serve

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// readZooCfg reads the settings that the embedded server shares with the real
// one. notes says what was ignored.
func readZooCfg(file string) (settings serverSettings, notes []string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return serverSettings{}, nil, fmt.Errorf("--config: %w", err)
	}
	defer f.Close()
	settings, notes, err = parseZooCfg(f)
	name := filepath.Base(file)
	for i, note := range notes {
		notes[i] = name + ":" + note
	}
	if err != nil {
		err = fmt.Errorf("%s:%w", name, err)
	}
	return settings, notes, err
}

// zooCfg collects the settings of a file.
type zooCfg struct {
	settings serverSettings
	notes    []string
	address  string
	port     int // -1: not set
	servers  int
}

// parseZooCfg parses the real server's format, which is that of Java's property
// files: one setting a line, key and value separated by '=', ':' or blanks,
// comments with '#' or '!'. A later line overrides an earlier one. Errors begin
// with the line number.
func parseZooCfg(r io.Reader) (serverSettings, []string, error) {
	// 3s is the real server's default.
	c := &zooCfg{settings: serverSettings{members: 1, tick: 3 * time.Second}, port: -1}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		if strings.HasSuffix(line, `\`) {
			return serverSettings{}, nil, fmt.Errorf("%d: continued lines (with a backslash) are not supported", n)
		}
		key, value := cutProperty(line)
		note, err := c.set(key, value)
		if err != nil {
			return serverSettings{}, nil, fmt.Errorf("%d: %s: %w", n, key, err)
		}
		if note != "" {
			c.notes = append(c.notes, fmt.Sprintf("%d: %s: %s", n, key, note))
		}
	}
	if err := lines.Err(); err != nil {
		return serverSettings{}, nil, err
	}
	return c.finish()
}

func cutProperty(line string) (key, value string) {
	at := strings.IndexAny(line, "=: \t")
	if at < 0 {
		return line, ""
	}
	key, value = line[:at], strings.TrimLeft(line[at:], " \t")
	if value != "" && (value[0] == '=' || value[0] == ':') {
		value = value[1:]
	}
	return key, strings.TrimSpace(value)
}

func (c *zooCfg) set(key, value string) (note string, err error) {
	s := &c.settings
	switch {
	case key == "clientPort":
		c.port, err = parsePort(value)
	case key == "clientPortAddress":
		c.address = value
	case key == "tickTime":
		s.tick, err = parseMillis(value, 1)
	case key == "minSessionTimeout":
		s.minSession, err = parseMillis(value, -1)
	case key == "maxSessionTimeout":
		s.maxSession, err = parseMillis(value, -1)
	case key == "extendedTypesEnabled":
		s.extended = strings.EqualFold(value, "true") // as Java's Boolean reads it
	case strings.HasPrefix(key, "server."):
		if c.servers++; c.servers > 1 {
			return "", errors.New("several servers: the embedded ensemble has all members in one process; use --members")
		}
		note = "not needed: the ensemble has one member"
	case refused(key):
		err = errors.New("not supported by the embedded server")
	case key == "dataDir", key == "dataLogDir":
		note = "not needed: everything is in memory"
	default:
		note = "ignored: it has no meaning for the embedded server"
	}
	return note, err
}

// refused reports whether clients depend on a setting. Ignoring it would serve
// them something else.
func refused(key string) bool {
	for _, prefix := range []string{"secureClientPort", "ssl", "client.portUnification", "authProvider", "dynamicConfigFile", "peerType", "group.", "weight."} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

func (c *zooCfg) finish() (serverSettings, []string, error) {
	s := &c.settings
	if c.port < 0 {
		return serverSettings{}, nil, errors.New(" clientPort is not set")
	}
	least, most := s.minSession, s.maxSession
	if least <= 0 {
		least = 2 * s.tick
	}
	if most <= 0 {
		most = 20 * s.tick
	}
	if least > most {
		return serverSettings{}, nil, fmt.Errorf(" minSessionTimeout (%v) is more than maxSessionTimeout (%v)", least, most)
	}
	s.minSession, s.maxSession = least, most
	// Without an address it listens on all of the machine's, like the real
	// server.
	s.listen = []string{net.JoinHostPort(c.address, strconv.Itoa(c.port))}
	return *s, c.notes, nil
}

func parsePort(value string) (int, error) {
	port, err := strconv.ParseUint(value, 10, 16)
	if err != nil {
		return -1, fmt.Errorf("%q is not a port", value)
	}
	return int(port), nil
}

// parseMillis parses milliseconds. least may be -1, which means "not set" to
// the real server.
func parseMillis(value string, least int64) (time.Duration, error) {
	n, err := strconv.ParseInt(value, 10, 32)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a number of milliseconds", value)
	case n < least, n == 0:
		return 0, fmt.Errorf("%q: must be at least 1", value)
	case n < 0:
		return 0, nil
	}
	return time.Duration(n) * time.Millisecond, nil
}
