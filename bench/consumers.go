package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

// How many consumers the part consumers has, of how many services each, and how
// many services there are. CuratorTrees.java has the last two as well.
const (
	consumersMany   = 200
	servicesOfEach  = 3
	servicesMany    = 1000
	consumersSettle = 5 * time.Second
)

// consumers are those of the part consumers, ours first.
var consumers = []struct {
	name  string
	start func(ctx context.Context, at place) (end func(), err error)
}{
	{"zkrecipes Service", startConsumers()},
	{"zkrecipes Service, WithSharedCache (all were so before)", startConsumers(discovery.WithSharedCache())},
	{"Curator ServiceCache", startCuratorConsumers},
}

func serviceName(i int) string { return fmt.Sprint("service-", i%servicesMany) }

func startConsumers(opts ...presence.Option) func(context.Context, place) (func(), error) {
	return func(ctx context.Context, at place) (func(), error) {
		clients := make([]*framework.Client, consumersMany)
		end := func() {
			_ = atOnce(len(clients), func(i int) error {
				if clients[i] == nil {
					return nil
				}
				return clients[i].Close()
			})
		}
		return end, atOnce(len(clients), func(i int) (err error) {
			if clients[i], err = framework.New(at.address, framework.WithSessionTimeout(session)); err != nil {
				return err
			}
			d, err := discovery.New(clients[i], at.root, discovery.JSON[string](""), opts...)
			if err != nil {
				return err
			}
			for k := range servicesOfEach {
				s, err := d.Service(serviceName(i*servicesOfEach + k))
				if err != nil {
					return err
				}
				if all, err := s.All(ctx); err != nil || len(all) != 1 {
					return errors.Join(err, fmt.Errorf("%d instances", len(all)))
				}
			}
			return nil
		})
	}
}

func startCuratorConsumers(ctx context.Context, at place) (func(), error) {
	p, err := startCuratorTrees(ctx, at)
	if err != nil {
		return nil, err
	}
	_, _, err = p.(*foreign).ask(ctx, longest, fmt.Sprintf("consume %d 0", consumersMany))
	return p.close, err
}

// heard is what a server has done for consumers.
type heard struct{ events, requests, cpu float64 }

func (h heard) less(o heard, times float64) heard {
	return heard{h.events - times*o.events, h.requests - times*o.requests, h.cpu - times*o.cpu}
}

// heardSoFar returns what the server has done. Each request has one answer, so
// what else it has sent are events.
func (s *site) heardSoFar() (heard, error) {
	used, err := s.running["zookeeper"].usage()
	sent, err2 := s.count("zk_packets_sent")
	received, err3 := s.count("zk_packets_received")
	return heard{events: sent - received, requests: received, cpu: used.cpu / 1e6}, errors.Join(err, err2, err3)
}

// consumersPart measures what it costs that each service gets another instance,
// beside consumers of a few services each.
func (o *options) consumersPart(ctx context.Context, out *page) (err error) {
	s, c, end, err := o.openGarden(ctx, 1)
	if err != nil {
		return err
	}
	defer end(&err)
	got := make([][]heard, len(consumers))
	for round := range o.rounds {
		for i, p := range consumers {
			root := fmt.Sprintf("/consumers-%d-%d", round, i)
			if err := deploy(ctx, c, root, -1); err != nil {
				return err
			}
			stop, err := p.start(ctx, place{s.running["zookeeper"].address, root, s.dir})
			if err == nil {
				var h heard
				h, err = s.deployments(ctx, c, root)
				got[i] = append(got[i], h)
				fmt.Fprintf(os.Stderr, "round %d: %s: %+v\n", round, p.name, h)
			}
			if stop != nil {
				stop()
			}
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
	}
	about := fmt.Sprintf("%s; %d rounds; %s; %d consumers of %d of %d services each, while each service gets another instance for its only one. Without what the deployments and idle clients cost. In parentheses: divided by that of `%s`.\n\n",
		machine(), o.rounds, ensembleOf(1, o.sync), consumersMany, servicesOfEach, servicesMany, consumers[0].name)
	var text strings.Builder
	text.WriteString("| | events | requests | server's processor, s |\n|---|---:|---:|---:|\n")
	for i, p := range consumers {
		fmt.Fprintf(&text, "| %s |", p.name)
		for _, of := range []func(heard) float64{
			func(h heard) float64 { return h.events },
			func(h heard) float64 { return h.requests },
			func(h heard) float64 { return h.cpu },
		} {
			fmt.Fprintf(&text, " %s", significant(middle(got[i], of)))
			if i > 0 {
				fmt.Fprintf(&text, " (%s)", significant(middleRatio(got[i], got[0], of)))
			}
			text.WriteString(" |")
		}
		text.WriteString("\n")
	}
	out.tables = append(out.tables, table{name: "consumers", text: about + text.String(), short: text.String()})
	return nil
}

// deployments returns what the consumers cost while all services are deployed:
// each is one transaction of a client that reads nothing. Idle clients are
// measured for as long before.
func (s *site) deployments(ctx context.Context, c *framework.Client, root string) (heard, error) {
	if err := pause(ctx, consumersSettle); err != nil {
		return heard{}, err
	}
	measure := func(do func() error) (heard, float64, error) {
		began := time.Now()
		before, err := s.heardSoFar()
		err = errors.Join(err, do(), pause(ctx, consumersSettle))
		after, err2 := s.heardSoFar()
		return after.less(before, 1), time.Since(began).Seconds(), errors.Join(err, err2)
	}
	idle, long, err := measure(func() error { return nil })
	if err != nil {
		return heard{}, err
	}
	busy, longer, err := measure(func() error { return deploy(ctx, c, root, 0) })
	busy = busy.less(idle, longer/long)
	busy.requests -= servicesMany
	return busy, err
}

// deploy gives each service its next instance, in place of that of a number;
// below 0: of none.
func deploy(ctx context.Context, c *framework.Client, root string, of int) error {
	acl := zk.WorldACL(zk.PermAll)
	if of < 0 {
		if _, err := c.Create(ctx, root, nil, zk.FlagPersistent); err != nil {
			return err
		}
	}
	for i := range servicesMany {
		name := serviceName(i)
		dir := root + "/" + name
		first := any(&zk.CreateRequest{Path: dir, Acl: acl})
		if of >= 0 {
			first = &zk.DeleteRequest{Path: fmt.Sprint(dir, "/", of), Version: -1}
		}
		data := fmt.Appendf(nil, `{"name":%q,"id":"%d","address":"10.0.0.7","port":8080,"sslPort":null,"payload":null,"registrationTimeUTC":1700000000000,"serviceType":"DYNAMIC","uriSpec":null}`, name, of+1)
		if _, err := c.Multi(ctx, first, &zk.CreateRequest{Path: fmt.Sprint(dir, "/", of+1), Data: data, Acl: acl}); err != nil {
			return err
		}
	}
	return nil
}
