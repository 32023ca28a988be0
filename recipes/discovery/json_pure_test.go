package discovery

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

type details struct {
	A string `json:"a"`
	B int    `json:"b"`
}

// What Curator 5.4 has written and read, from its own output.
func TestBytesAsCuratorWrites(t *testing.T) {
	at := time.UnixMilli(1700000000000)
	uri, err := ParseURISpec("{scheme}://{address}:{port}/x{[}y{]}")
	if err != nil {
		t.Fatal(err)
	}
	const end = `,"registrationTimeUTC":1700000000000,"serviceType":"DYNAMIC","uriSpec":null`
	const head = `{"name":"b","id":"i","address":"h","port":null,"sslPort":null,"payload":`
	same := func(name string, encode func() ([]byte, error), decode func([]byte) (any, error), instance any, want string) {
		t.Helper()
		got, err := encode()
		if err != nil || string(got) != want {
			t.Errorf("%s: %v, wrote\n%s, want\n%s", name, err, got, want)
		}
		back, err := decode([]byte(want))
		if err != nil || !reflect.DeepEqual(back, instance) {
			t.Errorf("%s: %v, read\n%+v, want\n%+v", name, err, back, instance)
		}
	}
	check(same, "all fields", JSON[details]("com.acme.Details"),
		Instance[details]{
			Name: "b<é>&", ID: "i", Address: "h", Port: 8080, SSLPort: 8443, Payload: details{"x", 7},
			Registered: at, Type: DynamicSequential, URISpec: uri,
		},
		`{"name":"b<é>&","id":"i","address":"h","port":8080,"sslPort":8443,"payload":{"@class":"com.acme.Details","a":"x","b":7},`+
			`"registrationTimeUTC":1700000000000,"serviceType":"DYNAMIC_SEQUENTIAL","uriSpec":{"parts":[{"value":"scheme","variable":true},`+
			`{"value":"://","variable":false},{"value":"address","variable":true},{"value":":","variable":false},{"value":"port","variable":true},`+
			`{"value":"/x","variable":false},{"value":"[","variable":true},{"value":"y","variable":false},{"value":"]","variable":true}]}}`)
	i := func() Instance[any] {
		return Instance[any]{Name: "b", ID: "i", Address: "h", Registered: at, Type: Dynamic}
	}
	check(same, "no payload", JSON[any](""), i(), head+"null"+end+"}")
	disabled := i()
	disabled.Disabled = true
	check(same, "disabled", JSON[any](""), disabled, head+"null"+end+`,"enabled":false}`)
	check(same, "no payload of a class", JSON[*details]("com.acme.Details"),
		Instance[*details]{Name: "b", ID: "i", Address: "h", Registered: at, Type: Dynamic}, head+"null"+end+"}")
	check(same, "no address", JSON[any](""), Instance[any]{Name: "b", ID: "i", Registered: at, Type: Static},
		`{"name":"b","id":"i","address":null,"port":null,"sslPort":null,"payload":null,"registrationTimeUTC":1700000000000,"serviceType":"STATIC","uriSpec":null}`)
	with := func(payload any) Instance[any] { i := i(); i.Payload = payload; return i }
	for _, class := range []string{"", "java.lang.String"} {
		check(same, "text", JSON[any](class), with("te<xt"), head+`"te<xt"`+end+"}")
	}
	check(same, "Integer", JSON[any]("java.lang.Integer"), with(7.0), head+"7"+end+"}")
	check(same, "Boolean", JSON[any](""), with(true), head+"true"+end+"}")
	check(same, "Long", JSON[any]("java.lang.Long"), with(7.0), head+`["java.lang.Long",7]`+end+"}")
	check(same, "UUID", JSON[any]("java.util.UUID"), with("00-01"), head+`["java.util.UUID","00-01"]`+end+"}")
	check(same, "list", JSON[any]("java.util.ArrayList"), with([]any{"a", 1.0}), head+`["java.util.ArrayList",["a",1]]`+end+"}")
	check(same, "empty map", JSON[any]("java.util.TreeMap"), with(map[string]any{}), head+`{"@class":"java.util.TreeMap"}`+end+"}")
	check(same, "map without a class", JSON[any](""), with(map[string]any{"k": "v"}), head+`{"k":"v"}`+end+"}")
	raw := i()
	raw.Raw = json.RawMessage(`{"@class":"com.acme.Other","z":1,"a":["x"]}`)
	check(same, "another class", JSON[any]("com.acme.Details"), raw, head+string(raw.Raw)+end+"}")
	check(same, "a class where none is expected", JSON[any](""), raw, head+string(raw.Raw)+end+"}")
	raw.Raw = json.RawMessage(`"text"`)
	check(same, "text where a class is expected", JSON[any]("com.acme.Details"), raw, head+`"text"`+end+"}")
}

func check[T any](same func(string, func() ([]byte, error), func([]byte) (any, error), any, string), name string, c Codec[T], i Instance[T], want string) {
	same(name, func() ([]byte, error) { return c.Encode(i) }, func(text []byte) (any, error) { return c.Decode(text) }, i, want)
}

