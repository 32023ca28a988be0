package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// askEnsemble looks here for what was made at each address.
func askEnsemble(ctx context.Context, p *probe) finding {
	c, err := p.open(ctx, p.ensemble.Timeout())
	if err != nil {
		return fails("%v", err)
	}
	defer c.close()
	for _, other := range p.probes {
		if other == p || !other.works {
			continue
		}
		if _, err := c.exists(other.name + "here"); errors.Is(err, wire.NoNode) {
			return fails("what was created at %s is not here, after a sync", other.at.Name)
		} else if err != nil {
			return fails("%v", err)
		}
		p.peers = append(p.peers, other)
	}
	var data wire.DataResponse
	if _, err := c.do(wire.OpGetData, &wire.WatchRequest{Path: "/zookeeper/config"}, &data); err == nil {
		missing, surplus := p.compare(ctx, data.Data)
		switch {
		case len(missing) > 0:
			return noted("/zookeeper/config has members that --servers has not: %s", strings.Join(missing, ", ")).
				or("add them or follow them (--track, framework.WithEnsembleTracking), unless they must not be used or are there by another name")
		case len(surplus) > 0:
			return noted("--servers has what is no member in /zookeeper/config: %s", strings.Join(surplus, ", ")).
				or("remove it if it was replaced: a client that calls it waits for it")
		}
	}
	if len(p.peers) == 0 {
		return good("one address")
	}
	return good("sees what was created at %d other addresses", len(p.peers))
}

// compare returns the members in the ensemble's config that are not among the
// addresses, and those names of addresses that lead to no member. Where none
// leads to one, they stand for something else, such as a load balancer.
func (p *probe) compare(ctx context.Context, config []byte) (missing, surplus []string) {
	members, err := p.ensemble.Members(config)
	if err != nil {
		return nil, nil
	}
	isMember := map[string]bool{}
	for _, member := range members {
		found, _ := p.ensemble.Resolve(ctx, member, p.within(ctx)) // a name that is unknown here is not listed
		found = append(found, member)
		isListed := slices.ContainsFunc(p.probes, func(each *probe) bool {
			return slices.Contains(found, each.at.Name) || slices.Contains(found, each.at.Address)
		})
		if !isListed {
			missing = append(missing, member)
		}
		for _, a := range found {
			isMember[a] = true
		}
	}
	for _, each := range p.probes {
		if !isMember[each.at.Name] && !isMember[each.at.Address] && !slices.Contains(surplus, each.at.Name) {
			surplus = append(surplus, each.at.Name)
		}
	}
	if len(surplus) == len(p.ensemble.Names()) {
		surplus = nil
	}
	return missing, surplus
}

// askContainers creates a container.
func askContainers(ctx context.Context, p *probe) finding {
	c, err := p.open(ctx, p.ensemble.Timeout())
	if err != nil {
		return fails("%v", err)
	}
	defer c.close()
	if _, err := c.do(wire.OpCreateContainer, create(p.name+"container", wire.ModeContainer), nil); err != nil {
		return noted("no container znodes: %v", err)
	}
	return good("containers are created")
}

// askWatches arms a recursive watch, and reads by a request for many reads.
func askWatches(ctx context.Context, p *probe) finding {
	c, err := p.open(ctx, p.ensemble.Timeout())
	if err != nil {
		return fails("%v", err)
	}
	defer c.close()
	read := wire.MultiOp{Op: wire.OpGetData, Request: &wire.WatchRequest{Path: "/zookeeper"}}
	if _, err := c.do(wire.OpMultiRead, &wire.MultiRequest{Ops: []wire.MultiOp{read}}, nil); err != nil {
		return noted("no request for many reads: %v", err)
	}
	if _, err := c.do(wire.OpAddWatch, &wire.AddWatchRequest{Path: "/zookeeper", Mode: wire.WatchPersistentRecursive}, nil); err != nil {
		return noted("no recursive watches: %v", err)
	}
	return good("it has recursive watches, and requests for many reads")
}

// sweepTime is longer than the servers' interval of a minute, twice.
const sweepTime = 130 * time.Second

