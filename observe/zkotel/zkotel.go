package zkotel

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/zkrecipes/zkrecipes/framework"
)

// scope is the name of the instrumentation scope of all spans and metrics.
const scope = "github.com/zkrecipes/zkrecipes/observe/zkotel"

// Option configures the observer that New returns.
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

// New returns an observer for framework.WithObserver. It makes spans and
// metrics of the client's events. Several clients may share one observer: their
// metrics are added up. A nil Option is ignored, and a nil provider means the
// default.
func New(opts ...Option) framework.Observer {
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
	return framework.Observer{
		AcquireStart:      o.acquireStart,
		AcquireEnd:        o.acquireEnd,
		Released:          o.released,
		Lost:              o.lost,
		LostReleased:      o.lostReleased,
		Overran:           o.overran,
		Revoked:           o.revoked,
		PresenceChanged:   o.presenceChanged,
		CacheChanged:      o.cacheChanged,
		CacheRead:         o.cacheRead,
		RequestEnd:        o.requestEnd,
		Retried:           o.retried,
		Batched:           o.batched,
		EphemeralsChanged: o.ephemeralsChanged,
		Opened:            o.opened,
		StateChanged:      o.stateChanged,
		Abandoned:         o.abandoned,
		Dropped:           o.dropped,
	}
}

// observer has the functions of a framework.Observer.
type observer struct {
	config
	instruments
	ages   *ages
	znodes *znodes
	tracer trace.Tracer
}

// with returns a set of attributes that has those of the user.
func (o *observer) with(attributes ...attribute.KeyValue) attribute.Set {
	return attribute.NewSet(append(attributes, o.attributes...)...)
}

// set returns the attributes of a measurement.
func (o *observer) set(attributes ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(o.with(attributes...))
}
