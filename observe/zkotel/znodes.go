package zkotel

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

// presenceChanged also makes a span of the time in which a znode did not stand,
// when it stands.
func (o *observer) presenceChanged(c presence.StateChange) {
	ctx, label := context.Background(), presenceKey.String(o.znodes.presenceValues.fit(valid(c.Label)))
	o.znodes.changePresence(o.with(label), c)
	if c.From != "" {
		o.presenceTransitions.Add(ctx, 1, o.set(label, stateKey.String(c.To)))
	}
	if c.To != standing || c.From == "suspended" {
		return
	}
	_, span := o.tracer.Start(ctx, "announce presence", trace.WithTimestamp(c.Away), trace.WithAttributes(append([]attribute.KeyValue{
		pathKey.String(c.Path), labelKey.String(valid(c.Label)), sessionKey.String(sessionText(c.Session)),
	}, o.attributes...)...))
	span.End(trace.WithTimestamp(c.At))
}

func (o *observer) cacheChanged(c cache.StateChange) {
	label := cacheKey.String(o.znodes.cacheValues.fit(valid(c.Cache.Label)))
	o.znodes.changeCache(o.with(label), c)
	if c.From == "" { // at 0, so that a backend sees the first change
		o.countChanges(label, cache.Read{})
	}
}

// cacheRead also makes a span, if the whole tree was read.
func (o *observer) cacheRead(r cache.Read) {
	ctx, label := context.Background(), cacheKey.String(o.znodes.cacheValues.fit(valid(r.Cache.Label)))
	if r.Err == nil && o.znodes.read(o.with(label), r) {
		o.countChanges(label, r)
		if r.Reason.Walk() {
			o.walkDuration.Record(ctx, r.Took.Seconds(), o.set(reasonKey.String(string(r.Reason))))
		}
	}
	if !r.Reason.Walk() {
		return
	}
	_, span := o.tracer.Start(ctx, "walk cache", trace.WithTimestamp(r.Began), trace.WithAttributes(append([]attribute.KeyValue{
		pathKey.String(r.Cache.Path), labelKey.String(valid(r.Cache.Label)), reasonKey.String(string(r.Reason)),
		znodesKey.Int(r.Znodes), bytesKey.Int64(r.Bytes), zxidKey.String(fmt.Sprintf("0x%x", r.Zxid)),
	}, o.attributes...)...))
	if r.Err != nil {
		failure := valid(r.Err.Error())
		span.SetAttributes(failureKey.String(failure), semconv.ErrorTypeOther)
		span.SetStatus(codes.Error, failure)
	}
	span.End(trace.WithTimestamp(r.Began.Add(r.Took)))
}

func (o *observer) ephemeralsChanged(c framework.EphemeralsChange) {
	o.znodes.changeEphemerals(o.with(), c)
}

func (o *observer) countChanges(label attribute.KeyValue, r cache.Read) {
	for kind, n := range map[string]int{"added": r.Added, "changed": r.Changed, "removed": r.Removed} {
		o.cacheChanges.Add(context.Background(), int64(n), o.set(label, kindKey.String(kind)))
	}
}

// The states that say that all is well, and the one that ends a presence or a
// cache.
const (
	standing = "standing"
	synced   = "synced"
	closed   = "closed"
)

var (
	presenceStates = []string{"pending", standing, "suspended", "taken", "removed"}
	cacheStates    = []string{"syncing", synced, "stale", "failed"}
)

// znodes knows all presences and caches that are not closed, and how many
// ephemeral znodes clients have. The observers of
// one meter provider share it, as they share ages.
type znodes struct {
	register                                                     sync.Once // the gauges
	presences, missing, caches, stale, shown, bytes, zxids, full metric.Float64ObservableGauge

	presenceValues, cacheValues, counterValues, barrierValues labelSet

	mu             sync.Mutex // guards what follows
	nodes          map[znodeID]presenceNode
	mirrors        map[znodeID]mirror
	presenceLabels map[attribute.Distinct]attribute.Set // all that there ever were
	cacheLabels    map[attribute.Distinct]attribute.Set
	used           map[znodeID]int // by client: percent of the limit of ephemeral paths, unless it is 0
	clientLabels   map[attribute.Distinct]attribute.Set
}

