package bubble

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing/synctest"
)

// Census is how many of each thing there are that lives as long as a client does, by
// what it is.
type Census map[string]int

// Count counts, once nothing can go on, the goroutines of the bubble, what the ensemble
// keeps, and everything that can be reached from the given values: objects by their
// types, and the elements of maps, slices and channels by the field that has them. It
// sees nothing of what a function has captured.
func (w *World) Count(of ...any) Census {
	synctest.Wait()
	c := Census{
		"goroutines":               len(Stacks(Name())),
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

// Grown says what there is more of than before, by more than the given number.
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

// counter walks what can be reached. Nothing moves meanwhile.
type counter struct {
	census Census
	seen   map[visit]bool
}

// walk counts what v has. in is the field that it stands in.
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

// first reports whether an object has not been met before.
func (k *counter) first(v reflect.Value) bool {
	id := visit{v.Pointer(), v.Type()}
	if k.seen[id] {
		return false
	}
	k.seen[id] = true
	return true
}

// foreign reports whether a type is of what is not the client's: the ensemble, the
// loggers, the runtime's.
func foreign(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	path := t.PkgPath()
	return strings.Contains(path, "/testutil") || strings.Contains(path, "/internal/bubble") || strings.HasPrefix(path, "go.uber.org/zap") ||
		path == "reflect" || path == "testing" || strings.HasPrefix(path, "internal/")
}
