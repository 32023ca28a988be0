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
// and null need none.
//
// A payload of another class stays as it is: see Instance.Raw.
//
// Instances that are found are decoded once, on goroutines of their own. While
// a payload's UnmarshalJSON blocks, all who ask for the instances of its
// service wait until their ctx ends, and its listeners are not called.
func JSON[T any](class string) Codec[T] {
	switch class {
	case "java.lang.String", "java.lang.Integer", "java.lang.Double", "java.lang.Boolean": // JSON shows them
		class = ""
	}
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

func (c Codec[T]) encodePayload(i Instance[T]) (json.RawMessage, error) {
	if i.Raw != nil {
		return marshal(i.Raw)
	}
	payload, err := marshal(i.Payload)
	if err != nil || string(payload) == "null" {
		return payload, err
	}
	class, err := marshal(c.class)
	switch {
	case err != nil:
		return nil, err
	case c.class == "" && payload[0] == '[':
		return nil, errors.New("a list: Java readers need a class, such as java.util.ArrayList")
	case c.class == "":
		return payload, nil
	case string(payload) == "{}":
		return fmt.Appendf(nil, `{"@class":%s}`, class), nil
	case payload[0] == '{':
		return fmt.Appendf(nil, `{"@class":%s,%s`, class, payload[1:]), nil
	}
	return fmt.Appendf(nil, "[%s,%s]", class, payload), nil
}

// Decode reads the data of the znode of an instance. With Encode and
// framework.Client.Update, an operator's tool disables one from outside, for
// instance. JSON[json.RawMessage] leaves every payload as it is.
func (c Codec[T]) Decode(text []byte) (i Instance[T], err error) {
	if len(text) == 0 {
		return i, errors.New("no data")
	}
	var fields map[string]json.RawMessage // as in Java, the keys' case counts
	if err = json.Unmarshal(text, &fields); err != nil {
		return i, err
	}
	var registered int64
	var spec *uriSpec
	enabled := true
	for _, field := range []struct {
		key  string
		into any
	}{
		{"name", &i.Name},
		{"id", &i.ID},
		{"address", &i.Address},
		{"port", &i.Port},
		{"sslPort", &i.SSLPort},
		{"registrationTimeUTC", &registered},
		{"serviceType", &i.Type},
		{"uriSpec", &spec},
		{"enabled", &enabled},
	} {
		if value, ok := fields[field.key]; ok {
			if bad := json.Unmarshal(value, field.into); bad != nil {
				err = oneline.Join(err, fmt.Errorf("%s: %w", field.key, bad))
			}
		}
	}
	if i.Name == "" || i.ID == "" {
		err = oneline.Join(err, errors.New("no name, or no ID"))
	}
	if payload, ok := fields["payload"]; ok {
		if bad := c.decodePayload(payload, &i); bad != nil {
			err = oneline.Join(err, fmt.Errorf("payload: %w", bad))
		}
	}
	if registered != 0 {
		i.Registered = time.UnixMilli(registered)
	}
	if spec != nil {
		i.URISpec = append(URISpec{}, spec.Parts...)
	}
	if i.Type == "" {
		i.Type = Dynamic
	}
	i.Disabled = !enabled
	return i, err
}

func (c Codec[T]) decodePayload(text json.RawMessage, i *Instance[T]) error {
	if string(text) == "null" {
		return nil
	}
	class, value, err := classOf(text)
	if err != nil {
		return err
	}
	if class != c.class {
		i.Raw = text
		return nil
	}
	return json.Unmarshal(value, &i.Payload)
}

// classOf returns the class of a payload, and the payload without it.
func classOf(text json.RawMessage) (class string, value json.RawMessage, err error) {
	switch text[0] {
	case '{':
		var fields map[string]json.RawMessage
		if err = json.Unmarshal(text, &fields); err != nil {
			return "", nil, err
		}
		named, ok := fields["@class"]
		if !ok {
			return "", text, nil
		}
		if err = json.Unmarshal(named, &class); err != nil {
			return "", nil, err
		}
		delete(fields, "@class")
		value, err = marshal(fields)
		return class, value, err
	case '[':
		var pair []json.RawMessage
		if err = json.Unmarshal(text, &pair); err != nil {
			return "", nil, err
		}
		if len(pair) != 2 {
			return "", nil, errors.New("a list that does not begin with a class")
		}
		return class, pair[1], json.Unmarshal(pair[0], &class)
	}
	return "", text, nil
}
