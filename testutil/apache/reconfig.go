package apache

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/oneline"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// SuperUser are the credentials of the super user of an ensemble with
// [WithReconfig], for the scheme digest.
const SuperUser = "super:secret"

// WithReconfig allows reconfigurations: AddMember, RemoveMember, and the
// request reconfig of a client that has added the credentials [SuperUser]. The
// ensemble needs at least two members that vote.
func WithReconfig() Option {
	return func(c *config) {
		c.reconfig = true
		WithSetting("reconfigEnabled=true")(c)
		WithProperty("zookeeper.DigestAuthenticationProvider.superDigest", testutil.Digest(SuperUser))(c)
	}
}

// AddMember starts another member, and returns its index once it serves and
// votes. It needs [WithReconfig]. The configuration has the next version then.
// On an error the member is stopped; if ctx has ended it may be part of the
// configuration.
func (e *Ensemble) AddMember(ctx context.Context) (member int, err error) {
	member = e.Members()
	if !e.cfg.reconfig {
		return -1, errors.New("apache: add a member: needs WithReconfig")
	}
	m, its, ports, err := e.prepare(ctx, member)
	if err == nil {
		err = m.start()
	}
	if err == nil {
		err = oneline.Join(m.waitServing(ctx), ctx.Err())
		if err == nil {
			err = e.reconfigure(ctx, &wire.ReconfigRequest{Joining: []byte(its), Version: -1},
				func(config string) bool { return strings.Contains(config, its) })
		}
		if err != nil {
			_ = m.stop() // it may have ended by itself
		}
	}
	if err != nil {
		return -1, fmt.Errorf("apache: add member %d: %w", member, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.members, e.ports = append(e.members, m), append(e.ports, ports...)
	for _, n := range e.clients {
		n.AddServer(m.address)
	}
	return member, nil
}

// prepare makes the process of another member, which knows of the present ones,
// and the line of the configuration that stands for it.
func (e *Ensemble) prepare(ctx context.Context, member int) (m *process, its string, ports []int, err error) {
	if ports, err = choosePorts(3, e.ports); err != nil {
		return nil, "", nil, err
	}
	config := ""
	if err := e.administer(ctx, func(a *admin) (err error) {
		config, err = a.config()
		return err
	}); err != nil {
		return nil, "", nil, err
	}
	its = fmt.Sprintf("server.%d=127.0.0.1:%d:%d:participant;127.0.0.1:%d", member+1, ports[1], ports[2], ports[0])
	settings := []string{its}
	for line := range strings.Lines(config) {
		if strings.HasPrefix(line, "server.") {
			settings = append(settings, strings.TrimSpace(line))
		}
	}
	m, err = newProcess(e.cfg, e.dirOf(member), member, ports[0], append(settings, e.cfg.settings...))
	return m, its, ports, err
}

// RemoveMember removes a member from the configuration, and returns once the
// configuration has its next version. The member goes on as a follower that
// does not vote: Stop ends it. If it was the leader, the others elect one. It
// needs [WithReconfig].
func (e *Ensemble) RemoveMember(ctx context.Context, member int) error {
	fail := func(err error) error { return fmt.Errorf("apache: remove member %d: %w", member, err) }
	if !e.cfg.reconfig {
		return fail(errors.New("needs WithReconfig"))
	}
	if n := e.Members(); member < 0 || member >= n {
		return fail(fmt.Errorf("no such member in an ensemble of %d", n))
	}
	id := fmt.Sprint(member + 1)
	if err := e.reconfigure(ctx, &wire.ReconfigRequest{Leaving: []byte(id), Version: -1},
		func(config string) bool { return !strings.Contains(config, "server."+id+"=") }); err != nil {
		return fail(err)
	}
	return nil
}

// reconfigure repeats a request until the configuration is as it is to be: the
// answer may be lost with the leader, and a new member may not be in step yet.
func (e *Ensemble) reconfigure(ctx context.Context, ask *wire.ReconfigRequest, done func(config string) bool) error {
	return e.administer(ctx, func(a *admin) error {
		config, err := a.config()
		if err != nil || done(config) {
			return err
		}
		if _, err := a.do(wire.OpReconfig, ask); err != nil {
			return err
		}
		config, err = a.config()
		if err == nil && !done(config) {
			err = fmt.Errorf("the configuration is now %q", config)
		}
		return err
	})
}

// administer gives f a session of the super user, until f succeeds or is
// refused for good.
func (e *Ensemble) administer(ctx context.Context, f func(*admin) error) error {
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	err := errors.New("no member serves")
	for {
		for _, m := range e.all() {
			if !m.serves() {
				continue
			}
			err = asAdmin(m.address, f)
			var code wire.Code
			if err == nil || errors.As(err, &code) && code != wire.NewConfigNoQuorum && code != wire.ReconfigInProgress {
				return err
			}
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return oneline.Join(context.Cause(ctx), err)
		}
	}
}

// admin is a session of the super user.
type admin struct {
	conn net.Conn
	xid  int32
}

func asAdmin(address string, f func(*admin) error) error {
	const patience = 10 * time.Second
	conn, err := talkTo(address, patience)
	if err != nil {
		return err
	}
	defer conn.Close()
	a := &admin{conn: conn}
	connect := &wire.ConnectRequest{Timeout: int32(patience.Milliseconds()), Password: make([]byte, 16)}
	if _, err := conn.Write(wire.AppendFrame(nil, connect)); err != nil {
		return err
	}
	if _, err := readFrame(conn); err != nil {
		return err
	}
	if _, err := a.do(wire.OpAuth, &wire.AuthRequest{Scheme: "digest", Auth: []byte(SuperUser)}); err != nil {
		return err
	}
	if err := f(a); err != nil {
		return err
	}
	_, _ = a.do(wire.OpCloseSession, nil) // it also ends by its timeout
	return nil
}

// do sends a request and returns the body of the answer.
func (a *admin) do(op wire.Op, body wire.Appender) ([]byte, error) {
	a.xid++
	if _, err := a.conn.Write(wire.AppendFrame(nil, &wire.RequestHeader{Xid: a.xid, Op: op}, body)); err != nil {
		return nil, err
	}
	frame, err := readFrame(a.conn)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", op, err)
	}
	var head wire.ReplyHeader
	d := wire.NewDecoder(frame)
	if head.Decode(d); d.Err() != nil {
		return nil, d.Err()
	}
	if head.Err != wire.OK {
		return nil, fmt.Errorf("%v: %w", op, head.Err)
	}
	return frame[len(frame)-d.Len():], nil
}

// config returns the configuration after everything that was committed.
func (a *admin) config() (string, error) {
	if _, err := a.do(wire.OpSync, &wire.PathRequest{Path: "/"}); err != nil {
		return "", err
	}
	body, err := a.do(wire.OpGetData, &wire.WatchRequest{Path: "/zookeeper/config"})
	if err != nil {
		return "", err
	}
	var data wire.DataResponse
	err = wire.Unmarshal(body, &data)
	return string(data.Data), err
}
