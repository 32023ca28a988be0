// Package seam lets two packages of this module give others of its packages
// what is not for users, although it cannot be exported. They fill the
// variables when they are initialized. recipes/internal/privileged and
// internal/test/hidden assert the types, once, when the program starts.
package seam

var (
	Framework any // of package framework: see recipes/internal/privileged
	Testutil  any // of package testutil: see internal/test/hidden
)
