package main

import "testing"

// An error in a file of one system is found there, and nowhere else. So is a
// package that does not exist.
func TestCheck(t *testing.T) {
	for system, broken := range map[string]bool{"linux": false, "windows": true} {
		if err := check([]string{"GOOS=" + system, "CGO_ENABLED=0", "./testdata/broken"}); (err != nil) != broken {
			t.Errorf("%s: %v", system, err)
		}
	}
	if check([]string{"./nothing"}) == nil {
		t.Error("a package that does not exist has no error")
	}
}
