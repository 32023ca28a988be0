package zkprom

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
)

// Option configures a Metrics. New returns an error for a bad value.
type Option func(*config)

type config struct {
	registerer prometheus.Registerer
	namespace  string
	lockLabel  func(path string) string
	labelLimit int
	noFunction bool // LockLabel was given none
}

func newConfig(opts []Option) (config, error) {
	cfg := config{registerer: prometheus.DefaultRegisterer, namespace: "zkrecipes", labelLimit: 1000}
	for i, opt := range opts {
		if opt == nil {
			return cfg, fmt.Errorf("option %d: nil", i)
		}
		opt(&cfg)
	}
	switch {
	case cfg.registerer == nil:
		return cfg, errors.New("registerer: nil")
	case !model.LegacyValidation.IsValidMetricName(cfg.namespace):
		return cfg, fmt.Errorf("namespace %q: must begin a metric's name: letters, digits and underscores", cfg.namespace)
	case cfg.noFunction:
		return cfg, errors.New("lock label: no function")
	case cfg.labelLimit < 1:
		return cfg, fmt.Errorf("label limit %d: must be at least 1", cfg.labelLimit)
	}
	return cfg, nil
}

// Registerer sets where the metrics are registered. Default:
// prometheus.DefaultRegisterer.
func Registerer(r prometheus.Registerer) Option { return func(c *config) { c.registerer = r } }

// Namespace sets what the metrics' names begin with. The alert rules and the
// dashboard of this module expect the default, "zkrecipes".
func Namespace(name string) Option { return func(c *config) { c.namespace = name } }

// LockLabel adds the label "lock" to the metrics of locks, and sets the
// function that returns its value. The function gets the path of the lock at
// the ensemble, with chroot and namespace: for a lock of locks.Keyed the path
// of its root, and for a lock with recipes.WithLabel that label. Return few
// different values, because each adds about a hundred time series. All locks
// for which it returns "" are counted together. Default: no such label.
//
// The function is called by Acquire and TryAcquire on the caller's goroutine,
// which waits for it, and again for an overrun or a revocation. If it panics,
// the label is "(panic)".
func LockLabel(fn func(path string) string) Option {
	return func(c *config) { c.lockLabel, c.noFunction = fn, fn == nil }
}

// LabelLimit sets how many locks, and how many elections, presences, caches,
// counters and barriers, have a label value of their own. The rest is counted
// together, with the label "(other)". Default: 1000.
func LabelLimit(n int) Option { return func(c *config) { c.labelLimit = n } }
