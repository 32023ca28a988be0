package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// askSession opens a session and makes the directory.
func askSession(ctx context.Context, p *probe) finding {
	if p.wrong != nil {
		return fails("%v", p.wrong).or("correct the name in --servers")
	}
	wanted := p.ensemble.Timeout()
	c, err := p.open(ctx, wanted)
	refused := errors.Is(err, zk.ErrAuthFailed) || isCode(err)
	p.reached = err == nil || refused
	switch {
	case refused:
		return fails("%v", err).or("check --auth-file, the --sasl flags and the client's certificate")
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fails("%v without a word", err).
			or("it has no quorum, is full (maxClientCnxns), or expects TLS or another certificate: see its log")
	case err != nil:
		return fails("%v", err)
	}
	defer c.close()
	p.serves = true
	s := p.server(ctx)
	seen := fmt.Sprintf("%v granted of %v; %s", c.granted(), wanted, s)
	for _, path := range []string{p.dir, p.name + "here"} {
		if _, _, err := c.create(path, wire.ModePersistent); ignore(err, wire.NodeExists) != nil {
			f := fails("%s; cannot create %s: %v", seen, path, err)
			switch p.serves = !errors.Is(err, wire.SessionClosedRequire); {
			case errors.Is(err, wire.NoNode):
				return f.or("check the path in --servers, or create it with zkr create --parents")
			case !p.serves:
				return f.or("the servers require credentials: give them by --auth-file or the --sasl flags")
			}
			return f.or("give credentials, or in --servers a path below which they may create")
		}
	}
	p.works = true
	tick, least := s.tick, s.least
	switch {
	case tick > 0 && c.granted() < 2*tick:
		return fails("%s", seen).or("ask for --session-timeout " + (2 * tick).String() + " or more, or set framework.WithServerTick")
	case s.mode == "read-only":
		return fails("%s", seen).or("it has no quorum: see its log")
	case c.granted() != wanted.Truncate(time.Millisecond):
		return finding{Note, seen, "ask for what is granted, by --session-timeout, or change minSessionTimeout or maxSessionTimeout at the servers"}
	case tick > 0 && least > 0 && least < 2*tick:
		return finding{Note, seen + ", less than two ticks", "give clients with so short a timeout framework.WithServerTick"}
	case s.mode == "observer":
		return finding{Note, seen, "if it follows an observer master, set framework.WithServerTick"}
	}
	return good("%s", seen)
}

func isCode(err error) bool {
	var code wire.Code
	return errors.As(err, &code)
}

// server is what a server says of itself, as far as it does.
type server struct {
	release, mode string
	tick, least   time.Duration // 0: not known
}

func (s server) String() string {
	if s.release == "" {
		return "it does not say its release (srvr)"
	}
	text := s.release + ", " + s.mode
	if s.tick == 0 {
		return text + ", and does not say its tick (conf)"
	}
	return text + fmt.Sprintf(", tick %v, minSessionTimeout %v", s.tick, s.least)
}

var (
	releaseLine = regexp.MustCompile(`(?m)^Zookeeper version: ([0-9A-Za-z.-]{1,40})`)
	modeLine    = regexp.MustCompile(`(?m)^Mode: ([a-z-]{1,20})$`)
	tickLine    = regexp.MustCompile(`(?m)^tickTime=([0-9]{1,9})$`)
	zxidLine    = regexp.MustCompile(`(?m)^Zxid: (0x[0-9a-f]{1,16})$`)
	leastLine   = regexp.MustCompile(`(?m)^minSessionTimeout=([0-9]{1,9})$`)
)

// server asks by the words that a server answers without a session, if it does.
func (p *probe) server(ctx context.Context) server {
	first := func(line *regexp.Regexp, text string) string {
		if found := line.FindStringSubmatch(text); found != nil {
			return found[1]
		}
		return ""
	}
	milliseconds := func(line *regexp.Regexp, text string) time.Duration {
		n, _ := strconv.Atoi(first(line, text)) // 0 without such a line
		return time.Duration(n) * time.Millisecond
	}
	srvr, conf := p.word(ctx, "srvr"), p.word(ctx, "conf")
	release, _, _ := strings.Cut(first(releaseLine, srvr), "-")
	return server{release, first(modeLine, srvr), milliseconds(tickLine, conf), milliseconds(leastLine, conf)}
}

// askMoves asks by the word that a client says before it moves to a server: see
// framework.Client.SetServers.
func askMoves(ctx context.Context, p *probe) finding {
	text := p.word(ctx, "srvr")
	mode, zxid := modeLine.FindStringSubmatch(text), zxidLine.FindStringSubmatch(text)
	if mode == nil || zxid == nil {
		return noted("it does not answer srvr, or not in time")
	}
	return good("%s, latest transaction %s", mode[1], zxid[1])
}

// word returns the answer to a four-letter word, or an empty text.
func (p *probe) word(ctx context.Context, word string) string {
	nc, err := p.say(ctx, word, min(p.within(ctx), time.Second))
	if err != nil {
		return ""
	}
	defer nc.Close()
	text, _ := io.ReadAll(io.LimitReader(nc, 4096)) // what came before an error may do
	return string(text)
}

// say sends a four-letter word, and returns the connection on which the answer
// comes. Reads fail after limit, or when ctx ends.
func (p *probe) say(ctx context.Context, word string, limit time.Duration) (net.Conn, error) {
	nc, err := p.ensemble.Dial(ctx, p.at, limit)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { nc.Close() }) // ctx is that of one question
	err = nc.SetDeadline(time.Now().Add(limit))
	if err == nil {
		_, err = io.WriteString(nc, word)
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return nc, nil
}

