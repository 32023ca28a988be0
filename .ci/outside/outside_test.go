// Package outside is what .ci/release-check builds and tests outside of the
// repository: it uses each module of a release as its users do.
package outside

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/observe/zkgrpc"
	"github.com/zkrecipes/zkrecipes/observe/zkotel"
	"github.com/zkrecipes/zkrecipes/observe/zkprom"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/sasl/gssapi"
	zktest "github.com/zkrecipes/zkrecipes/testutil"
)

func TestALockThatIsMeasured(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	registry := prometheus.NewRegistry()
	metrics, err := zkprom.New(zkprom.Registerer(registry))
	if err != nil {
		t.Fatal(err)
	}
	client, err := framework.New(zktest.Start(t).Servers(), metrics.Option(), zkotel.New())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	mutex, err := locks.NewMutex(client, "/locks/report")
	if err != nil {
		t.Fatal(err)
	}
	var token string
	err = recipes.Do(ctx, mutex, func(_ context.Context, lease *recipes.Lease) error {
		token = fmt.Sprint(lease.Token())
		if _, err := mutex.TryAcquire(ctx); err == nil {
			t.Error("two have the lock")
		}
		return nil
	})
	if err != nil || token == "" {
		t.Fatalf("token %q, %v", token, err)
	}
	if n, err := testutil.GatherAndCount(registry, "zkrecipes_acquire_duration_seconds"); n == 0 || err != nil {
		t.Errorf("%d series of calls of Acquire, %v", n, err)
	}
}

func TestServicesForGRPC(t *testing.T) {
	client, err := framework.New(zktest.Start(t).Servers())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	services, err := discovery.New(client, "/services", discovery.JSON[string](""))
	if err != nil {
		t.Fatal(err)
	}
	if scheme := zkgrpc.NewResolver(services).Scheme(); scheme != "zk" {
		t.Errorf("scheme %q", scheme)
	}
}

// What Kerberos needs is in the module: a keytab that is not there is named.
func TestKerberosNamesItsKeytab(t *testing.T) {
	missing := t.TempDir() + "/app.keytab"
	client, err := framework.New("127.0.0.1:1", framework.WithSASL(gssapi.New(gssapi.WithKeytab(missing, "app@EXAMPLE.COM"))))
	if err == nil {
		client.Close()
		t.Fatal("no error")
	}
	if !strings.Contains(err.Error(), missing) {
		t.Error(err)
	}
}
