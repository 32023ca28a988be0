package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/testutil"
)

// Every number is counted once and in order, with increasing tokens.
func TestExample(t *testing.T) {
	ens := testutil.Start(t, testutil.WithMembers(3))
	var out strings.Builder // the workers write to it under the lock, one at a time
	if err := run(t.Context(), ens.Servers(), &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != workers*steps {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), workers*steps, out.String())
	}
	form := regexp.MustCompile(`^worker [1-3] counted (\d+) under token ([0-9a-f]+)$`)
	last := ""
	for i, line := range lines {
		m := form.FindStringSubmatch(line)
		if m == nil || m[1] != fmt.Sprint(i+1) || m[2] <= last {
			t.Fatalf("line %d is %q, after token %s", i+1, line, last)
		}
		last = m[2]
	}
	if data, _ := ens.Data(counterPath); string(data) != fmt.Sprint(workers*steps) {
		t.Errorf("the counter is %q", data)
	}
}
