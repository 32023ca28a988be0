package discovery

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
)

const (
	classString  = "java.lang.String"
	classInteger = "java.lang.Integer"
	classDouble  = "java.lang.Double"
	classFloat   = "java.lang.Float"
	classBoolean = "java.lang.Boolean"
)

// isPlain reports whether JSON shows that a value is of a class, unless it is a
// Double that is not finite.
func isPlain(class string) bool {
	return class == classString || class == classInteger || class == classDouble || class == classBoolean
}

// plainClass returns the class that Jackson takes a value for that does not
// name one.
func plainClass(value json.RawMessage) string {
	switch value[0] {
	case '"':
		return classString
	case 't', 'f':
		return classBoolean
	case '{', '[':
		return "a class that has to be named"
	}
	if !isInteger(string(value)) {
		return classDouble
	}
	if _, err := strconv.ParseInt(string(value), 10, 32); err != nil {
		return "java.lang.Long"
	}
	return classInteger
}

// encodePayload refuses what Java could not read: its readers fail for all
// instances of the service then.
func (c Codec[T]) encodePayload(i Instance[T]) (json.RawMessage, error) {
	if i.Raw != nil {
		return marshal(i.Raw)
	}
	wrap := func(class string, value []byte) (json.RawMessage, error) {
		name, err := marshal(class)
		return fmt.Appendf(nil, "[%s,%s]", name, value), err
	}
	if d, ok := infinite(i.Payload); ok && (c.class == "" || c.class == classDouble || c.class == classFloat) {
		return wrap(cmp.Or(c.class, classDouble), d)
	}
	payload, err := marshal(i.Payload)
	if err != nil || string(payload) == "null" {
		return payload, err
	}
	payload = withFractions(reflect.TypeFor[T](), payload)
	if c.class == classDouble || c.class == classFloat {
		payload = withFraction(payload)
	}
	switch plain := plainClass(payload); {
	case isPlain(c.class) && c.class != plain:
		return nil, fmt.Errorf("to Java it is of %s, not of %s", plain, c.class)
	case c.class == "" && payload[0] == '[':
		return nil, errors.New("a list: Java readers need a class, such as java.util.ArrayList")
	case c.class == "" || isPlain(c.class):
		return payload, nil
	case payload[0] != '{':
		return wrap(c.class, payload)
	}
	class, err := marshal(c.class)
	if string(payload) != "{}" {
		class = append(class, ',')
	}
	return fmt.Appendf(nil, `{"@class":%s%s`, class, payload[1:]), err
}

// infinite returns a float that is infinite or not a number as Jackson writes
// it. ok reports whether v is one.
func infinite(v any) (value []byte, ok bool) {
	f := reflect.ValueOf(v)
	_, own := v.(json.Marshaler)
	switch {
	case own || !f.IsValid() || !f.CanFloat():
		return nil, false
	case math.IsNaN(f.Float()):
		return []byte(`"NaN"`), true
	case math.IsInf(f.Float(), 1):
		return []byte(`"Infinity"`), true
	}
	return []byte(`"-Infinity"`), math.IsInf(f.Float(), -1)
}

// withFractions gives a fraction to the floats of a type that are whole. It
// knows the common types: in another one, such as an interface, they stay as
// they are.
func withFractions(t reflect.Type, text json.RawMessage) json.RawMessage {
	if marshaler := reflect.TypeFor[json.Marshaler](); t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler) {
		return text
	}
	switch t.Kind() {
	case reflect.Float32, reflect.Float64:
		return withFraction(text)
	case reflect.Pointer:
		return withFractions(t.Elem(), text)
	case reflect.Slice, reflect.Array, reflect.Map:
		return rewrite(text, func(string) reflect.Type { return t.Elem() })
	case reflect.Struct:
		types := make(map[string]reflect.Type)
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			types[cmp.Or(name, f.Name)] = f.Type
		}
		return rewrite(text, func(key string) reflect.Type { return types[key] })
	}
	return text
}

// withFraction gives a fraction to a whole number.
func withFraction(text json.RawMessage) json.RawMessage {
	if isInteger(string(text)) {
		return append(text, ".0"...)
	}
	return text
}

// rewrite gives fractions to the floats in a list or an object.
func rewrite(text json.RawMessage, typeOf func(key string) reflect.Type) json.RawMessage {
	if text[0] != '[' && text[0] != '{' {
		return text
	}
	var out []byte
	between := text[:1]
	d := json.NewDecoder(bytes.NewReader(text))
	_, _ = d.Token()
	for d.More() {
		out = append(out, between...)
		key := ""
		if text[0] == '{' {
			token, _ := d.Token()
			key, _ = token.(string)
			name, _ := marshal(key)
			out = append(append(out, name...), ':')
		}
		var value json.RawMessage
		if d.Decode(&value) != nil { // never: encoding/json has made it
			return text
		}
		if t := typeOf(key); t != nil {
			value = withFractions(t, value)
		}
		out, between = append(out, value...), []byte(",")
	}
	if out == nil {
		return text
	}
	return append(out, text[len(text)-1])
}

func (c Codec[T]) decodePayload(text json.RawMessage, i *Instance[T]) error {
	if string(text) == "null" {
		return nil
	}
	class, value, err := classOf(text)
	into := reflect.ValueOf(&i.Payload).Elem()
	isFloat := into.CanFloat() && !reflect.TypeFor[*T]().Implements(reflect.TypeFor[json.Unmarshaler]())
	expected := c.class
	if expected == "" && isFloat {
		expected = classDouble // see encodePayload
	}
	switch {
	case err != nil:
		return err
	case class != expected && (class != "" || !isPlain(expected)):
		i.Raw = text
		return nil
	case string(value) == "null":
		return nil
	}
	if isFloat {
		var f javaDouble // which may be infinite
		err = json.Unmarshal(value, &f)
		into.SetFloat(float64(f))
		return err
	}
	if java := valueOf(class); java != nil {
		if err = json.Unmarshal(value, java); err == nil {
			value, err = json.Marshal(java)
		}
		if err != nil {
			return err
		}
	}
	return json.Unmarshal(value, &i.Payload)
}

// valueOf returns what reads the values of some classes as Jackson does, or
// nil.
func valueOf(class string) any {
	switch class {
	case classString:
		return new(javaString)
	case classBoolean:
		return new(javaBoolean)
	case classDouble, classFloat:
		return new(javaDouble)
	case classInteger, "java.lang.Long", "java.lang.Short", "java.lang.Byte":
		return new(javaLong)
	}
	return nil
}

// classOf returns the class that a payload names, and the payload without it.
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
		if len(pair) == 1 {
			pair = append(pair, json.RawMessage("null")) // as Jackson reads it
		}
		if len(pair) != 2 {
			return "", nil, errors.New("a list that does not begin with a class")
		}
		return class, pair[1], json.Unmarshal(pair[0], &class)
	}
	return "", text, nil
}
