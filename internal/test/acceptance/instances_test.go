package acceptance_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes/discovery"
)

// reader is a process that reads instances as Curator does: see
// testdata/Instances.java.
type reader struct {
	in  io.Writer
	out *bufio.Scanner
}

func startReader(t *testing.T) *reader {
	t.Helper()
	needsCurator(t)
	dir, err := classes()
	if err != nil {
		t.Fatal(err)
	}
	classPath, err := curatorClassPath()
	if err != nil {
		t.Fatal(err)
	}
	process := exec.Command("java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", dir+string(os.PathListSeparator)+classPath, "Instances")
	in, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // its input ends it
		_ = in.Close()
		_ = process.Wait()
	})
	r := &reader{in, bufio.NewScanner(out)}
	r.out.Buffer(nil, 1<<20)
	return r
}

// read returns the payload as Java shows it, and the instance as Curator writes
// it. ok reports whether Curator reads the data.
func (r *reader) read(t *testing.T, class, data string) (payload, written string, ok bool) {
	t.Helper()
	if _, err := fmt.Fprintln(r.in, class, base64.StdEncoding.EncodeToString([]byte(data))); err != nil {
		t.Fatal(err)
	}
	if !r.out.Scan() {
		t.Fatalf("%s: the process has ended: %v", data, r.out.Err())
	}
	words := strings.Split(r.out.Text(), "\t")
	switch words[0] {
	case "read":
		return words[1], words[2], true
	case "refused":
		return words[1], "", false
	}
	t.Fatalf("%s: %s", data, r.out.Text())
	return "", "", false
}

// seen is an instance as Curator has read and written it.
type seen struct {
	Name, ID, Address string
	Port, SSLPort     int
	Registered        int64 `json:"registrationTimeUTC"`
	ServiceType       discovery.ServiceType
	URISpec           *struct{ Parts discovery.URISpec }
	Enabled           bool
}

// agree checks that we read what Curator reads, and in the same way. It reports
// whether Curator reads it.
func (r *reader) agree(t *testing.T, data string) bool {
	t.Helper()
	_, written, ok := r.read(t, "java.lang.Object", data)
	if !ok {
		return false
	}
	ours, err := discovery.JSON[json.RawMessage]("").Decode([]byte(data))
	if written == "?" { // its parts have a null
		if err != nil && err.Error() != "no name, or no ID" {
			t.Errorf("%s: Curator reads it: %v", data, err)
		}
		return true
	}
	want := seen{}
	if err := json.Unmarshal([]byte(written), &want); err != nil {
		t.Fatal(err)
	}
	if want.Name == "" || want.ID == "" { // which we refuse: the znode is none of ours
		return true
	}
	if want.ServiceType == "" {
		want.ServiceType = discovery.Dynamic
	}
	got := seen{
		Name: ours.Name, ID: ours.ID, Address: ours.Address, Port: ours.Port, SSLPort: ours.SSLPort, ServiceType: ours.Type, Enabled: !ours.Disabled,
	}
	if !ours.Registered.IsZero() {
		got.Registered = ours.Registered.UnixMilli()
	}
	if ours.URISpec != nil {
		got.URISpec = &struct{ Parts discovery.URISpec }{ours.URISpec}
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %v\nours  %+v\nCurator reads %s", data, err, ours, written)
	}
	return true
}