// znodeID is a presence, a cache or a client. Clients with other attributes are
// counted by themselves.
type znodeID struct {
	attributes attribute.Distinct
	id         uint64
}

type presenceNode struct {
	state   string
	away    time.Time     // since when it has not been standing
	timeout time.Duration // of its session
}

type mirror struct {
	state    string
	unsynced time.Time // since when it has not been synced
	last     cache.Read
}

// znodesOf are the znodes of each meter provider, as agesOf.
var znodesOf = struct {
	mu   sync.Mutex
	each map[metric.MeterProvider]*znodes
}{each: make(map[metric.MeterProvider]*znodes)}

// sharedZnodes returns the znodes of a provider. They are measured by its
// meter.
func sharedZnodes(provider metric.MeterProvider, meter metric.Meter) *znodes {
	z := znodesFor(provider)
	z.register.Do(func() {
		m := maker{meter}
		z.presences = m.gauge("zkrecipes.presences", "{presence}", "Presences that are not closed, by their state.")
		z.missing = m.gauge("zkrecipes.presence.missing_timeouts", "{timeout}",
			"For how many session timeouts the longest of the presences that should stand has not stood; 0 if all stand.")
		z.caches = m.gauge("zkrecipes.caches", "{cache}", "Caches that are not closed, by their state.")
		z.stale = m.gauge("zkrecipes.cache.stale", "s", "For how long the longest of the caches has not been synced; 0 if all are.")
		z.shown = m.gauge("zkrecipes.cache.znodes", "{znode}", "Znodes that caches show.")
		z.bytes = m.gauge("zkrecipes.cache.memory", "By", "Memory of the znodes that caches show.")
		z.zxids = m.gauge("zkrecipes.cache.zxid", "{transaction}", "The transaction up to which each of the caches shows every change; 0 before the first view.")
		z.full = m.gauge("zkrecipes.ephemeral_paths", "1", "How much of its limit the fullest client uses for the paths of its ephemeral znodes: from 0 to 1.")
		_, err := meter.RegisterCallback(z.observe, z.presences, z.missing, z.caches, z.stale, z.shown, z.bytes, z.zxids, z.full)
		handle(err)
	})
	return z
}

func znodesFor(provider metric.MeterProvider) *znodes {
	made := &znodes{
		nodes: make(map[znodeID]presenceNode), mirrors: make(map[znodeID]mirror),
		presenceLabels: make(map[attribute.Distinct]attribute.Set), cacheLabels: make(map[attribute.Distinct]attribute.Set),
		used: make(map[znodeID]int), clientLabels: make(map[attribute.Distinct]attribute.Set),
	}
	if !reflect.ValueOf(provider).Comparable() {
		return made
	}
	znodesOf.mu.Lock()
	defer znodesOf.mu.Unlock()
	if z := znodesOf.each[provider]; z != nil {
		return z
	}
	znodesOf.each[provider] = made
	return made
}

func (z *znodes) changePresence(label attribute.Set, c presence.StateChange) {
	id := znodeID{label.Equivalent(), c.ID}
	z.mu.Lock()
	defer z.mu.Unlock()
	z.presenceLabels[id.attributes] = label
	if c.To == closed {
		delete(z.nodes, id)
	} else {
		z.nodes[id] = presenceNode{c.To, c.Away, c.Timeout}
	}
}

func (z *znodes) changeCache(label attribute.Set, c cache.StateChange) {
	id := znodeID{label.Equivalent(), c.Cache.ID}
	z.mu.Lock()
	defer z.mu.Unlock()
	z.cacheLabels[id.attributes] = label
	if c.To == closed {
		delete(z.mirrors, id)
		return
	}
	k, known := z.mirrors[id]
	if !known || k.state == synced {
		k.unsynced = c.At
	}
	k.state = c.To
	z.mirrors[id] = k
}

