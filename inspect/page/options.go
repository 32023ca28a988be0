package page

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/headers"
	"github.com/zkrecipes/zkrecipes/internal/look"
)

// Option configures a page: New takes all of them.
type Option func(*settings) error

type settings struct {
	roots   look.Scope
	hosts   headers.Hosts // none: any
	data    bool
	history bool
	client  []framework.Option
	watch   *Watch
	named   []named
}

// WithRoots sets what the page shows: what is at and below these paths, and
// nothing else. The default is /, which is everything below the chroot.
func WithRoots(paths ...string) Option {
	return func(s *settings) error {
		if len(paths) == 0 {
			return errors.New("page: WithRoots: no path")
		}
		for _, path := range paths {
			if err := framework.ValidatePath(path); err != nil {
				return fmt.Errorf("page: WithRoots: %w", err)
			}
		}
		s.roots = look.NewScope(paths...)
		return nil
	}
}

// WithHosts says by which names of its host the page may be asked for: access,
// and the names, are otherwise the service's to check. A page that listens on a
// local address needs this, because any web site can let its own name lead
// there and read what the page answers. Ports do not count. By default every
// name is allowed.
func WithHosts(names ...string) Option {
	return func(s *settings) error {
		if len(names) == 0 {
			return errors.New("page: WithHosts: no name")
		}
		s.hosts = headers.Hosts{}
		for _, name := range names {
			if _, err := netip.ParseAddr(name); err != nil && (name == "" || strings.ContainsAny(name, "/[]:")) {
				return fmt.Errorf("page: WithHosts(%q): want a host without a port", name)
			}
			s.hosts[strings.ToLower(name)] = true
		}
		return nil
	}
}

// WithData shows the data of contenders, up to 1 kB of each. By default only
// what this module writes is shown: a host, a process id and the name of a
// command.
func WithData() Option {
	return func(s *settings) error {
		s.data = true
		return nil
	}
}

// WithHistory looks every 5 seconds although nobody looks at the page, so that
// the timeline of a line has no gaps. It needs Close.
func WithHistory() Option {
	return func(s *settings) error {
		s.history = true
		return nil
	}
}

// WithClient sets options of the page's client, such as framework.WithTLS and
// framework.WithAuth.
func WithClient(opts ...framework.Option) Option {
	return func(s *settings) error {
		s.client = append(s.client, opts...)
		return nil
	}
}

// WithWatch shows what this process does.
func WithWatch(w *Watch) Option {
	return func(s *settings) error {
		if w == nil {
			return errors.New("page: WithWatch: no watch")
		}
		s.watch = w
		return nil
	}
}