// values are those of fields, each with a word of what Curator makes of it.
var values = []string{
	`null`, `true`, `false`, `0`, `1`, `-1`, `-0`, `3`, `4`, `8080`, `8080.0`, `8080.9`, `-80.9`, `8.08e3`, `2147483647`, `2147483648`, `1e400`, `1e-400`,
	`1700000000000`, `1700000000000.7`, `1.7e12`, `1e18`, `99999999999999999999999`, `""`, `" "`, `"null"`, `" null "`, `"true"`, `"True"`, `" TRUE "`, `"tRUE"`,
	`"false"`, `"False"`, `"FALSE"`, `"0"`, `"1"`, `" 3 "`, `"8080"`, `" 8080 "`, `"+8080"`, `"08080"`, `"8080.0"`, `"1700000000000"`, `"1.7e12"`, `"0x10"`,
	`"no"`, `"x"`, `"\u0000 x\u001f"`, `"STATIC"`, `" DYNAMIC_SEQUENTIAL "`, `"static"`, `"DYNAMIC"`, `"{scheme}://{address}"`, `"a{b"`, `"}"`, `[]`, `{}`, `[1]`,
	`["x"]`, `{"parts":[]}`, `{"parts":null}`, `{"parts":""}`, `{"parts":{}}`, `{"PARTS":[{"value":"x"}]}`, `{"parts":[null]}`, `{"parts":["x"]}`,
	`{"parts":[{},{"value":5,"variable":"true"},{"value":null,"variable":null},{"value":true,"variable":1},{"Value":"x","other":1}]}`,
	`{"parts":[{"value":[]}]}`, `{"parts":[{"variable":"x"}]}`, `{"parts":[{"value":"x"}],"parts":[{"value":"y"}]}`,
}

var fields = []string{"name", "id", "address", "port", "sslPort", "registrationTimeUTC", "serviceType", "uriSpec", "enabled", "unknown", "Port"}

