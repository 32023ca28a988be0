package gssapi_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jcmturner/gofork/encoding/asn1"
	"github.com/jcmturner/gokrb5/v8/asn1tools"
	"github.com/jcmturner/gokrb5/v8/crypto"
	krb "github.com/jcmturner/gokrb5/v8/gssapi"
	"github.com/jcmturner/gokrb5/v8/iana/asnAppTag"
	"github.com/jcmturner/gokrb5/v8/iana/errorcode"
	"github.com/jcmturner/gokrb5/v8/iana/flags"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/iana/msgtype"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/sasl/gssapi"
)

// acceptor is the server's side of an exchange, which may lie.
type acceptor struct {
	t    *testing.T
	keys *keytab.Keytab
	key  types.EncryptionKey // of the ticket
	sent types.Authenticator
}

// read reads the client's request.
func (a *acceptor) read(token []byte) {
	a.t.Helper()
	var mechanism asn1.ObjectIdentifier
	rest, err := asn1.UnmarshalWithParams(token, &mechanism, "application,explicit,tag:0")
	must(a.t, err)
	var request messages.APReq
	must(a.t, request.Unmarshal(rest[2:]))
	if ok, err := request.Verify(a.keys, time.Minute, types.HostAddress{}, nil); !ok {
		a.t.Fatal(err)
	}
	if !types.IsFlagSet(&request.APOptions, flags.APOptionMutualRequired) || len(request.Authenticator.SubKey.KeyValue) == 0 {
		a.t.Errorf("options %x, and a subkey of %d bytes", request.APOptions.Bytes, len(request.Authenticator.SubKey.KeyValue))
	}
	a.key, a.sent = request.Ticket.DecryptedEncPart.Key, request.Authenticator
}

func token(kind uint16, text []byte) []byte {
	b, err := asn1.Marshal(krb.OIDKRB5.OID())
	if err != nil {
		panic(err)
	}
	return asn1tools.AddASNAppTag(append(binary.BigEndian.AppendUint16(b, kind), text...), 0)
}

// proof returns the server's proof, encrypted by key.
func (a *acceptor) proof(part messages.EncAPRepPart, key types.EncryptionKey) []byte {
	a.t.Helper()
	plain, err := asn1.Marshal(part)
	must(a.t, err)
	sealed, err := crypto.GetEncryptedData(asn1tools.AddASNAppTag(plain, asnAppTag.EncAPRepPart), key, keyusage.AP_REP_ENCPART, 0)
	must(a.t, err)
	reply, err := asn1.Marshal(messages.APRep{PVNO: 5, MsgType: msgtype.KRB_AP_REP, EncPart: sealed})
	must(a.t, err)
	return token(0x0200, asn1tools.AddASNAppTag(reply, asnAppTag.APREP))
}

// offer returns the wrapped layers, with a rotation.
func (a *acceptor) offer(key types.EncryptionKey, payload []byte, rotation int) []byte {
	a.t.Helper()
	kind, err := crypto.GetEtype(key.KeyType)
	must(a.t, err)
	w := krb.WrapToken{Flags: 1, EC: uint16(kind.GetHMACBitLength() / 8), Payload: payload}
	must(a.t, w.SetCheckSum(key, keyusage.GSSAPI_ACCEPTOR_SEAL))
	text, err := w.Marshal()
	must(a.t, err)
	binary.BigEndian.PutUint16(text[6:], uint16(rotation))
	body := text[16:]
	at := len(body) - rotation%len(body)
	return append(text[:16:16], append(append([]byte{}, body[at:]...), body[:at]...)...)
}

