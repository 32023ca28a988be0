package discovery

import (
	"fmt"
	"strconv"
	"strings"
)

// URISpec says how the URI of an instance is built. See ParseURISpec.
type URISpec []URIPart

// URIPart is literal text, or the name of a variable.
type URIPart struct {
	Value    string `json:"value"`
	Variable bool   `json:"variable"`
}

// ParseURISpec parses a text such as "{scheme}://{address}:{port}/{version}",
// as Curator's UriSpec does. For the variables see Instance.URI.
func ParseURISpec(text string) (URISpec, error) {
	spec := URISpec{}
	fail := func(why string) (URISpec, error) { return nil, fmt.Errorf("discovery: URI %q: %s", text, why) }
	variable := false
	for text := text; text != ""; {
		end := strings.IndexAny(text, "{}")
		part := text
		if end >= 0 {
			part = text[:end]
		}
		if part != "" {
			if variable {
				part = strings.Trim(part, blank)
			}
			spec = append(spec, URIPart{Value: part, Variable: variable})
		}
		if end < 0 {
			break
		}
		opens := text[end] == '{'
		if opens == variable {
			return fail("a brace that does not match")
		}
		variable, text = opens, text[end+1:]
	}
	if variable {
		return fail("a brace is not closed")
	}
	return spec, nil
}

// blank is what Java's String.trim removes.
const blank = "\x00\x01\x02\x03\x04\x05\x06\x07\x08\t\n\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f "

// URI builds the URI of the instance by its URISpec; it is empty if there is
// none. The variables are scheme (https if there is an SSLPort, otherwise
// http), name, id, address, port, ssl-port, registration-time-utc and
// service-type, and [ and ] for braces. Those of the caller come first, and
// what is unknown is left out.
func (i Instance[T]) URI(variables map[string]string) string {
	var uri strings.Builder
	for _, part := range i.URISpec {
		value := part.Value
		if part.Variable {
			if mine, ok := variables[value]; ok {
				value = mine
			} else {
				value = i.variable(value)
			}
		}
		uri.WriteString(value)
	}
	return uri.String()
}

func (i Instance[T]) variable(name string) string {
	port := func(n int) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	switch name {
	case "scheme":
		if i.SSLPort != 0 {
			return "https"
		}
		return "http"
	case "name":
		return i.Name
	case "id":
		return i.ID
	case "address":
		return i.Address
	case "port":
		return port(i.Port)
	case "ssl-port":
		return port(i.SSLPort)
	case "registration-time-utc":
		return strconv.FormatInt(millis(i.Registered), 10)
	case "service-type":
		return strings.ToLower(string(i.Type))
	case "[":
		return "{"
	case "]":
		return "}"
	}
	return ""
}
