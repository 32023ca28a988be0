package zkotel

import (
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// The attributes that are not of the semantic conventions.
const (
	recipeKey   = attribute.Key("zkrecipes.recipe")
	modeKey     = attribute.Key("zkrecipes.mode")
	pathKey     = attribute.Key("zkrecipes.path")
	labelKey    = attribute.Key("zkrecipes.label")
	tryKey      = attribute.Key("zkrecipes.try")
	permitsKey  = attribute.Key("zkrecipes.permits")
	outcomeKey  = attribute.Key("zkrecipes.outcome")
	waitedKey   = attribute.Key("zkrecipes.waited")
	failureKey  = attribute.Key("zkrecipes.failure")
	tokenKey    = attribute.Key("zkrecipes.token")
	sessionKey  = attribute.Key("zkrecipes.session")
	znodeKey    = attribute.Key("zkrecipes.znode")
	reasonKey   = attribute.Key("zkrecipes.reason")
	resultKey   = attribute.Key("zkrecipes.result")
	heldKey     = attribute.Key("zkrecipes.held")
	byKey       = attribute.Key("zkrecipes.by")
	electionKey = attribute.Key("zkrecipes.election")
	stateKey    = attribute.Key("zkrecipes.state")
	presenceKey = attribute.Key("zkrecipes.presence")
	cacheKey    = attribute.Key("zkrecipes.cache")
	counterKey  = attribute.Key("zkrecipes.counter")
	barrierKey  = attribute.Key("zkrecipes.barrier")
	kindKey     = attribute.Key("zkrecipes.kind")
	znodesKey   = attribute.Key("zkrecipes.znodes")
	bytesKey    = attribute.Key("zkrecipes.bytes")
	zxidKey     = attribute.Key("zkrecipes.zxid")
)

// callAttributes are those that a span of an Acquire begins with.
func callAttributes(a recipes.Acquire) []attribute.KeyValue {
	return []attribute.KeyValue{
		recipeKey.String(a.Recipe),
		modeKey.String(a.Mode),
		pathKey.String(a.Path),
		labelKey.String(valid(a.Label)),
		tryKey.Bool(a.Try),
		permitsKey.Int(a.Permits),
	}
}

// grantAttributes are those of a lease.
func grantAttributes(g recipes.Grant) []attribute.KeyValue {
	return []attribute.KeyValue{
		tokenKey.String(g.Token),
		sessionKey.String(sessionText(g.Session)),
		znodeKey.String(g.Znode),
	}
}

// leaseAttributes are those of an event of a lease.
func leaseAttributes(a recipes.Acquire, g recipes.Grant, more ...attribute.KeyValue) []attribute.KeyValue {
	return append([]attribute.KeyValue{
		recipeKey.String(a.Recipe),
		modeKey.String(a.Mode),
		pathKey.String(a.Path),
		tokenKey.String(g.Token),
		sessionKey.String(sessionText(g.Session)),
	}, more...)
}

// lock returns the attributes of the metrics of a lock.
func (o *observer) lock(a recipes.Acquire, more ...attribute.KeyValue) attribute.Set {
	all := append([]attribute.KeyValue{recipeKey.String(a.Recipe), modeKey.String(a.Mode)}, more...)
	if o.lockLabel != nil {
		all = append(all, labelKey.String(o.ages.locks.fit(labelOf(o.lockLabel, a.Label))))
	}
	return o.with(all...)
}

// election returns the attributes of the metrics of an election; nil if a is of
// another recipe.
func (o *observer) election(a recipes.Acquire) *attribute.Set {
	if a.Recipe != electionRecipe {
		return nil
	}
	set := o.with(electionKey.String(o.ages.elections.fit(valid(a.Label))))
	return &set
}

// labelOf calls the user's function.
func labelOf(label func(string) string, of string) (text string) {
	defer func() {
		if recover() != nil {
			text = "(panic)"
		}
	}()
	return valid(label(of))
}

// valid returns a text that can be exported. One that is not valid UTF-8 would
// make the export of all spans or metrics fail.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// sessionText writes a session's id as the logs of clients and servers do.
func sessionText(id int64) string { return fmt.Sprintf("0x%x", uint64(id)) }

func seconds(key attribute.Key, d time.Duration) attribute.KeyValue { return key.Float64(d.Seconds()) }
