package discovery

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

type details struct {
	A string `json:"a"`
	B int    `json:"b"`
}

// nested has floats in every place.
type nested struct {
	Z     float64            `json:"z"`
	Y     int                `json:"y"`
	List  []float64          `json:"list"`
	Map   map[string]float32 `json:"map"`
	Inner *nested
	Any   any `json:"any"`
	Own   own `json:"own"`
	embedded
}

type embedded struct {
	W float64 `json:"w"`
}

// own is a float that is written in its own way.
type own float64

func (o own) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, `"%v"`, float64(o)), nil }

func (o *own) UnmarshalJSON(text []byte) error {
	f, err := strconv.ParseFloat(strings.Trim(string(text), `"`), 64)
	*o = own(f)
	return err
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
	whole, float := 1.0, JSON[float64]("java.lang.Double")
	number := func(f float64) Instance[float64] {
		return Instance[float64]{Name: "b", ID: "i", Address: "h", Registered: at, Type: Dynamic, Payload: f}
	}
	for f, text := range map[float64]string{1: "1.0", -0.5: "-0.5", 0: "0.0", 1e300: "1e+300", math.Inf(1): `["java.lang.Double","Infinity"]`, math.Inf(-1): `["java.lang.Double","-Infinity"]`} {
		check(same, "Double", float, number(f), head+text+end+"}")
	}
	check(same, "Double without a class", JSON[float64](""), number(whole), head+"1.0"+end+"}")
	check(same, "infinite Double without a class", JSON[float64](""), number(math.Inf(1)), head+`["java.lang.Double","Infinity"]`+end+"}")
	check(same, "Float", JSON[float64]("java.lang.Float"), number(whole), head+`["java.lang.Float",1.0]`+end+"}")
	check(same, "infinite Float", JSON[float64]("java.lang.Float"), number(math.Inf(1)), head+`["java.lang.Float","Infinity"]`+end+"}")
	check(same, "Double in an any", JSON[any]("java.lang.Double"), with(1.0), head+"1.0"+end+"}")
	check(same, "pointer to a Double", JSON[*float64](""), Instance[*float64]{Name: "b", ID: "i", Address: "h", Registered: at, Type: Dynamic, Payload: &whole}, head+"1.0"+end+"}")
	check(same, "nested", JSON[nested]("com.acme.Nested"),
		Instance[nested]{Name: "b", ID: "i", Address: "h", Registered: at, Type: Dynamic, Payload: nested{
			Z: 1, Y: 2, List: []float64{1, 1.5}, Map: map[string]float32{"k": 3}, Inner: &nested{Z: 4}, Any: 5.0, Own: own(6), embedded: embedded{W: 7},
		}},
		head+`{"@class":"com.acme.Nested","z":1.0,"y":2,"list":[1.0,1.5],"map":{"k":3.0},"Inner":{"z":4.0,"y":0,"list":null,"map":null,"Inner":null,"any":null,"own":"0","w":0.0},"any":5,"own":"6","w":7.0}`+end+"}")
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
		`{"name":"b","id":"i","port":" 8080 ","sslPort":8443.9,"enabled":"False"}`:                     {Name: "b", ID: "i", Type: Dynamic, Port: 8080, SSLPort: 8443, Disabled: true},
		`{"name":"b","id":"i","port":"","sslPort":"null","enabled":null}`:                              {Name: "b", ID: "i", Type: Dynamic, Disabled: true},
		`{"name":"b","id":"i","port":null,"enabled":0}`:                                                {Name: "b", ID: "i", Type: Dynamic, Disabled: true},
		`{"name":"b","id":"i","registrationTimeUTC":"1700000000000","enabled":-7}`:                     {Name: "b", ID: "i", Type: Dynamic, Registered: time.UnixMilli(1700000000000)},
		`{"name":"b","id":"i","registrationTimeUTC":1700000000000.7,"enabled":" TRUE "}`:               {Name: "b", ID: "i", Type: Dynamic, Registered: time.UnixMilli(1700000000000)},
		`{"name":"b","id":"i","registrationTimeUTC":1.7e12,"serviceType":1}`:                           {Name: "b", ID: "i", Type: Static, Registered: time.UnixMilli(1700000000000)},
		`{"name":true,"id":6.50,"address":1e5,"serviceType":" 3 "}`:                                    {Name: "true", ID: "6.50", Address: "1e5", Type: DynamicSequential},
		`{"name":"b","id":"i","uriSpec":"a{port}"}`:                                                    {Name: "b", ID: "i", Type: Dynamic, URISpec: URISpec{{"a", false}, {"port", true}}},
		`{"name":"b","id":"i","uriSpec":{"parts":[{"value":5,"variable":"true"},{"Value":"x"}]}}`:      {Name: "b", ID: "i", Type: Dynamic, URISpec: URISpec{{"5", true}, {"", false}}},
		`{"name":"b","id":"i","payload":["com.acme.Details",{"b":3}]}`:                                 {Name: "b", ID: "i", Type: Dynamic, Payload: details{B: 3}},
		`{"name":"b","id":"i","payload":["com.acme.Details"]}`:                                         {Name: "b", ID: "i", Type: Dynamic},
		"\ufeff" + ` {"name":"b","id":"i"} x`:                                                          {Name: "b", ID: "i", Type: Dynamic},
	} {
		got, err := c.Decode([]byte(text))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v\n%+v, want\n%+v", text, err, got, want)
		}
	}
	for text, why := range map[string]string{
		"": "no data", "null": "no name", "{": "unexpected end", `"x"`: "cannot unmarshal", `{"id":"i"}`: "no name", `{"name":"b"}`: "no ID",
		`{"name":"b","id":"i","port":"8080.0"}`:                                 "port:",
		`{"name":"b","id":"i","port":3000000000}`:                               "port:",
		`{"name":"b","id":"i","port":1e400}`:                                    "port:",
		`{"name":"b","id":"i","port":true}`:                                     "port:",
		`{"name":"b","id":"i","enabled":"tRUE"}`:                                "enabled:",
		`{"name":"b","id":"i","enabled":1.0}`:                                   "enabled:",
		`{"name":"b","id":"i","address":[]}`:                                    "address:",
		`{"name":"b","id":"i","serviceType":4}`:                                 "serviceType:",
		`{"name":"b","id":"i","serviceType":true}`:                              "serviceType:",
		`{"name":"b","id":"i","uriSpec":"a{b"}`:                                 "uriSpec:",
		`{"name":"b","id":"i","uriSpec":{"parts":[{"value":[]}]}}`:              "value:",
		`{"name":"b","id":"i","port":"many"}`:                                   "port:",
		`{"name":"b","id":"i","payload":[1,2]}`:                                 "payload:",
		`{"name":"b","id":"i","payload":["a",1,2]}`:                             "payload: a list",
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
	for _, tt := range []struct {
		class   string
		payload any
	}{
		{"", []int{1}},
		{"", make(chan int)},
		{"java.lang.Integer", 1.5},
		{"java.lang.Integer", 1 << 31},
		{"java.lang.Integer", math.Inf(1)},
		{"java.lang.Integer", "1"},
		{"java.lang.String", 1},
		{"java.lang.Boolean", "true"},
		{"java.lang.Double", true},
		{"java.lang.Double", []float64{1}},
		{"com.acme.Details", math.NaN()},
	} {
		if text, err := JSON[any](tt.class).Encode(Instance[any]{Name: "b", ID: "i", Payload: tt.payload}); err == nil || !strings.Contains(err.Error(), "payload:") {
			t.Errorf("%s %v: %s, %v", tt.class, tt.payload, text, err)
		}
	}
}

