// Package hidden has types that nobody outside of broken can name.
package hidden

type Type int

type Generic[T any] struct{ Value T }

type Face interface{ Do() }

const Constant Type = 1
