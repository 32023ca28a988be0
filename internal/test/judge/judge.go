// Package judge marks the failures that no busy machine explains: two held, a
// count is wrong, a token went back, or something was left behind. CI runs no
// test again that has failed so.
package judge

import "fmt"

// Mark begins each of these failures.
const Mark = "JUDGE: "

// T is the part of testing.TB that this package needs.
type T interface {
	Helper()
	Error(args ...any)
	Fatal(args ...any)
}

// Errorf is t.Errorf for such a failure.
func Errorf(t T, format string, args ...any) {
	t.Helper()
	t.Error(Mark + fmt.Sprintf(format, args...))
}

// Fatalf is t.Fatalf for such a failure.
func Fatalf(t T, format string, args ...any) {
	t.Helper()
	t.Fatal(Mark + fmt.Sprintf(format, args...))
}
