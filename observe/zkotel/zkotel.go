package zkotel

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

// scope is the name of the instrumentation scope of all spans and metrics.
const scope = "github.com/zkrecipes/zkrecipes/observe/zkotel"

// Option configures what New returns.
type Option func(*config)

type config struct {
	traces       trace.TracerProvider
	metrics      metric.MeterProvider
	requestSpans bool
	lockLabel    func(path string) string
	attributes   []attribute.KeyValue
}

// TracerProvider sets where spans come from. Default: the global provider.
func TracerProvider(p trace.TracerProvider) Option { return func(c *config) { c.traces = p } }

// MeterProvider sets where metrics come from. Default: the global provider.
func MeterProvider(p metric.MeterProvider) Option { return func(c *config) { c.metrics = p } }

// RequestSpans adds a span for each request to the ensemble whose context has a
// span. The requests of an Acquire are children of its span, and the request of
// client.Get is a child of the caller's span. Requests that the client makes
// for itself have no such context and no span. Default: no spans for requests.
// The metric of requests does not need this option.
func RequestSpans() Option { return func(c *config) { c.requestSpans = true } }

// LockLabel adds the attribute zkrecipes.label to the metrics of locks, and
// sets the function that returns its value. The function gets the path of the
// lock at the ensemble: for a lock of locks.Keyed the path of its root, and for
// a lock with recipes.WithLabel that label. Return few different values,
// because each adds about a hundred time series. For the same path always
// return the same value. Default: no such attribute.
//
// The function is called on the goroutine that acquires or releases, which
// waits for it. If it panics, the label is "(panic)".
func LockLabel(label func(path string) string) Option { return func(c *config) { c.lockLabel = label } }

// Attributes adds attributes to all spans and metrics, to distinguish the
// clients of one process.
func Attributes(attributes ...attribute.KeyValue) Option {
	return func(c *config) { c.attributes = append(c.attributes, attributes...) }
}

// New returns an option of framework.New. It makes spans and metrics of the
// events of the client and of its recipes. Several clients may share one: their
// metrics are added up. A nil Option is ignored, and a nil provider means the
// default.
func New(opts ...Option) framework.Option {
	o := newObserver(opts)
	return framework.Together(framework.WithObserver(o.client()), recipes.WithObserver(o.leases()),
		presence.WithObserver(o.presences()), cache.WithObserver(o.caches()), counter.WithObserver(o.counters()), barrier.WithObserver(o.barriers()))
}

func newObserver(opts []Option) *observer {
	var cfg config
	for _, opt := range opts {
		if opt != nil {
			opt(&cfg)
		}
	}
	if cfg.traces == nil {
		cfg.traces = otel.GetTracerProvider()
	}
	if cfg.metrics == nil {
		cfg.metrics = otel.GetMeterProvider()
	}
	o := &observer{
		config: cfg,
		tracer: cfg.traces.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL)),
	}
	meter := cfg.metrics.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))
	o.instruments, o.ages, o.znodes = newInstruments(meter), sharedAges(cfg.metrics, meter), sharedZnodes(cfg.metrics, meter)
	return o
}

// observer has the functions of the observers.
type observer struct {
	config
	instruments
	ages   *ages
	znodes *znodes
	tracer trace.Tracer
}

func (o *observer) client() framework.Observer {
	return framework.Observer{
		RequestEnd:        o.requestEnd,
		Retried:           o.retried,
		Batched:           o.batched,
		EphemeralsChanged: o.ephemeralsChanged,
		Opened:            o.opened,
		StateChanged:      o.stateChanged,
		Abandoned:         o.abandoned,
		Moved:             o.moved,
		GuardianLost:      o.guardianLost,
		Dropped:           o.dropped,
	}
}

func (o *observer) leases() recipes.Observer {
	return recipes.Observer{
		AcquireStart: o.acquireStart,
		AcquireEnd:   o.acquireEnd,
		Released:     o.released,
		Lost:         o.lost,
		LostReleased: o.lostReleased,
		Overran:      o.overran,
		Revoked:      o.revoked,
	}
}

func (o *observer) presences() presence.Observer {
	return presence.Observer{StateChanged: o.presenceChanged}
}

func (o *observer) caches() cache.Observer {
	return cache.Observer{StateChanged: o.cacheChanged, Read: o.cacheRead}
}

// with returns a set of attributes that has those of the user.
func (o *observer) with(attributes ...attribute.KeyValue) attribute.Set {
	return attribute.NewSet(append(attributes, o.attributes...)...)
}

// set returns the attributes of a measurement.
func (o *observer) set(attributes ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(o.with(attributes...))
}
