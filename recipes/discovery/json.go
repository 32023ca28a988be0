package discovery

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/oneline"
)

// Codec reads and writes the data of instances. JSON returns one.
type Codec[T any] struct{ class string }

// JSON returns the codec of Curator's JsonInstanceSerializer, for payloads that
// encoding/json writes and reads as a T. class is their Java class, which
// stands in the JSON, as "@class" of an object. Without a class, Java readers
// see an object as a Map. Text, numbers that are Integer or Double, booleans
// and null need none; other numbers, such as Long, do.
//
// The floats of T are written with a fraction or an exponent, because Java may
// read 1 as an Integer. Numbers in an any, in a json.Number or from a
// MarshalJSON are written unchanged, unless the number is the whole payload and
// class is Double or Float. If the JSON of a payload does not fit class, that
// is an error: Curator would fail for all instances of the service.
//
// A payload of another class stays as it is: see Instance.Raw.
//
// Instances that are found are decoded once, on goroutines of their own. While
// a payload's UnmarshalJSON blocks, all who ask for the instances of its
// service wait until their ctx ends, and its listeners are not called.
func JSON[T any](class string) Codec[T] {
	return Codec[T]{class: class}
}

// data is an instance as JSON. The order of the keys is Curator's.
type data struct {
	Name       string          `json:"name"`
	ID         string          `json:"id"`
	Address    *string         `json:"address"`
	Port       *int            `json:"port"`
	SSLPort    *int            `json:"sslPort"`
	Payload    json.RawMessage `json:"payload"`
	Registered int64           `json:"registrationTimeUTC"`
	Type       ServiceType     `json:"serviceType"`
	URISpec    *uriSpec        `json:"uriSpec"`
	Enabled    *bool           `json:"enabled,omitempty"`
}

type uriSpec struct {
	Parts URISpec `json:"parts"`
}

// Encode returns the data of the znode of an instance, which Register writes.
func (c Codec[T]) Encode(i Instance[T]) ([]byte, error) {
	payload, err := c.encodePayload(i)
	if err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	d := data{
		Name: i.Name, ID: i.ID, Address: orNull(i.Address), Port: orNull(i.Port), SSLPort: orNull(i.SSLPort),
		Payload: payload, Registered: millis(i.Registered), Type: i.Type,
	}
	if i.URISpec != nil {
		d.URISpec = &uriSpec{Parts: i.URISpec}
	}
	if i.Disabled {
		d.Enabled = new(bool)
	}
	return marshal(d)
}

func orNull[V comparable](v V) *V {
	var none V
	if v == none {
		return nil
	}
	return &v
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// marshal is json.Marshal, and writes <, > and & as Jackson does.
func marshal(v any) ([]byte, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), err
}

// Decode reads the data of the znode of an instance. It reads all that Curator
// reads, such as a port "8080" or 8080.0, but an instance without a name or an
// ID is an error. An operator's tool can use it with Encode and
// framework.Client.Update, for example to disable an instance from outside.
// JSON[json.RawMessage] leaves every payload unchanged.
func (c Codec[T]) Decode(text []byte) (i Instance[T], err error) {
	if len(text) == 0 {
		return i, errors.New("no data")
	}
	var payload json.RawMessage
	var registered int64
	enabled := true
	err = readFields(bytes.TrimPrefix(text, []byte("\ufeff")),
		field{"name", (*javaString)(&i.Name)},
		field{"id", (*javaString)(&i.ID)},
		field{"address", (*javaString)(&i.Address)},
		field{"port", (*javaInt)(&i.Port)},
		field{"sslPort", (*javaInt)(&i.SSLPort)},
		field{"payload", &payload},
		field{"registrationTimeUTC", (*javaLong)(&registered)},
		field{"serviceType", (*javaType)(&i.Type)},
		field{"uriSpec", &javaURI{&i.URISpec}},
		field{"enabled", (*javaBoolean)(&enabled)},
	)
	if err == nil && (i.Name == "" || i.ID == "") {
		err = errors.New("no name, or no ID")
	}
	if payload != nil {
		if bad := c.decodePayload(payload, &i); bad != nil {
			err = oneline.Join(err, fmt.Errorf("payload: %w", bad))
		}
	}
	if registered != 0 {
		i.Registered = time.UnixMilli(registered)
	}
	if i.Type == "" {
		i.Type = Dynamic
	}
	i.Disabled = !enabled
	return i, err
}