// Jackson takes more than JSON's own words for a Boolean.
func TestABooleanAsCuratorReadsIt(t *testing.T) {
	for text, want := range map[string]bool{`"True"`: true, `"TRUE"`: true, "1": true, `"False"`: false, `""`: false, "0": false} {
		i, err := JSON[bool](classBoolean).Decode([]byte(`{"name":"b","id":"i","payload":["java.lang.Boolean",` + text + `]}`))
		if err != nil || i.Raw != nil || i.Payload != want {
			t.Errorf("%s: %+v, %v", text, i, err)
		}
	}
}

// A payload that is not a number compares unequal.
func TestNaN(t *testing.T) {
	for class, want := range map[string]string{
		"": `["java.lang.Double","NaN"]`, "java.lang.Double": `["java.lang.Double","NaN"]`, "java.lang.Float": `["java.lang.Float","NaN"]`,
	} {
		c := JSON[float32](class)
		text, err := c.Encode(Instance[float32]{Name: "b", ID: "i", Payload: float32(math.NaN())})
		if err != nil || !strings.Contains(string(text), `"payload":`+want+",") {
			t.Errorf("%q: %s, %v", class, text, err)
		}
		back, err := c.Decode(text)
		if err != nil || !math.IsNaN(float64(back.Payload)) || back.Raw != nil {
			t.Errorf("%q: %+v, %v", class, back, err)
		}
	}
}

// A payload that is no number is an error, and not 0.
func TestAPayloadThatIsNoNumber(t *testing.T) {
	for class, payload := range map[string]string{"": `["java.lang.Double","much"]`, "java.lang.Double": `"1,5"`, "java.lang.Float": `["java.lang.Float","much"]`} {
		back, err := JSON[float64](class).Decode([]byte(`{"name":"b","id":"i","payload":` + payload + `}`))
		if err == nil || back.Payload != 0 {
			t.Errorf("%s: %+v, %v", payload, back, err)
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

// The bounds of a number of 32 bits, as an integer and with a fraction.
func TestIntegers(t *testing.T) {
	for text, want := range map[string]int64{
		"2147483647": math.MaxInt32, "2147483647.9": math.MaxInt32, "-2147483648": math.MinInt32, "-2147483648.0": math.MinInt32, "-0.9": 0, "null": 0,
	} {
		if n, err := integer([]byte(text), 32); n != want || err != nil {
			t.Errorf("%s: %d, %v, want %d", text, n, err, want)
		}
	}
	for _, text := range []string{"2147483648", "2147483648.0", "-2147483649", "-2147483648.5", "-2147483649.0"} {
		if n, err := integer([]byte(text), 32); err == nil {
			t.Errorf("%s: %d", text, n)
		}
	}
}
