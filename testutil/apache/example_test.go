package apache_test

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// t stands for the test that an example is part of.
var t *testing.T

// A test against real servers. It is skipped unless ZKR_REAL=1 is set.
func ExampleStart() {
	ens := apache.Start(t, 3)
	client, err := framework.New(ens.Servers(), framework.WithDialer(ens.ClientNet("worker").Dial))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()

	if err := ens.Stop(ens.Leader()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(t.Context(), "/after", nil, 0); err != nil {
		t.Error(err)
	}
}
