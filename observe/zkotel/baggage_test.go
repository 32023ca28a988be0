package zkotel_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/baggage"
)

// withBaggage returns ctx with a tenant as baggage.
func withBaggage(t *testing.T, ctx context.Context) context.Context {
	t.Helper()
	tenant, err := baggage.NewMember("tenant", "blue")
	if err != nil {
		t.Fatal(err)
	}
	all, err := baggage.New(tenant)
	if err != nil {
		t.Fatal(err)
	}
	return baggage.ContextWithBaggage(ctx, all)
}

// wantBaggage checks that ctx has that baggage.
func wantBaggage(t *testing.T, ctx context.Context) {
	t.Helper()
	if got := baggage.FromContext(ctx).Member("tenant").Value(); got != "blue" {
		t.Errorf("the baggage has the tenant %q, want blue", got)
	}
}