// askResume breaks connections and connects again, here and at a peer.
func askResume(ctx context.Context, p *probe) finding {
	c, err := p.open(ctx, p.ensemble.Timeout())
	if err != nil {
		return fails("%v", err)
	}
	c.Conn.Close()
	wrong := make([]byte, len(c.session.Password))
	for i, b := range c.session.Password {
		wrong[i] = ^b
	}
	for _, at := range append([]*probe{p}, p.peers...) {
		where := ""
		if at != p {
			where = " at " + at.at.Name
		}
		other, err := at.resume(ctx, c.session, wrong)
		switch {
		case errors.Is(err, errGone):
		case err != nil:
			return fails("with a wrong password%s: %v", where, err)
		case other.session.SessionID != c.session.SessionID:
			_ = other.close()
			return fails("it gives another session%s: no session is ever resumed", where)
		default:
			_ = other.close()
			return fails("the session resumes with a wrong password%s: anybody can take it over", where).or(unfit)
		}
		again, err := at.resume(ctx, c.session, c.session.Password)
		switch {
		case errors.Is(err, errGone):
			return fails("a session whose connection broke has ended%s", where)
		case err != nil:
			return fails("a session whose connection broke does not resume%s: %v", where, err)
		case again.session.SessionID != c.session.SessionID:
			_ = again.close()
			return fails("it gives another session%s: no session is ever resumed", where)
		}
		again.Conn.Close()
	}
	_ = p.ensemble.Close(ctx, p.at, p.within(ctx), c.session.SessionID, c.session.Password, true)
	if len(p.peers) > 0 {
		return good("a session resumes here and at %d other addresses, and not with a wrong password", len(p.peers))
	}
	return good("a session resumes, and not with a wrong password")
}

// askClose closes a session on its connection, and another one behind a broken
// connection.
func askClose(ctx context.Context, p *probe) finding {
	seer, err := p.open(ctx, p.ensemble.Timeout())
	if err != nil {
		return fails("%v", err)
	}
	defer seer.close()
	gone := func(path string) bool {
		_, err := seer.exists(path)
		return errors.Is(err, wire.NoNode)
	}
	for i, remotely := range []bool{false, true} {
		c, err := p.open(ctx, p.ensemble.Timeout())
		if err != nil {
			return fails("%v", err)
		}
		path := p.name + "close" + strconv.Itoa(i)
		_, _, refused := c.create(path, wire.ModeEphemeral) // another question asks that
		switch {
		case !remotely:
			if err := c.close(); err != nil {
				return fails("a close is not answered: %v", err)
			}
			if refused == nil && !gone(path) {
				return fails("a close is answered, and its ephemeral znode stays")
			}
		default:
			c.Conn.Close()
			if err := p.ensemble.Close(ctx, p.at, p.within(ctx), c.session.SessionID, c.session.Password, true); err != nil {
				return fails("a close over another connection: %v", err)
			}
			p.closed(c.session.SessionID)
			if refused == nil && !gone(path) {
				return fails("a close over another connection is answered, and its ephemeral znode stays")
			}
		}
	}
	return good("its ephemeral znodes go with the answer, also after a disconnect")
}

// askIdle keeps a connection with nothing but pings.
func askIdle(ctx context.Context, p *probe) finding {
	c, err := p.open(ctx, p.ensemble.Timeout())
	if err != nil {
		return fails("%v", err)
	}
	defer c.close()
	began, every := time.Now(), (c.granted() / 3).Truncate(time.Millisecond)
	for time.Since(began) < c.granted() {
		if !pause(ctx, every) {
			return finding{}
		}
		if err := c.ping(); err != nil {
			return noted("a connection with a ping every %v ended after %v: %v", every, time.Since(began).Round(time.Second), err)
		}
	}
	return good("a connection with a ping every %v stays for %v", every, c.granted())
}

// pause reports whether ctx has lasted so long.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// askExpiry lets a session be silent on its open connection.
func askExpiry(ctx context.Context, p *probe) finding {
	seer, err := p.open(ctx, p.ensemble.Timeout())
	if err != nil {
		return fails("%v", err)
	}
	defer seer.close()
	c, err := p.open(ctx, p.ensemble.Timeout())
	if err != nil {
		return fails("%v", err)
	}
	path, timeout := p.name+"expiry", c.granted()
	sent := time.Now()
	if _, _, err := c.create(path, wire.ModeEphemeral); err != nil {
		return finding{} // another question asks that
	}
	answered := time.Now()
	for {
		if !pause(ctx, timeout/40) {
			return fails("a silent session still stood after %v", time.Since(sent).Round(time.Second))
		}
		asked := time.Now()
		_, err := seer.exists(path)
		switch now := time.Now(); {
		case errors.Is(err, wire.NoNode) && now.Before(sent.Add(timeout)):
			return fails("a silent session of %v has ended after %v", timeout, now.Sub(sent).Round(time.Millisecond))
		case errors.Is(err, wire.NoNode):
			p.closed(c.session.SessionID)
			return good("a silent session of %v has ended within %v", timeout, now.Sub(sent).Round(100*time.Millisecond))
		case err != nil:
			return fails("%v", err)
		case asked.After(answered.Add(2 * timeout)):
			return fails("a silent session of %v still stands after %v", timeout, asked.Sub(answered).Round(time.Second))
		}
	}
}
