// Package seam lets two packages of this module give others of its packages
// what is not for users, although it cannot be exported. They fill the
// variables when they are initialized. recipes/internal/follow and
// internal/test/hidden assert the types, once, when the program starts.
package seam

var (
	Cache    any // of package recipes/cache: see recipes/internal/follow
	Testutil any // of package testutil: see internal/test/hidden
)
