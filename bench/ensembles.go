package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/tlstest"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// The part ensembles kills holders that have a guardian, at chosen members of
// several ensembles.

// ensembleKills is in each row, in a round. Without a guardian it is one.
const ensembleKills = 4

// A role is a member, by how far it is behind the leader in the list.
type role int

const (
	leading role = iota // also of an only server
	following
	followingToo
)

func (r role) String() string {
	return [...]string{"the leader", "a follower", "the other follower"}[r]
}

// scenery is an ensemble, and what is measured with it.
type scenery struct {
	name    string
	members int
	tls     bool
	rows    []row
}

// row is a way to die.
type row struct {
	name         string // what else there is
	holder, next role
	apart        bool // the guardian cannot reach the holder's member
	unguarded    bool // there is no guardian
	// What happens to the holder's member at the same time, and the contrary;
	// nil: nothing.
	strike, mend func(ens *apache.Ensemble, member int) error
}

var (
	pauses, resumes = (*apache.Ensemble).Pause, (*apache.Ensemble).Resume
	stops, restarts = (*apache.Ensemble).Stop, (*apache.Ensemble).Restart
)

var sceneries = []scenery{
	{name: "one server", members: 1, rows: []row{{}}},
	{name: "one server, TLS", members: 1, tls: true, rows: []row{{}}},
	{name: "three members", members: 3, rows: []row{
		{holder: leading, next: following},
		{holder: following, next: followingToo},
		{holder: following, next: leading},
		{name: "its guardian cannot reach that member", holder: leading, next: following, apart: true},
		{name: "its guardian cannot reach that member", holder: following, next: followingToo, apart: true},
		{name: "that member is stopped", holder: following, next: followingToo, strike: pauses, mend: resumes},
		{name: "that member is killed", holder: following, next: followingToo, strike: stops, mend: restarts},
		{name: "that member is killed", holder: leading, next: following, strike: stops, mend: restarts},
		{name: "that member is killed; no guardian", holder: leading, next: following, strike: stops, mend: restarts, unguarded: true},
	}},
}

// cells returns the cells of a row that say what was measured.
func (s scenery) cells(r row) string {
	if s.members == 1 {
		return s.name + " | | |" + r.name
	}
	return fmt.Sprintf("%s | %v | %v | %s", s.name, r.holder, r.next, r.name)
}

// ensembles measures each ensemble by itself: the others would disturb it.
func (o *options) ensembles(ctx context.Context, out *page) error {
	var text strings.Builder
	text.WriteString("| ensemble | holder at | next one at | | median, ms | most, ms |\n|---|---|---|---|---:|---:|\n")
	for _, s := range sceneries {
		times, err := s.measure(ctx, o)
		if err != nil {
			return err
		}
		for i, all := range times {
			inMilliseconds := func(d time.Duration) float64 { return 1000 * d.Seconds() }
			fmt.Fprintf(&text, "| %s | %s | %s |\n", s.cells(s.rows[i]), significant(middle(all, inMilliseconds)), significant(inMilliseconds(slices.Max(all))))
		}
	}
	about := fmt.Sprintf("%s; kills in each row: %d, and %d without a guardian; %s, and the one server is like them; the session timeout is %v.\n\n",
		machine(), o.rounds*ensembleKills, o.rounds, ensembleOf(3, o.sync), failoverSession)
	out.tables = append(out.tables, table{name: "ensembles", text: about + text.String(), short: text.String()})
	return nil
}

// measure returns the times of each row.
func (s scenery) measure(ctx context.Context, o *options) (times [][]time.Duration, err error) {
	at, err := o.newSite(s.members)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, at.close()) }()
	to := way{}
	if s.tls {
		to.Authority = filepath.Join(at.dir, "ca.pem")
		at.more = certify(at.dir)
	}
	if _, err := at.zookeeper(ctx); err != nil {
		return nil, err
	}
	to.Servers = at.zk.Servers()
	times = make([][]time.Duration, len(s.rows))
	for range o.rounds {
		for i, r := range s.rows {
			kills := ensembleKills
			if r.unguarded {
				kills = 1
			}
			for range kills {
				took, err := r.kill(ctx, at, to)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", s.cells(r), err)
				}
				fmt.Fprintf(os.Stderr, "%s: %v\n", s.cells(r), took)
				times[i] = append(times[i], took)
			}
		}
	}
	return times, nil
}