// What a server may answer in each step.
func TestExchange(t *testing.T) {
	k := startKDC(t)
	m := k.mechanism(k.keytab())
	text, err := os.ReadFile(k.Path("zookeeper.keytab"))
	must(t, err)
	keys := keytab.New()
	must(t, keys.Unmarshal(text))
	other := types.EncryptionKey{KeyType: 18, KeyValue: bytes.Repeat([]byte{7}, 32)}
	failure := messages.NewKRBError(types.NewPrincipalName(1, "zookeeper/localhost"), realm, errorcode.KRB_AP_ERR_SKEW, "")
	said, err := failure.Marshal()
	must(t, err)
	noLayer := []byte{1, 1, 0, 0}
	for name, tt := range map[string]struct {
		proof func(a *acceptor, part messages.EncAPRepPart) []byte // nil: a right one
		offer func(a *acceptor) []byte                             // nil: a right one
		want  string                                               // of the error
	}{
		"right": {nil, nil, ""},
		"the server's subkey": {
			func(a *acceptor, part messages.EncAPRepPart) []byte { part.Subkey = other; return a.proof(part, a.key) },
			func(a *acceptor) []byte { return a.offer(other, noLayer, 0) }, "",
		},
		"rotated":            {nil, func(a *acceptor) []byte { return a.offer(a.sent.SubKey, noLayer, 28) }, ""},
		"several layers":     {nil, func(a *acceptor) []byte { return a.offer(a.sent.SubKey, []byte{7, 1, 0, 0}, 0) }, ""},
		"an empty proof":     {func(*acceptor, messages.EncAPRepPart) []byte { return []byte{} }, nil, "not one of Kerberos"},
		"no proof":           {func(*acceptor, messages.EncAPRepPart) []byte { return []byte("realm=\"zk-sasl-md5\"") }, nil, "not one of Kerberos"},
		"another token":      {func(*acceptor, messages.EncAPRepPart) []byte { return token(0x0100, said) }, nil, "not one of Kerberos"},
		"a token of nothing": {func(*acceptor, messages.EncAPRepPart) []byte { return token(0x0200, nil) }, nil, "cannot be read"},
		"an error":           {func(*acceptor, messages.EncAPRepPart) []byte { return token(0x0300, said) }, nil, "KRB_AP_ERR_SKEW"},
		"half an error":      {func(*acceptor, messages.EncAPRepPart) []byte { return token(0x0300, said[:9]) }, nil, "cannot be read"},
		"another key":        {func(a *acceptor, part messages.EncAPRepPart) []byte { return a.proof(part, other) }, nil, "does not prove"},
		"another second": {func(a *acceptor, part messages.EncAPRepPart) []byte {
			part.CTime = part.CTime.Add(time.Second)
			return a.proof(part, a.key)
		}, nil, "another request"},
		"another microsecond": {func(a *acceptor, part messages.EncAPRepPart) []byte { part.Cusec ^= 1; return a.proof(part, a.key) }, nil, "another request"},
		"an offer by another": {nil, func(a *acceptor) []byte { return a.offer(other, noLayer, 0) }, "forged"},
		"by the ticket's key": {nil, func(a *acceptor) []byte { return a.offer(a.key, noLayer, 0) }, "forged"},
		"changed":             {nil, func(a *acceptor) []byte { o := a.offer(a.sent.SubKey, noLayer, 0); o[16] = 3; return o }, "forged"},
		"no token":            {nil, func(*acceptor) []byte { return []byte("hello") }, "cannot be read"},
		"an empty one":        {nil, func(*acceptor) []byte { return []byte{} }, "cannot be read"},
		"a header alone":      {nil, func(a *acceptor) []byte { return a.offer(a.sent.SubKey, noLayer, 0)[:16] }, "cannot be read"},
		"encryption only":     {nil, func(a *acceptor) []byte { return a.offer(a.sent.SubKey, []byte{4, 1, 0, 0}, 0) }, "wants a layer"},
		"a short offer":       {nil, func(a *acceptor) []byte { return a.offer(a.sent.SubKey, []byte{1}, 0) }, "not 4"},
	} {
		a := &acceptor{t: t, keys: keys}
		x, err := m.Begin(t.Context(), framework.SASLServer{Name: "localhost:2181", Address: "localhost:2181"})
		must(t, err)
		request, done, err := x.Next(nil)
		if err != nil || done {
			t.Fatal(done, err)
		}
		a.read(request)
		if tt.proof == nil {
			tt.proof = func(a *acceptor, part messages.EncAPRepPart) []byte { return a.proof(part, a.key) }
		}
		if tt.offer == nil {
			tt.offer = func(a *acceptor) []byte { return a.offer(a.sent.SubKey, noLayer, 0) }
		}
		empty, done, err := x.Next(tt.proof(a, messages.EncAPRepPart{CTime: a.sent.CTime, Cusec: a.sent.Cusec}))
		if err == nil {
			if len(empty) > 0 || empty == nil || done {
				t.Errorf("%s: the answer to the proof is %x, %t", name, empty, done)
			}
			var choice []byte
			if choice, done, err = x.Next(tt.offer(a)); err == nil {
				var w krb.WrapToken
				must(t, w.Unmarshal(choice, false))
				key := a.sent.SubKey
				if w.Flags != 0 {
					key = other
				}
				if ok, err := w.Verify(key, keyusage.GSSAPI_INITIATOR_SEAL); !ok || !done || !bytes.Equal(w.Payload, []byte{1, 0, 0, 0}) || w.SndSeqNum != uint64(a.sent.SeqNumber) {
					t.Errorf("%s: the client's choice is %x, %v", name, choice, err)
				}
			}
		}
		if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "zookeeper/localhost")) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// Each exchange has a subkey of its own, although the ticket is the same. A
