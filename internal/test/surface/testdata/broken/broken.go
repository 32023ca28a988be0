// Package broken names a type of an internal package in each way there is. What is
// called Good does not.
package broken

import "github.com/zkrecipes/zkrecipes/internal/test/surface/testdata/broken/internal/hidden"

type (
	Alias                = hidden.Type
	Defined              hidden.Type // its underlying type is int: a user loses nothing
	ViaAlias             = map[string]*Alias
	Field                struct{ F []hidden.Type }
	Embedding            struct{ hidden.Face }
	Inherits             struct{ parent }
	Method               struct{}
	Interface            interface{ M(chan hidden.Type) }
	Param[T hidden.Face] struct{}
	Union                interface{ ~string | hidden.Type }
	Good                 struct{ private hidden.Type }
	GoodAlias            = Good
)

type parent struct{ F hidden.Type }

type unreachable struct{ F hidden.Type }

func (Method) M(func(hidden.Type))         {}
func (*Method) P() (_ hidden.Generic[int]) { return }
func (Method) private(hidden.Type)         {}
func (Good) GoodMethod(Good) error         { return nil }
func (unreachable) M(hidden.Type)          {}

func Function(...[2]hidden.Type)               {}
func Returns() (p parent)                      { return p }
func Argument(Param[interface{ hidden.Face }]) {}
func GoodFunction(Good) (_ GoodAlias)          { return }

var (
	Variable     map[hidden.Type]int
	GoodVariable Good
)

const (
	Constant     = hidden.Constant
	GoodConstant = int(hidden.Constant)
)
