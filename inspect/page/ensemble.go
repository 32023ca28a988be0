package page

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/escape"
)

// ensemble is what the servers have told of themselves.
type ensemble struct {
	members []member
	at      time.Time
}

// member is one of the servers, and its answer to the word srvr. Fields that it
// did not tell are "not told".
type member struct {
	Address, Release, Role, Latency, Connections string
	Here                                         bool // the page's client is connected to it
}

const (
	askEvery  = 10 * time.Second
	askWithin = 2 * time.Second
	notTold   = "not told"
)

// askEnsemble asks each server once. It makes no session.
func (p *Page) askEnsemble(ctx context.Context, _ *framework.Client) (pause time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	addresses := addressesOf(p.servers)
	members := make([]member, len(addresses))
	var asking sync.WaitGroup
	for i, address := range addresses {
		asking.Go(func() { members[i] = ask(ctx, address) })
	}
	asking.Wait()
	p.publish(func(*state) { p.ensemble = ensemble{members, time.Now()} })
	return askEvery
}

// addressesOf returns the addresses of a list of servers, without the chroot.
func addressesOf(servers string) []string {
	list, _, _ := strings.Cut(servers, "/")
	var all []string
	for _, address := range strings.Split(list, ",") {
		address = strings.TrimSpace(address)
		if _, _, err := net.SplitHostPort(address); err != nil {
			address = net.JoinHostPort(strings.Trim(address, "[]"), "2181")
		}
		all = append(all, address)
	}
	return all
}

func ask(ctx context.Context, address string) member {
	m := member{Address: address, Release: notTold, Role: notTold, Latency: notTold, Connections: notTold}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		m.Role = "not reached"
		return m
	}
	defer conn.Close()
	if end, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(end) // a connection that has failed says so below
	}
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return m
	}
	for scan := bufio.NewScanner(io.LimitReader(conn, 4096)); scan.Scan(); {
		name, value, _ := strings.Cut(scan.Text(), ": ")
		value = strings.TrimSpace(value)
		if value == "" {
			continue
		}
		release, _, _ := strings.Cut(value, "-")
		value = escape.Data(value)
		switch {
		case strings.EqualFold(name, "Zookeeper version"):
			m.Release = escape.Data(release)
		case name == "Mode":
			m.Role = value
		case strings.HasPrefix(name, "Latency"):
			m.Latency = value + " ms"
		case name == "Connections":
			m.Connections = value
		}
	}
	return m
}

// ensembleBody is what the page Ensemble shows.
type ensembleBody struct {
	At      time.Time
	Members []member
	Server  string // that the client is connected to
	Doctor  string // a command
}

func (p *Page) ensembleLocked(view, time.Time) any {
	server, _, _ := strings.Cut(p.shown.server, " at ")
	b := ensembleBody{At: p.ensemble.at, Server: escape.Text(p.shown.server), Doctor: p.command("doctor")}
	for _, m := range p.ensemble.members {
		m.Here = p.shown.connected && m.Address == server
		m.Address = escape.Text(m.Address)
		b.Members = append(b.Members, m)
	}
	return b
}
