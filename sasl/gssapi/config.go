package gssapi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/jcmturner/gokrb5/v8/config"
)

func configFromEnvironment() []string {
	if files := filepath.SplitList(os.Getenv("KRB5_CONFIG")); len(files) > 0 {
		return files
	}
	return []string{"/etc/krb5.conf"}
}

// readConfig reads the files, of which some may be missing, and those that they
// include, which gokrb5 cannot.
func readConfig(files []string) (*sections, error) {
	text := &sections{values: map[string]string{}}
	missing := 0
	for _, file := range files {
		err := text.read(file, 0)
		switch {
		case errors.Is(err, fs.ErrNotExist) && missing+1 < len(files):
			missing++
		case err != nil:
			return nil, fmt.Errorf("configuration of Kerberos: %w", err)
		}
	}
	return text, nil
}

func loadConfig(files []string) (*config.Config, error) {
	text, err := readConfig(files)
	if err != nil {
		return nil, err
	}
	var cfg *config.Config
	err = parse(func() (err error) { // it panics where a brace closes nothing
		cfg, err = config.NewFromString(text.String())
		return err
	})
	if err != nil && !errors.As(err, new(config.UnsupportedDirective)) {
		return nil, fmt.Errorf("configuration of Kerberos: %s: %w", strings.Join(files, ", "), err)
	}
	cfg.LibDefaults.UDPPreferenceLimit = 1 // TCP only: over UDP each KDC that is silent would cost 5s more
	return cfg, nil
}

// sections has the lines of all files by section. gokrb5 wants each section
// once, and takes the last of two values where libkrb5 takes the first.
type sections struct {
	defaults, realms, domains []string
	values                    map[string]string // of defaults
	inside                    bool              // of a part of defaults that is for one realm or program
}

func (s *sections) String() string {
	return "[libdefaults]\n" + strings.Join(s.defaults, "\n") +
		"\n[realms]\n" + strings.Join(s.realms, "\n") +
		"\n[domain_realm]\n" + strings.Join(s.domains, "\n") + "\n"
}

// Names of files that an includedir includes, as in libkrb5.
var included = regexp.MustCompile(`^([A-Za-z0-9_-]+|[^.].*\.conf)$`)

const deepest = 10 // a file that includes itself comes to an end

func (s *sections) read(file string, depth int) error {
	if depth > deepest {
		return fmt.Errorf("%s: included %d levels deep", file, depth)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	section := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		directive, name, _ := strings.Cut(line, " ")
		name = strings.TrimSpace(name)
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
		case line[0] == '[':
			section = strings.Trim(line, "[]* \t")
		case directive == "include" && !strings.HasPrefix(name, "="):
			if err := s.read(name, depth+1); err != nil {
				return fmt.Errorf("%s: include: %w", file, err)
			}
		case directive == "includedir" && !strings.HasPrefix(name, "="):
			if err := s.readDir(name, depth+1); err != nil {
				return fmt.Errorf("%s: includedir: %w", file, err)
			}
		default:
			s.add(section, line)
		}
	}
	return nil
}

func (s *sections) readDir(dir string, depth int) error {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !included.MatchString(entry.Name()) || entry.IsDir() {
			continue
		}
		if err := s.read(filepath.Join(dir, entry.Name()), depth); err != nil {
			return err
		}
	}
	return nil
}

func (s *sections) add(section, line string) {
	switch section {
	case "libdefaults":
		key, value, _ := strings.Cut(line, "=")
		key, value = strings.ToLower(strings.TrimSpace(key)), strings.TrimSpace(value)
		if s.inside || value == "{" { // gokrb5 cannot read it
			s.inside = line != "}"
			return
		}
		if _, known := s.values[key]; known {
			return
		}
		s.values[key] = value
		if key == "dns_canonicalize_hostname" && value == "fallback" {
			line = key + " = false" // gokrb5 does not know it: the name as it is comes first
		}
		s.defaults = append(s.defaults, line)
	case "realms":
		s.realms = append(s.realms, line)
	case "domain_realm":
		s.domains = append(s.domains, line)
	}
}