// askSweep waits until a container vanishes that had a child.
func askSweep(ctx context.Context, p *probe) finding {
	c, err := p.open(ctx, p.ensemble.Timeout())
	if err != nil {
		return fails("%v", err)
	}
	defer c.close()
	dir := p.name + "sweep"
	if _, err := c.do(wire.OpCreateContainer, create(dir, wire.ModeContainer), nil); err != nil {
		return finding{} // another question asks that
	}
	if _, _, err := c.create(dir+"/child", wire.ModePersistent); err != nil {
		return fails("%v", err)
	}
	if err := c.delete(dir + "/child"); err != nil {
		return fails("%v", err)
	}
	began := time.Now()
	for time.Since(began) < sweepTime {
		if !pause(ctx, min(time.Second, c.granted()/3)) {
			return finding{}
		}
		if _, err := c.exists(dir); errors.Is(err, wire.NoNode) {
			return good("an unused container vanished within %v", time.Since(began).Round(time.Second))
		} else if err != nil {
			return fails("%v", err)
		}
	}
	return noted("an unused container still stands after %v", sweepTime)
}

// askEphemerals creates an ephemeral znode on a new session.
func askEphemerals(ctx context.Context, p *probe) finding {
	c, err := p.open(ctx, p.ensemble.Timeout())
	if err != nil {
		return fails("%v", err)
	}
	defer c.close()
	at := p.name + "ephemerals"
	if _, _, err := c.create(at, wire.ModeEphemeral); err != nil {
		return fails("an ephemeral znode on a new session: %v", err)
	}
	stat, err := c.exists(at)
	switch {
	case err != nil:
		return fails("%v", err)
	case stat.EphemeralOwner != c.session.SessionID:
		return fails("an ephemeral znode of session %s belongs to %s", wire.SessionText(c.session.SessionID), wire.SessionText(stat.EphemeralOwner)).or(unfit)
	}
	return good("an ephemeral znode is created on a new session")
}

// askIdentity finds out which SASL the server has, what it requires, and who it
// takes us for.
func askIdentity(ctx context.Context, p *probe) finding {
	seen := []string{p.mechanism(ctx)}
	if c, err := p.connect(ctx, &wire.ConnectRequest{Timeout: milliseconds(p.ensemble.Timeout()), Password: make([]byte, 16)}, false); err == nil {
		_, err := c.do(wire.OpExists, &wire.WatchRequest{Path: "/"}, nil)
		if errors.Is(err, wire.SessionClosedRequire) {
			seen = append(seen, "credentials are required")
		} else {
			seen = append(seen, "none are required")
		}
		_ = c.close()
	}
	c, err := p.open(ctx, p.ensemble.Timeout())
	if err != nil {
		return fails("%v", err)
	}
	defer c.close()
	at := p.name + "identity"
	request := create(at, wire.ModePersistent)
	request.ACL = []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "auth"}}}
	var ids, schemes []string
	_, err = c.do(wire.OpCreate, request, nil)
	if ignore(err, wire.InvalidACL) != nil {
		return fails("a create with the ACL auth: %v", err)
	}
	if err == nil {
		var list wire.ACLResponse
		if _, err := c.do(wire.OpGetACL, &wire.PathRequest{Path: at}, &list); err != nil {
			return fails("getACL: %v", err)
		}
		for _, a := range list.ACL {
			name := a.ID.ID
			if a.Scheme == "digest" {
				name, _, _ = strings.Cut(name, ":") // behind it is the hash of the password
			}
			ids, schemes = append(ids, a.Scheme+":"+name), append(schemes, a.Scheme)
		}
		if err := c.delete(at); err != nil {
			return fails("with the ACL auth: delete: %v", err)
		}
	}
	who := "this client is nobody in particular"
	if len(ids) > 0 {
		who = "this client is " + strings.Join(ids, ", ")
	}
	seen = append(seen, who)
	for _, scheme := range p.ensemble.Credentials() {
		if !slices.Contains(schemes, scheme) && scheme != "ip" {
			return fails("%s, although it gave credentials of the scheme %s", strings.Join(seen, "; "), scheme)
		}
	}
	return good("%s", strings.Join(seen, "; "))
}

// mechanism says what the server answers to an empty token.
func (p *probe) mechanism(ctx context.Context) string {
	c, err := p.connect(ctx, &wire.ConnectRequest{Timeout: milliseconds(p.ensemble.Timeout()), Password: make([]byte, 16)}, false)
	if err != nil {
		return "SASL is not known"
	}
	var answer wire.Token
	_, err = c.do(wire.OpSASL, &wire.Token{Token: []byte{}}, &answer)
	defer c.close()
	switch {
	case err == nil && strings.Contains(string(answer.Token), "md5-sess"):
		return "SASL DIGEST-MD5"
	case err == nil && answer.Token != nil:
		return "SASL of another mechanism"
	case err == nil:
		return "no SASL"
	case errors.Is(err, wire.SessionClosedRequire) || errors.Is(err, wire.AuthFailed):
		return "SASL, not DIGEST-MD5"
	case errors.Is(err, io.EOF):
		return "no SASL (it closes the connection)"
	default:
		return "SASL is not known"
	}
}

