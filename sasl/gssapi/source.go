package gssapi

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"
)

// source has the credentials of a client.
type source interface {
	// check returns what is wrong with it before anything is asked.
	check() error
	// look returns whose credentials it has now. It asks no KDC.
	look() (principal, error)
	// login returns a client of KDCs, and a ticket-granting ticket: the one
	// that was kept, or a new one.
	login(cfg *config.Config, kept tgt) (*client.Client, tgt, error)
	// changed reports whether it has other credentials than at the last login.
	changed() bool
}

// tgt is a ticket-granting ticket.
type tgt struct {
	of          principal
	ticket      messages.Ticket
	key         types.EncryptionKey
	began, ends time.Time
}

// fresh reports whether it is of the client and has a fifth of its life left.
func (t tgt) fresh(of principal) bool { return t.of == of && time.Now().Before(due(t.began, t.ends)) }

// due returns when 80 % of a life are over.
func due(began, ends time.Time) time.Time { return began.Add(ends.Sub(began) / 5 * 4) }

// ask logs in, unless the ticket that was kept is fresh.
func ask(cl *client.Client, cfg *config.Config, of principal, kept tgt) (*client.Client, tgt, error) {
	if kept.fresh(of) {
		return cl, kept, nil
	}
	if err := hasKDC(cfg, of.realm); err != nil {
		return nil, tgt{}, err
	}
	now := time.Now()
	request, err := messages.NewASReqForTGT(of.realm, cfg, cl.Credentials.CName())
	if err != nil {
		return nil, tgt{}, err
	}
	answer, err := cl.ASExchange(of.realm, request, 0)
	if err != nil {
		return nil, tgt{}, fmt.Errorf("log in as %s: %w", of, explain(err, cfg))
	}
	return cl, tgt{of, answer.Ticket, answer.DecryptedEncPart.Key, now, answer.DecryptedEncPart.EndTime}, nil
}

// version tells one content of a file from another.
type version struct {
	mu       sync.Mutex // guards what follows
	read     bool
	size     int64
	modified time.Time
}

func (v *version) note(file string) {
	info, err := os.Stat(file)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.read = true; err == nil {
		v.size, v.modified = info.Size(), info.ModTime()
	}
}

func (v *version) differs(file string) bool {
	info, err := os.Stat(file)
	v.mu.Lock()
	defer v.mu.Unlock()
	return err == nil && v.read && (info.Size() != v.size || !info.ModTime().Equal(v.modified))
}

// errHalfWritten is no refusal: another process may be about to write the rest.
var errHalfWritten = errors.New("malformed or half written")

// parse calls a parser of gokrb5, some of which panic where a file is cut off.
func parse(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("malformed: %v", p)
		}
	}()
	return fn()
}
