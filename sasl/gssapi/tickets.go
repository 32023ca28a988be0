package gssapi

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/crypto"
	"github.com/jcmturner/gokrb5/v8/iana/etypeID"
	"github.com/jcmturner/gokrb5/v8/iana/nametype"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// ticket is one for a server. It is kept until it ends.
type ticket struct {
	client      principal
	server      principal
	ticket      messages.Ticket
	key         types.EncryptionKey
	began, ends time.Time
	doubted     atomic.Bool // it was sent, and no proof of the server has come: perhaps the server has another key now
}

// flight is a request to the KDC that is under way.
type flight struct {
	server principal
	done   chan struct{} // closed: it has ended
	ticket *ticket
	err    error
}

// ticketFor returns a ticket for a server. If the one that is kept is near its
// end, or doubted, it asks for another one, and does with the old one if there
// is none in half of the time.
func (m *mechanism) ticketFor(ctx context.Context, server principal) (*ticket, error) {
	of, err := m.sources[0].look()
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.belongTo(of)
	old := m.kept[server]
	m.mu.Unlock()
	now := time.Now()
	if old == nil || !now.Before(old.ends) {
		return m.newTicket(ctx, server)
	}
	if !old.doubted.Load() && now.Before(due(old.began, old.ends)) {
		return old, nil
	}
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-time.Until(deadline)/2))
		defer cancel()
	}
	if t, err := m.newTicket(ctx, server); err == nil {
		return t, nil
	}
	return old, nil
}

// belongTo drops the tickets of another client.
func (m *mechanism) belongTo(client principal) {
	if m.client != client {
		m.client = client
		clear(m.kept)
	}
}

// newTicket asks the KDC for a ticket, or joins who does. What a KDC answers
// after ctx has ended is kept for the next connection.
func (m *mechanism) newTicket(ctx context.Context, server principal) (*ticket, error) {
	for {
		m.mu.Lock()
		f := m.flight
		if f == nil {
			f = &flight{server: server, done: make(chan struct{})}
			m.flight = f
			go m.fly(f)
		}
		m.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("the KDC has not answered in time: %w", ctx.Err())
		}
		if f.server == server {
			return f.ticket, f.err
		}
	}
}

// fly may call a user's function, and ends whatever that does, unless it
// blocks.
func (m *mechanism) fly(f *flight) {
	err := <-supplied.Go(zap.NewNop(), func() (err error) {
		f.ticket, err = m.fetch(f.server)
		return err
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	if f.err = err; err == nil {
		m.belongTo(f.ticket.client)
		m.kept[f.server] = f.ticket
	}
	m.flight = nil
	close(f.done)
}

// Renew implements framework.SASLRenewer: it replaces the tickets of these
// servers that have used up 80 % of their life. One that fails keeps no other
// from it.
func (m *mechanism) Renew(ctx context.Context, servers []framework.SASLServer) (next time.Time, err error) {
	next = time.Now().Add(idle)
	for _, t := range m.tickets(servers) {
		at := due(t.began, t.ends)
		if !time.Now().Before(at) {
			renewed, failed := m.newTicket(ctx, t.server)
			if failed != nil {
				if failed = fmt.Errorf("ticket for %s: %w", t.server, failed); err != nil {
					failed = fmt.Errorf("%w; %w", err, failed)
				}
				err = failed
				continue
			}
			at = due(renewed.began, renewed.ends)
		}
		if at.Before(next) {
			next = at
		}
	}
	return next, err
}

// idle is how often Renew looks for tickets that connections have asked for in
// the meantime.
const idle = 5 * time.Second

// tickets returns those of servers. It forgets those that have ended of others.
func (m *mechanism) tickets(servers []framework.SASLServer) (all []*ticket) {
	m.mu.Lock()
	defer m.mu.Unlock()
	here := make(map[principal]bool)
	for _, s := range servers {
		here[m.asked[s]] = true
	}
	for of, t := range m.kept {
		if here[of] {
			all = append(all, t)
		} else if !time.Now().Before(t.ends) {
			delete(m.kept, of)
		}
	}
	maps.DeleteFunc(m.asked, func(_ framework.SASLServer, of principal) bool { return m.kept[of] == nil })
	return all
}

// askKDC gets a ticket for a server. gokrb5 knows no context: a KDC that is
// silent costs 5s.
func (m *mechanism) askKDC(server principal) (*ticket, error) {
	cfg, err := loadConfig(m.configFiles)
	if err != nil {
		return nil, err
	}
	cl, login, err := m.sources[0].login(cfg, m.login)
	if err != nil {
		m.login = tgt{}
		return nil, err
	}
	defer cl.Destroy() // ends the goroutines that it may have begun for other realms
	m.login = login
	t, err := service(cl, cfg, login, server)
	if err != nil {
		m.login = tgt{} // perhaps it is the one that was refused
	}
	return t, err
}

// service exchanges the ticket-granting ticket for one of a server, which may
// be in another realm.
func service(cl *client.Client, cfg *config.Config, login tgt, server principal) (*ticket, error) {
	realm := login.of.realm
	if server.realm != "" && server.realm != realm {
		if err := hasKDC(cfg, server.realm); err != nil {
			return nil, err
		}
		other := types.PrincipalName{NameType: nametype.KRB_NT_SRV_INST, NameString: []string{"krbtgt", server.realm}}
		_, answer, err := cl.TGSREQGenerateAndExchange(other, realm, login.ticket, login.key, false)
		if err != nil {
			return nil, fmt.Errorf("realm %s: %w", server.realm, explain(err, cfg))
		}
		realm, login.ticket, login.key = server.realm, answer.Ticket, answer.DecryptedEncPart.Key
	}
	if err := hasKDC(cfg, realm); err != nil {
		return nil, err
	}
	began := time.Now()
	_, answer, err := cl.TGSREQGenerateAndExchange(types.NewPrincipalName(nametype.KRB_NT_PRINCIPAL, server.name), realm, login.ticket, login.key, false)
	if err != nil {
		return nil, explain(err, cfg)
	}
	part := answer.DecryptedEncPart
	switch part.Key.KeyType {
	case etypeID.AES128_CTS_HMAC_SHA1_96, etypeID.AES256_CTS_HMAC_SHA1_96, etypeID.AES128_CTS_HMAC_SHA256_128, etypeID.AES256_CTS_HMAC_SHA384_192:
	default:
		return nil, refused("the KDC gives keys of type %d for it, and only AES is supported", part.Key.KeyType)
	}
	if _, err := crypto.GetEtype(part.Key.KeyType); err != nil {
		return nil, refused("%w", err)
	}
	return &ticket{client: login.of, server: server, ticket: answer.Ticket, key: part.Key, began: began, ends: part.EndTime}, nil
}