// askSize sends a read that is as large as requests may be.
func askSize(ctx context.Context, p *probe) finding {
	taken := func(size int) error {
		c, err := p.open(ctx, p.ensemble.Timeout())
		if err != nil {
			return err
		}
		const around = 4 + 4 + 4 + 1 // number, operation, length, no watch
		_, err = c.do(wire.OpExists, &wire.WatchRequest{Path: "/" + strings.Repeat("x", size-around-1)}, nil)
		if isCode(err) {
			err = nil // it was read
		}
		if err == nil {
			_ = c.close()
		}
		return err
	}
	most := p.ensemble.MaxRequest()
	err := taken(most)
	if err == nil {
		return good("a request of %d bytes is taken", most)
	}
	for size := most / 2; size > 4096; size /= 2 {
		if taken(size) == nil {
			return noted("a request of %d bytes is taken, one of %d is not: %v", size, most, err)
		}
	}
	return fails("a request of %d bytes: %v", most, err)
}

// askQuota looks for limits above the directory.
func askQuota(ctx context.Context, p *probe) finding {
	c, err := p.open(ctx, p.ensemble.Timeout())
	if err != nil {
		return fails("%v", err)
	}
	defer c.close()
	for at := path.Dir(p.dir); ; at = path.Dir(at) {
		var limits wire.DataResponse
		_, err := c.do(wire.OpGetData, &wire.WatchRequest{Path: path.Join("/zookeeper/quota", at, "zookeeper_limits")}, &limits)
		switch {
		case err == nil:
			return noted("at %s: %.100s", at, limits.Data)
		case !isCode(err):
			return fails("%v", err)
		case at == "/":
			return good("none at %s or above", path.Dir(p.dir))
		}
	}
}

// askClock compares the leader's clock with ours.
func askClock(ctx context.Context, p *probe) finding {
	c, err := p.open(ctx, p.ensemble.Timeout())
	if err != nil {
		return fails("%v", err)
	}
	defer c.close()
	at := p.name + "clock"
	before := time.Now()
	if _, _, err := c.create(at, wire.ModePersistent); err != nil {
		return fails("%v", err)
	}
	after := time.Now()
	stat, err := c.exists(at)
	if err != nil {
		return fails("%v", err)
	}
	const much = 2 * time.Second
	theirs := time.UnixMilli(stat.Ctime)
	switch {
	case theirs.Before(before.Add(-much)):
		return noted("the leader's clock is %s behind ours", apart(before, theirs))
	case theirs.After(after.Add(much)):
		return noted("the leader's clock is %s ahead of ours", apart(theirs, after))
	}
	return good("the leader's clock and ours agree within %v", much)
}

// apart returns the difference of two times, which is more than nothing.
func apart(later, earlier time.Time) string {
	const much = 100 * 365 * 24 * time.Hour // zetcd counts in another unit
	if later.Sub(earlier) > much {
		return "more than 100 years"
	}
	return fmt.Sprint(later.Sub(earlier).Round(100 * time.Millisecond))
}

// askCertificate looks for certificates that end soon.
func askCertificate(ctx context.Context, p *probe) finding {
	nc, err := p.ensemble.Dial(ctx, p.at, p.within(ctx))
	if err != nil {
		return fails("%v", err)
	}
	defer nc.Close()
	secured, ok := nc.(interface{ ConnectionState() tls.ConnectionState })
	if !ok {
		return finding{} // without TLS
	}
	ends := map[string]time.Time{}
	if peer := secured.ConnectionState().PeerCertificates; len(peer) > 0 {
		ends["the server's"] = peer[0].NotAfter
	}
	if own := p.ensemble.Certificates(); len(own) > 0 && own[0].Leaf != nil {
		ends["ours"] = own[0].Leaf.NotAfter
	}
	const soon = 14 * 24 * time.Hour
	var seen []string
	verdict := OK
	for _, whose := range slices.Sorted(maps.Keys(ends)) {
		left := time.Until(ends[whose])
		if left < soon {
			verdict = Note
		}
		seen = append(seen, fmt.Sprintf("%s ends in %.0f days", whose, left.Hours()/24))
	}
	return finding{verdict: verdict, seen: strings.Join(seen, ", ")}
}