// Whatever Curator reads as an instance we read as the same instance: each
// value in each field, and documents with several of them. Those without a name
// or an ID are none to us.
func TestInstancesThatCuratorReads(t *testing.T) {
	r := startReader(t)
	read, refused := 0, 0
	agree := func(data string) {
		if r.agree(t, data) {
			read++
		} else {
			refused++
		}
	}
	for _, f := range fields {
		for _, v := range values {
			agree(fmt.Sprintf(`{"name":"b","id":"i",%q:%s}`, f, v))
		}
	}
	for _, data := range []string{
		"\ufeff" + `{"name":"b","id":"i"}`, " \n" + `{"name":"b" , "id" : "i"}`, `{"name":"b","id":"i"} x`, `{"name":"b","id":"i"}{`, `{"name":"b","id":"i"}]`,
		`{"n\u0061me":"b","id":"i\/"}`, `{"name":"b","id":"i",}`, `{"name":"b","id":"i"`, `{}`, `null`, `"x"`, `""`, `[]`, `5`, ``, `{"name":5,"id":6.50}`,
	} {
		agree(data)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 3000 {
		var text strings.Builder
		text.WriteString(`{"name":"b","id":"i"`)
		for range random.IntN(5) {
			fmt.Fprintf(&text, `,%q:%s`, fields[random.IntN(len(fields))], values[random.IntN(len(values))])
		}
		agree(text.String() + "}")
	}
	if read < 500 || refused < 500 {
		t.Errorf("Curator has read %d, and refused %d", read, refused)
	}
}

// nested is Instances.Nested.
type nested struct {
	Real   float64            `json:"real"`
	Boxed  *float64           `json:"boxed"`
	Single float32            `json:"single"`
	Whole  int64              `json:"whole"`
	Any    any                `json:"any"`
	List   []float64          `json:"list"`
	Map    map[string]float64 `json:"map"`
	Inner  *nested            `json:"inner"`
}

// Curator reads every payload that we write as a value of the class that its
// readers want, and we read what it writes of that.
func TestPayloadsThatCuratorReads(t *testing.T) {
	r := startReader(t)
	one := 1.0
	for f, java := range map[float64]string{
		0: "0.0", 1: "1.0", -1: "-1.0", 1.5: "1.5", 1e7: "1.0E7", 1 << 53: "9.007199254740992E15", 1e21: "1.0E21", 1e300: "1.0E300", 1e-7: "1.0E-7",
	} {
		carries(t, r, "java.lang.Double", f, "Double "+java)
		carries(t, r, "java.lang.Double", &f, "Double "+java)
		carries[any](t, r, "java.lang.Double", f, "Double "+java)
	}
	for f, java := range map[float32]string{0: "0.0", 1: "1.0", -1: "-1.0", 1e7: "1.0E7", 1e30: "1.0E30", 0.1: "0.1"} {
		carries(t, r, "java.lang.Float", f, "Float "+java)
	}
	carries(t, r, "java.lang.Long", int64(7), "Long 7")
	carries(t, r, "java.lang.Long", int64(3000000000), "Long 3000000000")
	carries(t, r, "java.lang.Integer", 7, "Integer 7")
	carries(t, r, "java.lang.Short", int16(7), "Short 7")
	carries(t, r, "java.lang.Byte", int8(7), "Byte 7")
	carries(t, r, "java.lang.Boolean", true, "Boolean true")
	carries(t, r, "java.lang.String", `te<x>t "é`, `String te<x>t "é`)
	carries(t, r, "java.math.BigDecimal", json.Number("7.50"), "BigDecimal 7.50")
	carries(t, r, "java.util.ArrayList", []float64{1, 1.5}, "[Double 1.0, Double 1.5]")
	carries(t, r, "java.util.ArrayList", []any{1.0, "x", nil, true}, "[Integer 1, String x, null, Boolean true]")
	carries(t, r, "java.util.TreeMap", map[string]float64{"a": 1, "b": 0.5}, "{a: Double 1.0, b: Double 0.5}")
	carries(t, r, "java.util.TreeMap", map[string]int{}, "{}")
	carries(t, r, "Instances$Nested", nested{
		Real: 1, Boxed: &one, Single: 2, Whole: 3, Any: true, List: []float64{4, 4.5}, Map: map[string]float64{"k": 5}, Inner: &nested{Real: 6, Any: "x"},
	}, "Nested(1.0 Double 1.0 2.0 3 Boolean true [Double 4.0, Double 4.5] {k: Double 5.0} Nested(6.0 null 0.0 0 String x null null null))")
	carries(t, r, "Instances$Nested", (*nested)(nil), "null")
	carries[any](t, r, "java.lang.Long", nil, "null")
	for text, want := range map[string]string{ // of Curator's own, and of others
		`["java.lang.Double","NaN"]`: "NaN", `["java.lang.Double","Infinity"]`: "+Inf", `["java.lang.Double","-Infinity"]`: "-Inf", `["java.lang.Double","1.5"]`: "1.5",
		`["java.lang.Double",1]`: "1", `1e400`: "+Inf", `1.0`: "1",
	} {
		data := fmt.Sprintf(`{"name":"b","id":"i","payload":%s}`, text)
		_, _, ok := r.read(t, "java.lang.Double", data)
		i, err := discovery.JSON[float64]("java.lang.Double").Decode([]byte(data))
		if !ok || err != nil || fmt.Sprint(i.Payload) != want {
			t.Errorf("%s: Curator reads it: %t; ours %v, %v", text, ok, i.Payload, err)
		}
	}
	for text, want := range map[string]int64{
		`["java.lang.Long","7"]`: 7, `["java.lang.Long",7.9]`: 7, `["java.lang.Long",null]`: 0, `["java.lang.Long",""]`: 0, `["java.lang.Long"]`: 0,
	} {
		data := fmt.Sprintf(`{"name":"b","id":"i","payload":%s}`, text)
		_, _, ok := r.read(t, "java.lang.Long", data)
		i, err := discovery.JSON[int64]("java.lang.Long").Decode([]byte(data))
		if !ok || err != nil || i.Payload != want || i.Raw != nil {
			t.Errorf("%s: Curator reads it: %t; ours %+v, %v", text, ok, i, err)
		}
	}
}

// carries checks how Curator reads a payload, and how we read it back.
func carries[T any](t *testing.T, r *reader, class string, p T, want string) {
	t.Helper()
	codec := discovery.JSON[T](class)
	data, err := codec.Encode(discovery.Instance[T]{Name: "b", ID: "i", Type: discovery.Dynamic, Payload: p})
	if err != nil {
		t.Errorf("%s %v: %v", class, p, err)
		return
	}
	shown, written, ok := r.read(t, class, string(data))
	if !ok || shown != want {
		t.Errorf("%s %v: Curator reads %s as %s, want %s", class, p, data, shown, want)
	}
	back, err := codec.Decode([]byte(written))
	if err != nil || !reflect.DeepEqual(back.Payload, p) || back.Raw != nil {
		t.Errorf("%s %v: ours reads %s as %+v, %v", class, p, written, back, err)
	}
}