func (z *znodes) changeEphemerals(label attribute.Set, c framework.EphemeralsChange) {
	id := znodeID{label.Equivalent(), c.Client}
	z.mu.Lock()
	defer z.mu.Unlock()
	z.clientLabels[id.attributes] = label
	if z.used[id] = c.Percent; c.Percent == 0 {
		delete(z.used, id)
	}
}

// read notes what a cache shows, and reports whether the cache is known.
func (z *znodes) read(label attribute.Set, r cache.Read) bool {
	id := znodeID{label.Equivalent(), r.Cache.ID}
	z.mu.Lock()
	defer z.mu.Unlock()
	k, known := z.mirrors[id]
	if known {
		k.last = r
		z.mirrors[id] = k
	}
	return known
}

// observe measures at one instant. The measurements are passed on afterwards,
// without the lock.
func (z *znodes) observe(_ context.Context, to metric.Observer) error {
	z.mu.Lock()
	presenceLabels, cacheLabels := maps.Clone(z.presenceLabels), maps.Clone(z.cacheLabels)
	clientLabels, fullest := maps.Clone(z.clientLabels), make(map[attribute.Distinct]int)
	for id, percent := range z.used {
		fullest[id.attributes] = max(fullest[id.attributes], percent)
	}
	presences, caches := z.sumsLocked(time.Now())
	z.mu.Unlock()
	for label, set := range clientLabels {
		to.ObserveFloat64(z.full, float64(fullest[label])/100, metric.WithAttributeSet(set))
	}
	for label, set := range presenceLabels {
		s := presences[label]
		observeStates(to, z.presences, set, presenceStates, s)
		to.ObserveFloat64(z.missing, s.longest, metric.WithAttributeSet(set))
	}
	for label, set := range cacheLabels {
		s := caches[label]
		observeStates(to, z.caches, set, cacheStates, s)
		for _, each := range []struct {
			of    metric.Float64Observable
			value float64
		}{{z.stale, s.longest}, {z.shown, s.znodes}, {z.bytes, s.bytes}, {z.zxids, s.zxid}} {
			to.ObserveFloat64(each.of, each.value, metric.WithAttributeSet(set))
		}
	}
	return nil
}

func observeStates(to metric.Observer, of metric.Float64Observable, label attribute.Set, states []string, s sum) {
	for _, state := range states {
		set := attribute.NewSet(append(slices.Clone(label.ToSlice()), stateKey.String(state))...)
		to.ObserveFloat64(of, s.states[state], metric.WithAttributeSet(set))
	}
}

// sum is what a label counts together.
type sum struct {
	states              map[string]float64
	longest             float64 // for how long something is missing or stale
	znodes, bytes, zxid float64
}

func (z *znodes) sumsLocked(now time.Time) (presences, caches map[attribute.Distinct]sum) {
	presences, caches = make(map[attribute.Distinct]sum), make(map[attribute.Distinct]sum)
	for id, n := range z.nodes {
		s := presences[id.attributes].count(n.state)
		if n.state != standing && n.state != "removed" {
			s.longest = max(s.longest, now.Sub(n.away).Seconds()/n.timeout.Seconds())
		}
		presences[id.attributes] = s
	}
	for id, k := range z.mirrors {
		s := caches[id.attributes]
		if zxid := float64(k.last.Zxid); s.states == nil || zxid < s.zxid {
			s.zxid = zxid
		}
		s = s.count(k.state)
		if k.state != synced {
			s.longest = max(s.longest, now.Sub(k.unsynced).Seconds())
		}
		s.znodes += float64(k.last.Znodes)
		s.bytes += float64(k.last.Bytes)
		caches[id.attributes] = s
	}
	return presences, caches
}

func (s sum) count(state string) sum {
	if s.states == nil {
		s.states = make(map[string]float64)
	}
	s.states[state]++
	return s
}
