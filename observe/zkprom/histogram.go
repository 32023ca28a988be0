package zkprom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The buckets of the classic histograms, in seconds or operations. Those of
// zkotel are the same, except that its requests have fewer: those of the
// semantic conventions.
var (
	requestBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	acquireBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	holdBuckets    = []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600}
	batchBuckets   = []float64{2, 4, 8, 16, 32, 64, 128, 256}
)

// histogram returns the options of a histogram that is both classic and native:
// the server picks what it can read.
func histogram(namespace, name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help,
		Buckets:                         buckets,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  160,
		NativeHistogramMinResetDuration: time.Hour,
	}
}
