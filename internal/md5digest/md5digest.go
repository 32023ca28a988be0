// Package md5digest has what both sides of SASL's DIGEST-MD5 (RFC 2831) share:
// the text form of challenges and responses, and the hash. ZooKeeper uses only
// qop=auth, which protects nothing but the password.
package md5digest

import (
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// URI and realm that ZooKeeper's servers use.
const (
	URI   = "zookeeper/zk-sasl-md5"
	Realm = "zk-sasl-md5"
	QOP   = "auth"
	Count = "00000001" // of the first and only use of a nonce
)

// Proof is what both sides know when they prove who they are.
type Proof struct {
	User, Realm, Password string
	Nonce, CNonce         string
	Count, QOP, URI       string
	ActAs                 string // authzid; empty: none is sent. Java's client sends the user
}

// Response returns what the client proves itself with.
func (p Proof) Response() (string, error) { return p.sum("AUTHENTICATE:" + p.URI) }

// ServerResponse returns what the server proves itself with (rspauth).
func (p Proof) ServerResponse() (string, error) { return p.sum(":" + p.URI) }

func (p Proof) sum(a2 string) (string, error) {
	secret, err := hash(latin1(p.User) + ":" + latin1(p.Realm) + ":" + latin1(p.Password))
	if err != nil {
		return "", err
	}
	first := string(secret) + ":" + p.Nonce + ":" + p.CNonce
	if p.ActAs != "" {
		first += ":" + p.ActAs
	}
	session, err := hash(first)
	if err != nil {
		return "", err
	}
	second, err := hash(a2)
	if err != nil {
		return "", err
	}
	whole := []string{hex.EncodeToString(session), p.Nonce, p.Count, p.CNonce, p.QOP, hex.EncodeToString(second)}
	sum, err := hash(strings.Join(whole, ":"))
	return hex.EncodeToString(sum), err
}

// hash returns an error where MD5 is not allowed (FIPS 140). md5.Sum panics
// there.
func hash(text string) ([]byte, error) {
	h := md5.New()
	if _, err := h.Write([]byte(text)); err != nil {
		return nil, fmt.Errorf("MD5 is not allowed in this process: %w", err)
	}
	return h.Sum(nil), nil
}

// latin1 returns a text as it is hashed: in ISO 8859-1 if all of its letters
// are in it, and otherwise in UTF-8.
func latin1(text string) string {
	converted := make([]byte, 0, len(text))
	for _, r := range text {
		if r > 0xff {
			return text
		}
		converted = append(converted, byte(r))
	}
	return string(converted)
}

// Quote returns a value in quotation marks.
func Quote(value string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
}

// Parse returns the directives of a challenge or a response, by their names in
// small letters. A directive that comes twice is an error.
func Parse(token []byte) (map[string]string, error) {
	all := make(map[string]string)
	rest := string(token)
	for {
		rest = strings.TrimLeft(rest, " \t\r\n,")
		if rest == "" {
			return all, nil
		}
		name, after, ok := strings.Cut(rest, "=")
		if !ok || strings.ContainsAny(name, "\" \t,") || name == "" {
			return nil, errors.New("a directive without a value")
		}
		value, after, err := parseValue(after)
		if err != nil {
			return nil, err
		}
		name = strings.ToLower(name)
		if _, twice := all[name]; twice {
			return nil, fmt.Errorf("%q comes twice", name)
		}
		all[name], rest = value, after
	}
}

// parseValue returns the value at the beginning of a text, and what follows it.
func parseValue(text string) (value, rest string, err error) {
	if !strings.HasPrefix(text, `"`) {
		end := strings.IndexAny(text, ", \t\r\n")
		if end < 0 {
			end = len(text)
		}
		return text[:end], text[end:], nil
	}
	var unquoted strings.Builder
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '"':
			return unquoted.String(), text[i+1:], nil
		case '\\':
			if i++; i == len(text) {
				break
			}
			fallthrough
		default:
			unquoted.WriteByte(text[i])
		}
	}
	return "", "", errors.New("a quotation mark is missing")
}