// certify makes certificates in a directory, and returns the options of servers
// that also take TLS.
func certify(dir string) []apache.Option {
	var t panicking
	authority, own := tlstest.NewAuthority(t), filepath.Join(dir, "own.pem")
	authority.Write(filepath.Join(dir, "ca.pem"))
	tlstest.WritePair(t, authority.Issue(serverName, time.Hour), own, own)
	return []apache.Option{
		apache.WithProperty("zookeeper.serverCnxnFactory", "org.apache.zookeeper.server.NettyServerCnxnFactory"),
		apache.WithProperty("zookeeper.client.portUnification", "true"), // four-letter words are without
		apache.WithProperty("zookeeper.ssl.keyStore.location", own),
		apache.WithProperty("zookeeper.ssl.keyStore.type", "PEM"),
		apache.WithProperty("zookeeper.ssl.clientAuth", "none"),
	}
}

// serverName is in the servers' certificates.
const serverName = "ensemble.example"

// panicking lets a program use what is made for tests.
type panicking struct{ testing.TB }

func (panicking) Helper()          {}
func (panicking) Fatal(all ...any) { panic(fmt.Sprint(all...)) }

// kill starts a holder and the next in line at their members, kills the holder,
// and returns how long it took until the next one had the lock. Then the
// ensemble is as before, except that another member may lead.
func (r row) kill(ctx context.Context, s *site, to way) (took time.Duration, err error) {
	leader := s.zk.Leader()
	if leader < 0 {
		return 0, errors.New("no member leads")
	}
	addresses := strings.Split(to.Servers, ",")
	member := func(r role) int { return (leader + int(r)) % len(addresses) }
	s.paths++
	root := fmt.Sprintf("/bench-%d", s.paths)
	begin := func(name string, at role) (*foreign, error) {
		to := to
		if to.First = addresses[member(at)]; r.apart {
			to.Unguarded = addresses[member(r.holder)]
		}
		p, err := entry{name: name}.startSelf(ctx, place{to.address(), root, s.dir})
		if err != nil {
			return nil, err
		}
		return p.(*foreign), nil
	}
	name := guardedHolder
	if r.unguarded {
		name = plainHolder
	}
	holder, err := begin(name, r.holder)
	if err != nil {
		return 0, err
	}
	defer holder.close()
	if _, err := holder.run(ctx, acquire, 0); err != nil {
		return 0, err
	}
	next, err := begin(plainHolder, r.next)
	if err != nil {
		return 0, err
	}
	defer next.close()
	var at time.Time
	granted := make(chan error, 1)
	go func() { // ends with the process, or before
		_, err := next.run(ctx, acquire, 0)
		at = time.Now()
		granted <- err
	}()
	joining := time.Second
	if r.unguarded {
		joining += rand.N(failoverSession / 3) // how old the holder's last heartbeat is
	}
	if err := pause(ctx, joining); err != nil {
		return 0, err
	}
	began := time.Now()
	err = atOnce(2, func(i int) error {
		switch {
		case i > 0:
			holder.process.kill()
		case r.strike != nil:
			return r.strike(s.zk, member(r.holder))
		}
		return nil
	})
	if err = errors.Join(err, <-granted); err != nil || r.mend == nil {
		return at.Sub(began), err
	}
	took = at.Sub(began)
	return took, errors.Join(r.mend(s.zk, member(r.holder)), s.zk.WaitServing(ctx))
}

// way is how a process and its guardian reach an ensemble.
type way struct {
	Servers   string
	First     string // the server that the process is connected to at first; empty: any
	Unguarded string // the server that the guardian cannot reach; empty: none
	Authority string // a file with that of the servers' certificates; empty: no TLS
}

// address returns the way as the address of a place.
func (w way) address() string {
	text, _ := json.Marshal(w) // strings alone
	return string(text)
}

// wayTo returns the way that an address is, or has as the list of servers.
func wayTo(address string) (w way, err error) {
	if !strings.HasPrefix(address, "{") {
		return way{Servers: address}, nil
	}
	return w, json.Unmarshal([]byte(address), &w)
}

var errNoWay = errors.New("this server is not reached from here")

// options returns how a process connects, or its guardian.
func (w way) options(guardian bool) ([]framework.Option, error) {
	opts := []framework.Option{framework.WithDialer(w.dialer(guardian))}
	if w.Authority == "" {
		return opts, nil
	}
	text, err := os.ReadFile(w.Authority)
	cfg := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: serverName}
	cfg.RootCAs.AppendCertsFromPEM(text)
	return append(opts, framework.WithTLS(cfg)), err
}

func (w way) dialer(guardian bool) framework.Dialer {
	var arrived atomic.Bool
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		if guardian && address == w.Unguarded || !guardian && w.First != "" && address != w.First && !arrived.Load() {
			return nil, errNoWay
		}
		conn, err := net.DialTimeout(network, address, timeout)
		if err == nil {
			arrived.Store(true)
		}
		return conn, err
	}
}
