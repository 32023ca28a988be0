package md5digest

import (
	"maps"
	"testing"
)

// The example of RFC 2831, section 4.
func TestExampleOfTheStandard(t *testing.T) {
	p := Proof{
		User: "chris", Realm: "elwood.innosoft.com", Password: "secret", Nonce: "OA6MG9tEQGm2hh", CNonce: "OA6MHXh6VqTrRk",
		Count: Count, QOP: QOP, URI: "imap/elwood.innosoft.com",
	}
	if got, err := p.Response(); err != nil || got != "d388dad90d4bbd760a152321f2143af7" {
		t.Error(got, err)
	}
	if got, err := p.ServerResponse(); err != nil || got != "ea40f60335c427b5527b84dbabcdfffd" {
		t.Error(got, err)
	}
}

// A text is hashed in ISO 8859-1 if that has all of its letters. Apache
// ZooKeeper 3.8.0 accepts both passwords only so.
func TestLatin1(t *testing.T) {
	for text, want := range map[string]string{"grün": "gr\xfcn", "Ωmega": "Ωmega", "plain": "plain", "": "", "üΩ": "üΩ"} {
		if got := latin1(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]map[string]string{
		`realm="zk-sasl-md5",nonce="a\"b\\c",charset=utf-8,algorithm=md5-sess`: {
			"realm": "zk-sasl-md5", "nonce": `a"b\c`, "charset": "utf-8", "algorithm": "md5-sess",
		},
		` a = `:        nil,
		`A=1 , ,b="",`: {"a": "1", "b": ""},
		`a=1,A=2`:      nil,
		`a`:            nil,
		`a="1`:         nil,
		`a="1\`:        nil,
		`"a"=1`:        nil,
		``:             {},
		`rspauth=abc`:  {"rspauth": "abc"},
	} {
		got, err := Parse([]byte(text))
		if (err != nil) != (want == nil) || err == nil && !maps.Equal(got, want) {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`realm="zk-sasl-md5",nonce="x",charset=utf-8,algorithm=md5-sess`)
	f.Fuzz(func(t *testing.T, text string) {
		all, err := Parse([]byte(text))
		if err != nil {
			return
		}
		var again string
		for name, value := range all {
			again += name + "=" + Quote(value) + ","
		}
		if got, err := Parse([]byte(again)); err != nil || !maps.Equal(got, all) {
			t.Errorf("%q: %q, then %q: %v", text, all, got, err)
		}
	})
}
