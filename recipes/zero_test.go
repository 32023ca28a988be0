package recipes_test

import (
	"context"
	"reflect"
	"testing"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// What a user can declare without a constructor fails, and does not panic,
// whatever is called on it.
func TestNothingPanicsOnAZeroValue(t *testing.T) {
	arguments := map[reflect.Type]any{
		reflect.TypeFor[context.Context]():                             t.Context(),
		reflect.TypeFor[string]():                                      "key",
		reflect.TypeFor[int]():                                         1,
		reflect.TypeFor[func(context.Context, *recipes.Lease) error](): func(context.Context, *recipes.Lease) error { return nil },
		reflect.TypeFor[func(*recipes.Lease)]():                        func(*recipes.Lease) {},
	}
	for name, value := range map[string]any{
		"Line": &recipes.Line{}, "nil Line": (*recipes.Line)(nil), "Lease": &recipes.Lease{}, "Owner": &recipes.Owner{}, "Token": &recipes.Token{},
		"LockOption": recipes.LockOption{}, "LeaseOption": recipes.LeaseOption{}, "ZnodeOption": recipes.ZnodeOption{},
		"DataOption": recipes.DataOption{}, "AnyOption": recipes.AnyOption{}, "LabelOption": recipes.LabelOption{},
		"Mutex": &locks.Mutex{}, "Keyed": &locks.Keyed{}, "Mutex of a zero Keyed": (&locks.Keyed{}).Key("a"),
		"RWLock": &rwlock.RWLock{}, "Reader": (&rwlock.RWLock{}).Reader(), "Writer": (&rwlock.RWLock{}).Writer(),
		"Semaphore": &semaphore.Semaphore{}, "Permits": (&semaphore.Semaphore{}).Permits(1), "no Permits": (&semaphore.Semaphore{}).Permits(-1),
		"Election": &leader.Election{},
	} {
		v := reflect.ValueOf(value)
		for i := range v.NumMethod() {
			method := v.Method(i)
			var in []reflect.Value
			for k := range method.Type().NumIn() {
				if method.Type().IsVariadic() && k == method.Type().NumIn()-1 {
					break
				}
				argument := reflect.Zero(method.Type().In(k))
				if given := arguments[method.Type().In(k)]; given != nil {
					argument = reflect.ValueOf(given)
				}
				in = append(in, argument)
			}
			func() {
				defer func() {
					if p := recover(); p != nil {
						t.Errorf("%s: %s panics: %v", name, v.Type().Method(i).Name, p)
					}
				}()
				out := method.Call(in)
				last := len(out) - 1
				if _, acquirer := value.(recipes.Acquirer); (acquirer || name == "Keyed") && last >= 0 && out[last].Type() == reflect.TypeFor[error]() && out[last].IsNil() {
					t.Errorf("%s: %s succeeds", name, v.Type().Method(i).Name)
				}
			}()
		}
	}
}
