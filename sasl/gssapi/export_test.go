package gssapi

import (
	"bytes"
	"time"

	"github.com/jcmturner/gokrb5/v8/iana/etypeID"
	"github.com/jcmturner/gokrb5/v8/types"

	"github.com/zkrecipes/zkrecipes/framework"
)

// ExchangeForTest returns an exchange with a ticket that no KDC has made.
func ExchangeForTest() framework.SASLExchange {
	key := types.EncryptionKey{KeyType: etypeID.AES256_CTS_HMAC_SHA1_96, KeyValue: bytes.Repeat([]byte{9}, 32)}
	t := &ticket{client: principal{"app", "R"}, server: principal{"zookeeper/a", "R"}, key: key, ends: time.Now().Add(time.Hour)}
	t.ticket.Realm, t.ticket.SName, t.ticket.TktVNO = "R", types.NewPrincipalName(1, "zookeeper/a"), 5
	return &exchange{ticket: t}
}