// What Curator reads: keys in any order and case by case, unknown ones, and
// what is missing.
func TestReadAsCuratorReads(t *testing.T) {
	c := JSON[details]("com.acme.Details")
	for text, want := range map[string]Instance[details]{
		`{"name":"b","id":"i"}`: {Name: "b", ID: "i", Type: Dynamic},
		`{"enabled":true,"id":"i","NAME":"c","name":"b","unknown":{},"port":1}`:                        {Name: "b", ID: "i", Port: 1, Type: Dynamic},
		`{"name":"b","id":"i","enabled":false,"serviceType":"PERMANENT"}`:                              {Name: "b", ID: "i", Type: Permanent, Disabled: true},
		`{"name":"b","id":"i","serviceType":null,"uriSpec":null,"address":null}`:                       {Name: "b", ID: "i", Type: Dynamic},
		`{"name":"b","id":"i","payload":{"b":3,"@class":"com.acme.Details","a":"q","new":1}}`:          {Name: "b", ID: "i", Type: Dynamic, Payload: details{"q", 3}},
		`{"name":"b","id":"i","uriSpec":{"parts":[{"value":"a","variable":true,"x":1}]}}`:              {Name: "b", ID: "i", Type: Dynamic, URISpec: URISpec{{"a", true}}},
		`{"name":"b","id":"i","payload":{"b":3}}`:                                                      {Name: "b", ID: "i", Type: Dynamic, Raw: json.RawMessage(`{"b":3}`)},
		`{"name":"b","id":"i","registrationTimeUTC":1700000000000,"uriSpec":{"parts":[]},"sslPort":2}`: {Name: "b", ID: "i", Type: Dynamic, SSLPort: 2, Registered: time.UnixMilli(1700000000000), URISpec: URISpec{}},
	} {
		got, err := c.Decode([]byte(text))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v\n%+v, want\n%+v", text, err, got, want)
		}
	}
	for text, why := range map[string]string{
		"": "no data", "null": "no name", "{": "unexpected end", `"x"`: "cannot unmarshal", `{"id":"i"}`: "no name", `{"name":"b"}`: "no ID",
		`{"name":"b","id":"i"} x`:                                               "invalid character",
		`{"name":"b","id":"i","port":"many"}`:                                   "port:",
		`{"name":"b","id":"i","payload":[1,2]}`:                                 "payload:",
		`{"name":"b","id":"i","payload":["a"]}`:                                 "payload: a list",
		`{"name":"b","id":"i","payload":{"@class":5}}`:                          "payload:",
		"\xac\xed\x00\x05":                                                      "invalid character",
		`{"name":"b","id":"i","uriSpec":{"parts":"x"}}`:                         "uriSpec:",
		`{"name":"b","id":"i","registrationTimeUTC":"now"}`:                     "registrationTimeUTC:",
		`{"name":"b","id":"i","payload":{"@class":"com.acme.Details","b":"x"}}`: "payload:",
	} {
		if _, err := c.Decode([]byte(text)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, want %q", text, err, why)
		}
	}
}

// A payload that Java could not read is not written.
func TestPayloadsThatCannotBeWritten(t *testing.T) {
	for _, payload := range []any{[]int{1}, make(chan int)} {
		if _, err := JSON[any]("").Encode(Instance[any]{Name: "b", ID: "i", Payload: payload}); err == nil || !strings.Contains(err.Error(), "payload:") {
			t.Errorf("%v: %v", payload, err)
		}
	}
}

// What Curator 5.4 has made of these.
func TestURISpec(t *testing.T) {
	i := Instance[any]{Name: "n", ID: "i", Address: "a", Port: 1, SSLPort: 2, Registered: time.UnixMilli(1700000000000), Type: DynamicSequential}
	for text, want := range map[string][2]string{
		"{scheme}://{address}:{port}": {"https://a:1", "http://:"},
		"{ name }/{id}":               {"n/i", "/"},
		"{}":                          {"", ""},
		"":                            {"", ""},
		"x{ssl-port}{registration-time-utc}{service-type}{[}{]}{nope}": {"x21700000000000dynamic_sequential{}", "x0{}"},
		"{version}{id}": {"v2i", "v2"},
	} {
		spec, err := ParseURISpec(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		i.URISpec = spec
		variables := map[string]string{"version": "v2"}
		if got := [2]string{i.URI(variables), Instance[any]{URISpec: spec}.URI(variables)}; got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	i.URISpec = URISpec{{"id", true}, {"-", false}, {"name", true}}
	if got := i.URI(map[string]string{"id": "", "name": "x"}); got != "-x" {
		t.Errorf("%q: the caller's variables do not come first", got)
	}
	for _, text := range []string{"a{b", "a}b", "{a{b}}", "{{}", "{", "}"} {
		if spec, err := ParseURISpec(text); err == nil {
			t.Errorf("%q: %v", text, spec)
		}
	}
}

// Whatever is read, it can be written, and reads as the same.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"name":"b","id":"i","address":"h","port":null,"sslPort":1,"payload":{"@class":"c","a":"x"},"registrationTimeUTC":1,"serviceType":"DYNAMIC","uriSpec":{"parts":[{"value":"a","variable":true}]},"enabled":false}`,
		`{"name":"b","id":"i","payload":["c",[1]]}`, `{"name":"b","id":"i","payload":"x"}`, `{"name":"b","id":"i","payload":[[],1]}`, ``,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, c := range []Codec[any]{JSON[any]("c"), JSON[any]("")} {
			i, err := c.Decode([]byte(text))
			if err != nil {
				continue
			}
			written, err := c.Encode(i)
			if err != nil {
				continue // a list without a class, as its only reason
			}
			again, err := c.Decode(written)
			if err != nil {
				t.Fatalf("%q became %q: %v", text, written, err)
			}
			if i.Raw != nil { // compacted
				i.Raw, again.Raw = nil, nil
			}
			if !reflect.DeepEqual(again, i) {
				t.Fatalf("%q became %q: %+v, %+v", text, written, i, again)
			}
		}
	})
}
