package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

// profiled lists the benchmarks that are slower than their floor, each with its
// number of cycles.
var profiled = []struct {
	name, pattern string
	cycles        int
}{
	{"alone", "^BenchmarkGrant$/^mutex$/^real-nosync$", 20_000},
	{"alone, lingering", "^BenchmarkGrant$/^mutex-lingering$/^real-nosync$", 2_000_000},
	{"16 on one lock", "^BenchmarkGrant$/^mutex-16$/^real-nosync$", 1_000_000},
	{"1,000 in line", "^BenchmarkHandOver$/^1000$/^real-nosync$", 4_000},
}

// layers says who does the work, innermost layer first. A sample counts for the
// layer of its innermost frame that belongs to one, so the runtime's work
// counts for its caller.
var layers = []layer{
	{"the system, for the socket", []string{"internal/poll.", "net.(*conn)."}},
	{"the wire client", []string{"github.com/go-zookeeper/zk."}},
	{"framework", []string{module + "framework.", module + "internal/managed", module + "retry.", "github.com/cenkalti/backoff/"}},
	{"the line", []string{module + "recipes/internal/", module + "internal/layout."}},
	{"the recipe", []string{module + "recipes/", module + "recipes."}},
	{"the benchmark", []string{module, "testing."}},
	{"the scheduler", []string{"runtime.mcall", "runtime.mstart", "runtime.schedule", "runtime.findRunnable", "runtime.goexit0", "runtime.morestack"}},
	{"the collector", []string{"runtime.gcBgMarkWorker", "runtime.bgsweep", "runtime.bgscavenge"}},
}

const (
	module = "github.com/zkrecipes/zkrecipes/"
	rest   = "others"
)

type layer struct {
	name     string
	prefixes []string // of function names
}

func (l layer) has(function string) bool {
	return slices.ContainsFunc(l.prefixes, func(prefix string) bool { return strings.HasPrefix(function, prefix) })
}

// layerOf returns the layer of a sample.
func layerOf(s *profile.Sample) string {
	for _, at := range s.Location {
		for _, line := range at.Line {
			if i := slices.IndexFunc(layers, func(l layer) bool { return line.Function != nil && l.has(line.Function.Name) }); i >= 0 {
				return layers[i].name
			}
		}
	}
	return rest
}

// byLayer adds up the values of one sample type.
func byLayer(p *profile.Profile, sampleType string) (map[string]float64, error) {
	i := slices.IndexFunc(p.SampleType, func(t *profile.ValueType) bool { return t.Type == sampleType })
	if i < 0 {
		return nil, fmt.Errorf("the profile has no %s", sampleType)
	}
	sum := map[string]float64{}
	for _, s := range p.Sample {
		sum[layerOf(s)] += float64(s.Value[i])
	}
	return sum, nil
}

// profiles measures where the processor's time goes, and which layers allocate.
func (o *options) profiles(ctx context.Context, out *page) error {
	m, err := compile(ctx)
	if err != nil {
		return err
	}
	defer m.remove()
	var times, allocs []map[string]float64
	for _, p := range profiled {
		file := filepath.Join(m.dir, "profile")
		for _, kind := range []struct {
			args       []string
			sampleType string
			each       float64
			all        *[]map[string]float64
		}{
			{[]string{"-test.cpuprofile", file}, "cpu", 1e3 * float64(p.cycles), &times}, // nanoseconds to microseconds
			{[]string{"-test.memprofile", file, "-test.memprofilerate", "1"}, "alloc_objects", float64(p.cycles), &allocs},
		} {
			if _, err := m.run(ctx, p.pattern, fmt.Sprintf("%dx", p.cycles), kind.args...); err != nil {
				return err
			}
			sum, err := readProfile(file, kind.sampleType)
			if err != nil {
				return err
			}
			for name := range sum {
				sum[name] /= kind.each
			}
			*kind.all = append(*kind.all, sum)
		}
	}
	text := machine() + ".\n\n" + shares("microseconds of a processor, a cycle", times) + "\n" + shares("allocations, a cycle", allocs)
	out.tables = append(out.tables, table{name: "profiles", text: text})
	return nil
}

func readProfile(file, sampleType string) (_ map[string]float64, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	p, err := profile.Parse(f)
	if err != nil {
		return nil, err
	}
	return byLayer(p, sampleType)
}

// shares returns a table with a row for each layer and a column for each
// benchmark.
func shares(what string, all []map[string]float64) string {
	var out strings.Builder
	fmt.Fprintf(&out, "| %s |", what)
	for _, p := range profiled {
		fmt.Fprintf(&out, " %s |", p.name)
	}
	out.WriteString("\n|---|" + strings.Repeat("---:|", len(all)) + "\n")
	for _, l := range append(slices.Clone(layers), layer{name: rest}) {
		fmt.Fprintf(&out, "| %s |", l.name)
		for _, sum := range all {
			value := sum[l.name]
			if value < 0.005 { // from the setup
				value = 0
			}
			fmt.Fprintf(&out, " %s |", significant(value))
		}
		out.WriteString("\n")
	}
	out.WriteString("| **in all** |")
	for _, sum := range all {
		total := 0.0
		for _, value := range sum {
			total += value
		}
		fmt.Fprintf(&out, " **%s** |", significant(total))
	}
	out.WriteString("\n")
	return out.String()
}
