package recipes

import (
	"cmp"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
)

func TestTokensCompareAsTheirTextsDo(t *testing.T) {
	tokens := []Token{
		{},
		{handed: 1},
		{seq: 1},
		{dir: 1},
		{dir: 1, handed: 1},
		{dir: 1, handed: math.MaxUint32},
		{dir: 1, seq: 1},
		{dir: 1, seq: math.MaxInt32, handed: 1},
		{dir: 1, seq: math.MaxInt32 + 1}, // a counter that goes on past 2^31
		{dir: 1, seq: math.MaxUint32},
		{dir: 2},
		{dir: 0x100000000},
		{dir: 0x100000000, handed: 9},
		{dir: math.MaxInt64, seq: math.MaxUint32, handed: math.MaxUint32},
	}
	for i, a := range tokens {
		for j, b := range tokens {
			if got, want := a.Compare(b), strings.Compare(a.String(), b.String()); got != want {
				t.Errorf("%v.Compare(%v) = %d, their texts' %d", a, b, got, want)
			}
			if got := a.Compare(b); got != cmp.Compare(i, j) {
				t.Errorf("%v.Compare(%v) = %d", a, b, got)
			}
		}
		back, err := ParseToken(a.String())
		if err != nil || back != a {
			t.Errorf("ParseToken(%q) = %v, %v", a.String(), back, err)
		}
		if a.IsZero() != (i == 0) {
			t.Errorf("%v.IsZero() = %v", a, a.IsZero())
		}
	}
}

func TestWhatIsNoTokenIsRefused(t *testing.T) {
	for _, text := range []string{
		"", "0", strings.Repeat("0", 31), strings.Repeat("0", 33), strings.Repeat("0", 24), // of an older release
		"g" + strings.Repeat("0", 31), strings.Repeat("0", 16) + "g" + strings.Repeat("0", 15), strings.Repeat("0", 31) + "g",
		"-" + strings.Repeat("0", 31), "ffffffffffffffff" + strings.Repeat("0", 16), "8" + strings.Repeat("0", 31), strings.Repeat("0", 34), "+" + strings.Repeat("0", 31),
		strings.Repeat("0", 16) + "+" + strings.Repeat("0", 15), strings.Repeat("0", 24) + "+0000000",
	} {
		if token, err := ParseToken(text); !errors.Is(err, errToken) {
			t.Errorf("ParseToken(%q) = %v, %v", text, token, err)
		}
	}
}

func TestTokensTravelAsText(t *testing.T) {
	want := map[string]Token{"token": {dir: 0x200000005, seq: 7}}
	text, err := json.Marshal(want)
	if err != nil || string(text) != `{"token":"00000002000000050000000700000000"}` {
		t.Fatalf("Marshal = %s, %v", text, err)
	}
	var got map[string]Token
	if err := json.Unmarshal(text, &got); err != nil || got["token"] != want["token"] {
		t.Errorf("Unmarshal = %v, %v", got, err)
	}
	if err := json.Unmarshal([]byte(`{"token":"x"}`), &got); err == nil {
		t.Error("Unmarshal took what is no token")
	}
}

// FuzzParseToken: what is accepted is the token's text, and sorts as the tokens
// do.
func FuzzParseToken(f *testing.F) {
	f.Add("00000002000000050000000000000000", "0000000200000005000000010000000a")
	f.Add("FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF", "7fffffffffffffffffffffffffffffff")
	f.Add("+0000002000000050000000000000000", "0x000002000000050000000000000000")
	f.Fuzz(func(t *testing.T, text, other string) {
		token, err := ParseToken(text)
		if err != nil {
			return
		}
		if token.String() != strings.ToLower(text) {
			t.Errorf("ParseToken(%q) = %v", text, token)
		}
		if than, err := ParseToken(other); err == nil && token.Compare(than) != strings.Compare(token.String(), than.String()) {
			t.Errorf("%v compared to %v: %d", token, than, token.Compare(than))
		}
	})
}

// A token goes into a column of a database and comes back.
func TestTokenInADatabase(t *testing.T) {
	want, err := ParseToken("00000000000000ff" + "0000000a" + "00000003")
	if err != nil {
		t.Fatal(err)
	}
	value, err := want.Value()
	if err != nil || !driver.IsValue(value) {
		t.Fatalf("%v, %v", value, err)
	}
	for _, column := range []any{value, []byte(value.(string))} {
		var got Token
		if err := got.Scan(column); err != nil || got != want {
			t.Errorf("%T: %v, %v", column, got, err)
		}
	}
	got := want
	if err := got.Scan(nil); err != nil || !got.IsZero() {
		t.Errorf("NULL: %v, %v", got, err)
	}
	for _, column := range []any{42, "42", []byte("none")} {
		got := want
		if err := got.Scan(column); err == nil || got != want {
			t.Errorf("%v: %v, %v", column, got, err)
		}
	}
}
