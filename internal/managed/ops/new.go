package ops

import (
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/managed/directories"
	"github.com/zkrecipes/zkrecipes/internal/managed/ephemerals"
	"github.com/zkrecipes/zkrecipes/internal/managed/offers"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	life "github.com/zkrecipes/zkrecipes/internal/managed/session"
)

// This file makes a client and a session of their parts.

// New returns a client of operations. It calls nobody before Start. What it
// runs ends by itself, or once closing is closed.
func New(cfg Config, s *servers.Servers, above Above, o Observer, closing <-chan struct{}, tasks *sync.WaitGroup) *Client {
	c := &Client{
		Config: cfg, Known: offers.New(s, cfg.SessionTimeout, cfg.NoContainers, cfg.Log, closing, tasks), above: above, observer: o, Closing: closing, tasks: tasks,
		Directories: directories.New(cfg.ACL, string(cfg.Chroot), cfg.Sweep > 0),
	}
	c.Ephemerals = ephemerals.New(ephemerals.Config{Client: cfg.Client, MaxRequest: cfg.MaxRequest, Max: cfg.MaxEphemerals, SessionTimeout: cfg.SessionTimeout}, told{c})
	return c
}

// Start begins what runs by itself.
func (c *Client) Start() {
	if c.Config.Sweep > 0 {
		c.tasks.Go(c.sweep)
	}
}

// NewSession returns a session of a client. listed is called for each list of a
// directory that is read in it, and must not block.
func NewSession(c *Client, s *life.Session, listed func(dir string, names []string)) *Session {
	return &Session{Session: s, Said: offers.NewSaid(c.Known, s), Client: c, onList: listed}
}
