package discovery

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/oneline"
)

// Fields of Java types. Each reads the JSON values that Jackson reads, as it is
// set in Curator: people and other libraries have written "8080" and 8080.0.
type (
	javaString  string
	javaInt     int
	javaLong    int64
	javaDouble  float64
	javaBoolean bool
	javaType    ServiceType
)

// field is one of a JSON object.
type field struct {
	key  string
	into any
}

// readFields reads the fields of an object. It ignores others, and what follows
// the object.
func readFields(text []byte, fields ...field) error {
	var values map[string]json.RawMessage // as in Java, the keys' case counts
	var err error
	if json.NewDecoder(bytes.NewReader(text)).Decode(&values) != nil {
		err = json.Unmarshal(text, &values) // says better why
	}
	for _, f := range fields {
		if value, ok := values[f.key]; ok {
			if bad := json.Unmarshal(value, f.into); bad != nil {
				err = oneline.Join(err, fmt.Errorf("%s: %w", f.key, bad))
			}
		}
	}
	return err
}

// scalar returns a value as text, empty for null, and whether it is quoted.
func scalar(value []byte) (text string, quoted bool) {
	if text = string(value); value[0] == '"' {
		quoted = true
		_ = json.Unmarshal(value, &text) // it is a value of a document that was read
		text = strings.Trim(text, blank)
	}
	if text == "null" {
		text = ""
	}
	return text, quoted
}

func isInteger(text string) bool { return text != "" && strings.Trim(text, "-0123456789") == "" }

// UnmarshalJSON also reads a number, true and false, as they are written.
func (s *javaString) UnmarshalJSON(value []byte) error {
	switch value[0] {
	case '"':
		return json.Unmarshal(value, (*string)(s))
	case '{', '[':
		return errors.New("not a text")
	}
	text, _ := scalar(value)
	*s = javaString(text)
	return nil
}

// integer reads a number of so many bits. A fraction is cut off, but not one in
// a text.
func integer(value []byte, bits int) (int64, error) {
	text, quoted := scalar(value)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, bits)
	if err == nil || quoted {
		return n, err
	}
	f, err := strconv.ParseFloat(text, 64)
	if most := math.Ldexp(1, bits-1); err != nil || f < -most || f >= most {
		return 0, fmt.Errorf("not a number of %d bits", bits)
	}
	return int64(f), nil
}

func (n *javaInt) UnmarshalJSON(value []byte) error {
	i, err := integer(value, 32)
	*n = javaInt(i)
	return err
}

func (n *javaLong) UnmarshalJSON(value []byte) error {
	i, err := integer(value, 64)
	*n = javaLong(i)
	return err
}

func (f *javaDouble) UnmarshalJSON(value []byte) error {
	text, _ := scalar(value)
	if text == "" {
		*f = 0
		return nil
	}
	d, err := strconv.ParseFloat(text, 64)
	if *f = javaDouble(d); errors.Is(err, strconv.ErrRange) { // it is infinite, as in Java
		return nil
	}
	return err
}

func (b *javaBoolean) UnmarshalJSON(value []byte) error {
	switch text, quoted := scalar(value); {
	case slices.Contains([]string{"true", "True", "TRUE"}, text):
		*b = true
	case slices.Contains([]string{"", "false", "False", "FALSE"}, text):
		*b = false
	case !quoted && isInteger(text):
		*b = strings.Trim(text, "-0") != ""
	default:
		return errors.New("neither true nor false")
	}
	return nil
}

// enum has the types in the order of Java's enum.
var enum = []ServiceType{Dynamic, Static, Permanent, DynamicSequential}

// UnmarshalJSON also reads the index of a type. A name may be unknown.
func (t *javaType) UnmarshalJSON(value []byte) error {
	text, quoted := scalar(value)
	switch i, err := strconv.Atoi(text); {
	case err == nil && i >= 0 && i < len(enum):
		*t = javaType(enum[i])
	case quoted || text == "":
		*t = javaType(text)
	default:
		return errors.New("not a type of instances")
	}
	return nil
}

// javaURI is a UriSpec. Jackson also calls the constructor that parses a text.
type javaURI struct{ spec *URISpec }

func (u javaURI) UnmarshalJSON(value []byte) (err error) {
	switch value[0] {
	case 'n':
		*u.spec = nil
		return nil
	case '"':
		var text string
		if err = json.Unmarshal(value, &text); err == nil {
			*u.spec, err = ParseURISpec(text)
		}
		return err
	}
	var parts []json.RawMessage
	err = readFields(value, field{"parts", &parts})
	*u.spec = make(URISpec, len(parts))
	for i, part := range parts {
		p := &(*u.spec)[i]
		err = oneline.Join(err, readFields(part, field{"value", (*javaString)(&p.Value)}, field{"variable", (*javaBoolean)(&p.Variable)}))
	}
	return err
}