// ticket that brought no proof is replaced where a KDC answers.
func TestTicketsAndSubkeys(t *testing.T) {
	k := startKDC(t)
	m := k.mechanism(k.keytab())
	text, err := os.ReadFile(k.Path("zookeeper.keytab"))
	must(t, err)
	keys := keytab.New()
	must(t, keys.Unmarshal(text))
	exchange := func(prove bool) (ticket, subkey []byte) {
		a := &acceptor{t: t, keys: keys}
		x, err := m.Begin(t.Context(), framework.SASLServer{Name: "localhost:2181", Address: "localhost:2181"})
		must(t, err)
		request, _, err := x.Next(nil)
		must(t, err)
		a.read(request)
		if prove {
			_, _, err = x.Next(a.proof(messages.EncAPRepPart{CTime: a.sent.CTime, Cusec: a.sent.Cusec}, a.key))
			must(t, err)
		}
		return a.key.KeyValue, a.sent.SubKey.KeyValue
	}
	first, subkey := exchange(true)
	second, another := exchange(false)
	if !bytes.Equal(first, second) || bytes.Equal(subkey, another) {
		t.Error("another ticket, or the same subkey")
	}
	third, _ := exchange(false)
	if bytes.Equal(first, third) {
		t.Error("the ticket that brought no proof is used again")
	}
	k.Stop()
	if fourth, _ := exchange(true); !bytes.Equal(third, fourth) {
		t.Error("without a KDC another ticket")
	}
	if fifth, _ := exchange(true); !bytes.Equal(third, fifth) {
		t.Error("the ticket was proven, and is not used")
	}
}

// Whatever a server sends, an exchange ends with an error or a choice.
func FuzzChallenges(f *testing.F) {
	f.Add(token(0x0200, []byte{0x6f, 0}), []byte{5, 4, 1, 255, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1})
	f.Add(token(0x0300, []byte{0x7e, 0}), []byte{})
	f.Fuzz(fuzzed)
}

func fuzzed(t *testing.T, first, second []byte) {
	x := gssapi.ExchangeForTest()
	if _, _, err := x.Next(nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := x.Next(first); err == nil {
		t.Fatalf("a proof was guessed: %x", first)
	}
	if _, _, err := x.Next(second); err == nil {
		t.Fatalf("an offer was guessed: %x", second)
	}
}
