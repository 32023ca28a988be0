package gssapi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jcmturner/gofork/encoding/asn1"
	"github.com/jcmturner/gokrb5/v8/asn1tools"
	"github.com/jcmturner/gokrb5/v8/credentials"
	"github.com/jcmturner/gokrb5/v8/crypto"
	"github.com/jcmturner/gokrb5/v8/gssapi"
	"github.com/jcmturner/gokrb5/v8/iana/chksumtype"
	"github.com/jcmturner/gokrb5/v8/iana/flags"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"
)

// exchange is the client's side of RFC 4752: the request, the server's proof,
// and the choice of no layer. The subkey is fresh, so no token of an earlier
// exchange is of use to an impostor.
type exchange struct {
	ticket *ticket
	step   int
	sent   types.Authenticator
	key    types.EncryptionKey // of the tokens after the proof
	theirs bool                // it is the server's
}

// Next implements framework.SASLExchange.
func (x *exchange) Next(challenge []byte) (response []byte, done bool, err error) {
	x.step++
	switch x.step {
	case 1:
		x.ticket.doubted.Store(true)
		response, err = x.request()
		return response, false, x.of(err)
	case 2:
		if err := x.checkProof(challenge); err != nil {
			return nil, false, x.of(err)
		}
		x.ticket.doubted.Store(false)
		return []byte{}, false, nil
	}
	response, err = x.choose(challenge)
	return response, true, x.of(err)
}

func (x *exchange) of(err error) error {
	if err != nil {
		err = fmt.Errorf("gssapi: %s: %w", x.ticket.server, err)
	}
	return err
}

// Tokens of a context begin with one of these (RFC 4121, section 4.1).
const (
	tokenRequest = 0x0100
	tokenProof   = 0x0200
	tokenError   = 0x0300
)

func (x *exchange) request() ([]byte, error) {
	t := x.ticket
	of := credentials.New(t.client.name, t.client.realm)
	auth, err := types.NewAuthenticator(t.client.realm, of.CName())
	if err != nil {
		return nil, err
	}
	kind, err := crypto.GetEtype(t.key.KeyType)
	if err != nil {
		return nil, err
	}
	if err := auth.GenerateSeqNumberAndSubKey(t.key.KeyType, kind.GetKeyByteSize()); err != nil {
		return nil, err
	}
	sum := binary.LittleEndian.AppendUint32(nil, 16)
	sum = append(sum, make([]byte, 16)...) // no channel bindings
	sum = binary.LittleEndian.AppendUint32(sum, gssapi.ContextFlagMutual|gssapi.ContextFlagInteg)
	auth.Cksum = types.Checksum{CksumType: chksumtype.GSSAPI, Checksum: sum}
	request, err := messages.NewAPReq(t.ticket, t.key, auth)
	if err != nil {
		return nil, err
	}
	types.SetFlag(&request.APOptions, flags.APOptionMutualRequired)
	text, err := request.Marshal()
	if err != nil {
		return nil, err
	}
	token, err := asn1.Marshal(gssapi.OIDKRB5.OID())
	if err != nil {
		return nil, err
	}
	token = binary.BigEndian.AppendUint16(token, tokenRequest)
	x.sent, x.key = auth, auth.SubKey
	return asn1tools.AddASNAppTag(append(token, text...), 0), nil
}

// checkProof checks that the server has read the ticket: it returns the time
// in the request, encrypted.
func (x *exchange) checkProof(token []byte) error {
	var mechanism asn1.ObjectIdentifier
	rest, err := asn1.UnmarshalWithParams(token, &mechanism, "application,explicit,tag:0")
	if err != nil || !mechanism.Equal(gssapi.OIDKRB5.OID()) || len(rest) < 2 {
		return errors.New("the server's challenge is not one of Kerberos")
	}
	switch kind, rest := binary.BigEndian.Uint16(rest), rest[2:]; kind {
	case tokenProof:
		return x.checkReply(rest)
	case tokenError:
		var said messages.KRBError
		if err := said.Unmarshal(rest); err != nil {
			return fmt.Errorf("the server's error cannot be read: %w", err)
		}
		return fmt.Errorf("the server refuses: %w", said)
	}
	return errors.New("the server's challenge is not one of Kerberos")
}

func (x *exchange) checkReply(text []byte) error {
	var reply messages.APRep
	if err := reply.Unmarshal(text); err != nil {
		return fmt.Errorf("the server's proof cannot be read: %w", err)
	}
	plain, err := crypto.DecryptEncPart(reply.EncPart, x.ticket.key, keyusage.AP_REP_ENCPART)
	if err != nil {
		return fmt.Errorf("the server does not prove who it is: %w", err)
	}
	var proof messages.EncAPRepPart
	if err := proof.Unmarshal(plain); err != nil {
		return fmt.Errorf("the server's proof cannot be read: %w", err)
	}
	if !proof.CTime.Equal(x.sent.CTime.Truncate(time.Second)) || proof.Cusec != x.sent.Cusec {
		return errors.New("the server's proof is of another request")
	}
	if len(proof.Subkey.KeyValue) > 0 {
		x.key, x.theirs = proof.Subkey, true
	}
	return nil
}

// Flags of a wrapped token, and the layers that a server offers.
const (
	acceptorSubkey = 4
	noLayer        = 1
)

// choose reads the layers that the server offers, and chooses none.
func (x *exchange) choose(challenge []byte) ([]byte, error) {
	var offer gssapi.WrapToken
	if err := offer.Unmarshal(unrotate(challenge), true); err != nil {
		return nil, fmt.Errorf("the server's offer cannot be read: %w", err)
	}
	if ok, err := offer.Verify(x.key, keyusage.GSSAPI_ACCEPTOR_SEAL); !ok {
		return nil, fmt.Errorf("the server's offer is forged: %w", err)
	}
	if len(offer.Payload) != 4 {
		return nil, fmt.Errorf("the server's offer has %d bytes, not 4", len(offer.Payload))
	}
	if offer.Payload[0]&noLayer == 0 {
		return nil, fmt.Errorf("the server wants a layer of protection (%#x), which ZooKeeper does not have", offer.Payload[0])
	}
	kind, err := crypto.GetEtype(x.key.KeyType)
	if err != nil {
		return nil, err
	}
	answer := gssapi.WrapToken{EC: uint16(kind.GetHMACBitLength() / 8), SndSeqNum: uint64(x.sent.SeqNumber), Payload: []byte{noLayer, 0, 0, 0}}
	if x.theirs {
		answer.Flags = acceptorSubkey
	}
	if err := answer.SetCheckSum(x.key, keyusage.GSSAPI_INITIATOR_SEAL); err != nil {
		return nil, err
	}
	return answer.Marshal()
}

// unrotate undoes the rotation that a sender may have made of what follows the
// header (RFC 4121, section 4.2.5), which gokrb5 does not.
func unrotate(token []byte) []byte {
	const header = 16
	if len(token) <= header {
		return token
	}
	body := token[header:]
	by := int(binary.BigEndian.Uint16(token[6:8])) % len(body)
	plain := append([]byte{}, token[:header]...)
	return append(append(plain, body[by:]...), body[:by]...)
}
