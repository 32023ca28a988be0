package bubble

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing/synctest"

	"github.com/zkrecipes/zkrecipes/internal/goroutines"
)

// Census is the number of things of each kind that live as long as a client,
// such as goroutines, watches and objects.
type Census map[string]int

// Count waits until all goroutines of the bubble are blocked, and counts them,
// what the ensemble stores, and everything reachable from the given values:
// objects by type, and elements of maps, slices and channels by the field that
// holds them. It does not see variables captured by functions.
func (w *World) Count(of ...any) Census {
	synctest.Wait()
	c := Census{
		"goroutines":               len(goroutines.In(goroutines.Bubble())),
		"watches at the ensemble":  w.WatchCount(),
		"sessions at the ensemble": len(w.Sessions()),
		"connections":              w.Connections(),
		"znodes":                   strings.Count(w.Tree(), "\n"),
	}
	k := counter{census: c, seen: map[visit]bool{}}
	for _, v := range of {
		k.walk(reflect.ValueOf(v), "")
	}
	return c
}

// Grown lists the kinds whose number has grown by more than slack.
func (c Census) Grown(before Census, slack int) []string {
	var all []string
	for _, what := range slices.Sorted(maps.Keys(c)) {
		if c[what] > before[what]+slack {
			all = append(all, fmt.Sprintf("%s: %d, before %d", what, c[what], before[what]))
		}
	}
	return all
}

type visit struct {
	at uintptr
	of reflect.Type
}

// counter walks everything reachable while all goroutines are blocked.
type counter struct {
	census Census
	seen   map[visit]bool
}

// walk counts v and everything reachable from it. in is the field that holds v.
func (k *counter) walk(v reflect.Value, in string) {
	if !v.IsValid() || foreign(v.Type()) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() || !k.first(v) {
			return
		}
		k.census[v.Type().String()]++
		k.walk(v.Elem(), in)
	case reflect.Interface:
		k.walk(v.Elem(), in)
	case reflect.Struct:
		for i := range v.NumField() {
			k.walk(v.Field(i), v.Type().String()+"."+v.Type().Field(i).Name)
		}
	case reflect.Map:
		if v.IsNil() || !k.first(v) {
			return
		}
		k.census[in] += v.Len()
		for each := v.MapRange(); each.Next(); {
			k.walk(each.Key(), in)
			k.walk(each.Value(), in)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		k.census[in] += v.Len()
		k.each(v, in)
	case reflect.Array:
		k.each(v, in)
	case reflect.Chan:
		if !v.IsNil() && k.first(v) {
			k.census[in] += v.Len()
		}
	}
}

func (k *counter) each(v reflect.Value, in string) {
	for i := range v.Len() {
		k.walk(v.Index(i), in)
	}
}

// first reports whether an object is met for the first time.
func (k *counter) first(v reflect.Value) bool {
	id := visit{v.Pointer(), v.Type()}
	if k.seen[id] {
		return false
	}
	k.seen[id] = true
	return true
}

// foreign reports whether a type does not belong to the client, but to the
// ensemble, the logger or the runtime.
func foreign(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	path := t.PkgPath()
	return strings.Contains(path, "/testutil") || strings.Contains(path, "/internal/test/bubble") || strings.HasPrefix(path, "go.uber.org/zap") ||
		path == "reflect" || path == "testing" || strings.HasPrefix(path, "internal/")
}
